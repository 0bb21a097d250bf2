"""Which tiles and tile rows descriptors name, for the emulator."""

from __future__ import annotations

import numpy as np
import numpy.typing as npt

from espalier.arch.operators import WORD_TAPS
from espalier.arch.program import POOL_BRANCH, Opcode
from espalier.backend.decode import Descriptor, tile_walk

IntArray = npt.NDArray[np.int64]


def tiles_of(fields: dict[str, int], branch: dict[str, int]) -> IntArray:
    """Tile numbers (row * out_tiles_x + column) that a branch walks."""
    y, x = tile_walk(branch, fields["out_tiles_x"])
    return y * fields["out_tiles_x"] + x


def rows_written(step: Descriptor) -> slice:
    """Tile rows that a CONV or POOL writes."""
    own = step.branches if step.opcode == Opcode.CONV else [step.branches[POOL_BRANCH]]
    rows = np.concatenate([tile_walk(branch, step.fields["out_tiles_x"])[0] for branch in own])
    return slice(int(rows.min()), int(rows.max()) + 1)


def rows_read(step: Descriptor, rows: slice, size: int) -> slice:
    """Tile rows of the input that a CONV or POOL needs for the tile rows that it writes."""
    stride, count = step.fields["stride"], step.fields["in_tiles_y"]
    first, last = count, -1
    for pattern in step.patterns:
        taps = [tap for tap in range(WORD_TAPS) if pattern["taps"] >> tap & 1]
        if taps:
            top = (pattern["row_offset"] + stride * taps[0]) // size
            bottom = (pattern["row_offset"] + stride * (taps[-1] + size - 1)) // size
            first = min(first, stride * rows.start + pattern["tile_dy"] + top)
            last = max(last, stride * (rows.stop - 1) + pattern["tile_dy"] + bottom)
    return slice(min(max(first, 0), count), min(max(last + 1, 0), count))


def first_row(step: Descriptor) -> int:
    """First tile row that a LOAD or STORE moves."""
    return step.branches[POOL_BRANCH]["tile_y0"]


def residual_fields(fields: dict[str, int]) -> dict[str, int]:
    """Descriptor fields with the shape of the residual tensor, which is the output's."""
    shape = ("channels", "tiles_y", "tiles_x")
    return {**fields, **{f"residual_{name}": fields[f"out_{name}"] for name in shape}}
