"""Placeholder bitstreams with their hardware descriptions."""

from __future__ import annotations

import dataclasses
import hashlib
import struct
from pathlib import Path

from espalier.arch.config import HardwareConfig
from espalier.runtime.placeholder import PLACEHOLDER_MAGIC, encode_manifest, swap_words
from espalier_sim.board.boards import Board
from espalier_sim.board.hwh import hardware_description

_PREAMBLE = struct.pack(">H", 9) + bytes.fromhex("0ff00ff00ff00ff000") + struct.pack(">H", 1)


def write_board_files(folder: Path, config: HardwareConfig, board: Board) -> Path:
    """Write espalier_NAME_simulation.bit and .hwh for a configuration; return the path of the .bit."""
    folder.mkdir(parents=True, exist_ok=True)
    path = folder / f"espalier_{config.name}_simulation.bit"
    description = hardware_description(config, board)
    path.with_suffix(".hwh").write_bytes(description)
    path.write_bytes(placeholder(config, board, description))
    return path


def placeholder(config: HardwareConfig, board: Board, description: bytes) -> bytes:
    """Return a .bit with a valid header and a manifest in place of configuration data.

    The part's name is none that a programmer knows. PYNQ keeps what it has read of a .hwh under the hash of
    the .bit alone, so that the .bit holds the hash of the .hwh.
    """
    manifest = {
        "board": board.name,
        "config": dataclasses.asdict(config),
        "hwh": hashlib.sha256(description).hexdigest(),
    }
    payload = swap_words(encode_manifest(manifest))
    mark = PLACEHOLDER_MAGIC.decode()
    header = _PREAMBLE
    fields = {
        "a": f"espalier_{config.name};{mark}",
        "b": f"{mark}:{board.part}",
        "c": "2026/01/01",
        "d": "00:00:00",
    }
    for tag, text in fields.items():
        header += tag.encode() + struct.pack(">H", len(text) + 1) + text.encode() + b"\0"
    return header + b"e" + struct.pack(">I", len(payload)) + payload
