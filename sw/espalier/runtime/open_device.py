"""Turns what users name as the device into a `Device`."""

from __future__ import annotations

import os
from importlib.metadata import entry_points
from pathlib import Path
from typing import Any

from espalier.errors import DeviceError
from espalier.runtime.device import Device
from espalier.runtime.integer import IntegerDevice
from espalier.runtime.model import Model

BOARD_VARIABLE = "ESPALIER_BOARD"  # name of a simulated board that takes the place of the real one
BOARD_GROUP = "espalier.simulated_boards"  # entry points: called with that name


def open_device(device: Any, model: Model) -> tuple[Device, bool]:
    """Return the device and whether it was opened here, so that it must be closed here.

    device: "integer", a .bit file, an `EspalierOverlay`, or a `Device`.

    Raises:
        DeviceError: it is nothing of the kind, PYNQ is not installed, or the board cannot be used.

    """
    if device == "integer":
        return IntegerDevice(model.config), True
    if isinstance(device, (str, Path)) and str(device).endswith(".bit"):
        return _open_bitstream(str(device)), True
    if hasattr(device, "bitfile_name"):
        from espalier.runtime.pynq_device import PynqDevice

        return PynqDevice(device, free_overlay=False), True
    if callable(getattr(device, "allocate", None)) and hasattr(device, "owner"):
        return device, False
    shown = str(device) if isinstance(device, (str, Path)) else type(device).__name__
    raise DeviceError(
        f"'{shown}' is no device: give a .bit file, an EspalierOverlay, \"integer\" or a device object"
    )


def use_simulated_board() -> None:
    """Let a simulated board take the place of the real one if the environment says so.

    Raises:
        DeviceError: none is installed.

    """
    if name := os.environ.get(BOARD_VARIABLE):
        found = list(entry_points(group=BOARD_GROUP))
        if not found:
            raise DeviceError(f"{BOARD_VARIABLE} is '{name}', but no simulated board is installed")
        found[0].load()(name)


def _open_bitstream(path: str) -> Device:
    use_simulated_board()
    try:
        from espalier.runtime.overlay import EspalierOverlay
        from espalier.runtime.pynq_device import PynqDevice
    except ImportError as error:
        raise DeviceError(
            f"{path} needs PYNQ, which cannot be imported ({error}): run this on a PYNQ board, or install it"
            " with pip install 'espalier-accel[board]'"
        ) from error
    try:
        overlay = EspalierOverlay(path)
    except OSError as error:
        raise DeviceError(f"cannot load bitstream {path}: {error}") from error
    return PynqDevice(overlay, free_overlay=True)
