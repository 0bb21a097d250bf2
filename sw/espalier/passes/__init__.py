"""Passes over the network as imported, each in its own file; `pipeline` holds their order.

A pass is a function that takes an `ImportedGraph` and changes it in place.
"""

from espalier.passes.pipeline import PASSES, lower

__all__ = ["PASSES", "lower"]
