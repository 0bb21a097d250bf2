"""Whether a network runs on a target, node by node, before anything is compressed or compiled."""

from espalier.check.checker import check_model
from espalier.check.verdict import CheckReport

__all__ = ["CheckReport", "check_model"]
