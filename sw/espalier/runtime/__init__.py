"""Runs compiled networks: on PYNQ boards, on simulated ones, on the integer model."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from espalier.runtime.accelerator import Accelerator, Score
    from espalier.runtime.integer import IntegerDevice
    from espalier.runtime.model import Model, load_model
    from espalier.runtime.record import Recorder, Replayer

__all__ = ["Accelerator", "IntegerDevice", "Model", "Recorder", "Replayer", "Score", "load_model"]

_MODULES = {
    "Accelerator": "accelerator",
    "IntegerDevice": "integer",
    "Model": "model",
    "Recorder": "record",
    "Replayer": "record",
    "Score": "accelerator",
    "load_model": "model",
}


def __getattr__(name: str) -> Any:
    """Import what is used only: preprocessing alone must not pull in the whole driver."""
    if name not in _MODULES:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    from importlib import import_module

    return getattr(import_module(f"{__name__}.{_MODULES[name]}"), name)
