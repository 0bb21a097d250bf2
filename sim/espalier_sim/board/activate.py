"""Makes the simulated board the device of PYNQ."""

from __future__ import annotations

import os
import tempfile

from espalier.errors import DeviceError
from espalier.runtime.open_device import BOARD_VARIABLE
from espalier_sim.board.boards import find_board

_LOCKS = "ESPALIER_LOCKS"


def activate(name: str) -> None:
    """Let PYNQ find the simulated board `name`, and no other; a second call does nothing.

    Raises:
        DeviceError: no such board, PYNQ is not installed, or it has chosen another device already.

    """
    find_board(name)
    os.environ[BOARD_VARIABLE] = name
    # Two simulations do not share a board, unless they say so.
    os.environ.setdefault(_LOCKS, tempfile.mkdtemp(prefix="espalier_board_"))
    try:
        from pynq.pl_server.device import Device

        from espalier_sim.board.device import SimulatedBoard
    except ImportError as error:
        raise DeviceError(
            f"the simulated board needs PYNQ, which cannot be imported ({error}):"
            " PYNQ_REMOTE=1 pip install pynq"
        ) from error
    if not isinstance(Device.active_device, SimulatedBoard):
        raise DeviceError(
            "PYNQ has chosen its device already: start the script with python -m espalier_sim.board"
        )
