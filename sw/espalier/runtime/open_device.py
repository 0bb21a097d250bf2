"""Turns what users name as the device into a `Device`."""

from __future__ import annotations

from pathlib import Path
from typing import Any

from espalier.errors import DeviceError
from espalier.runtime.device import Device
from espalier.runtime.integer import IntegerDevice
from espalier.runtime.model import Model


def open_device(device: Any, model: Model) -> tuple[Device, bool]:
    """Return the device and whether it was opened here, so that it must be closed here.

    device: "integer", or a `Device`.

    Raises:
        DeviceError: it is nothing of the kind.

    """
    if device == "integer":
        return IntegerDevice(model.config), True
    if callable(getattr(device, "allocate", None)) and hasattr(device, "owner"):
        return device, False
    shown = str(device) if isinstance(device, (str, Path)) else type(device).__name__
    raise DeviceError(f"'{shown}' is no device: give \"integer\" or a device object")
