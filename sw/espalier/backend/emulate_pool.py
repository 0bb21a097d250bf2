"""The pool unit for the emulator, step by step as the patterns of a descriptor say."""

from __future__ import annotations

from collections.abc import Callable
from typing import NoReturn

import numpy as np
import numpy.typing as npt

from espalier.arch.operators import WORD_TAPS
from espalier.backend.decode import Descriptor

Bytes = npt.NDArray[np.uint8]
IntArray = npt.NDArray[np.int64]
Fail = Callable[[str], NoReturn]


def frame(fields: dict[str, int], pixels: Bytes, size: int) -> tuple[Bytes, int]:
    """Surround uint8[C, tiles_y * T, tiles_x * T] by the pad value; also returns by how many pixels.

    Tiles outside the map read as the pad value; 12 tiles are further than any pattern and tap reach.
    """
    border = 12 * size
    far = border + size * (fields["stride"] * max(fields["out_tiles_y"], fields["out_tiles_x"]) + 2)
    framed = np.full((pixels.shape[0], border + far, border + far), fields["in_pad"], np.uint8)
    rows, columns = min(pixels.shape[1], far), min(pixels.shape[2], far)
    framed[:, border : border + rows, border : border + columns] = pixels[:, :rows, :columns]
    return framed, border


def pool_tiles(step: Descriptor, pixels: Bytes, tiles: IntArray, size: int, fail: Fail) -> IntArray:
    """Largest pixels of every output pixel, or with `reduce` the sum of the map: int64[C, tiles, T*T].

    pixels: uint8[C, tiles_y * T, tiles_x * T], the whole input; tiles: numbers of output tiles.
    """
    fields = step.fields
    framed, border = frame(fields, pixels, size)
    tile_y, tile_x = np.divmod(tiles, fields["out_tiles_x"])

    def window(pattern: dict[str, int], row: int, rows: int, column: int, columns: int) -> Bytes:
        """uint8[C, tiles, rows, columns] from that row and column of the centre tile on."""
        stride = fields["stride"]
        y = (stride * tile_y + pattern["tile_dy"])[:, None] * size + row + stride * np.arange(rows)
        x = (stride * tile_x + pattern["tile_dx"])[:, None] * size + column + np.arange(columns)
        result: Bytes = framed[:, border + y[:, :, None], border + x[:, None, :]]
        return result

    if fields["reduce"]:
        total = np.zeros((len(framed), len(tiles)), np.int64)
        for pattern in step.patterns:
            if not pattern["fetch"] or pattern["row_offset"] or pattern["column_offset"]:
                fail("an average takes whole tiles")
            total += window(pattern, 0, size, 0, size).sum(axis=(2, 3), dtype=np.int64)
        return np.repeat(total[:, :, None], size * size, axis=2)
    return _maximum(step, window, (len(framed), len(tiles)), size, fail)


def _maximum(
    step: Descriptor,
    window: Callable[[dict[str, int], int, int, int, int], Bytes],
    shape: tuple[int, int],
    size: int,
    fail: Fail,
) -> IntArray:
    stride, columns = step.fields["stride"], 3 * size - 2
    largest = np.zeros((*shape, size, size), np.uint8)
    rows = np.zeros((*shape, size, columns), np.uint8)
    group: dict[str, int] | None = None  # first window of the group whose windows still come
    centre = None
    for number, pattern in enumerate(step.patterns):
        if bool(pattern["taps"]) != bool(pattern["fetch"]):
            fail(f"pattern {number}: a new window has taps, a column step none")
        if pattern["taps"]:
            if group is None:
                rows, group, centre = np.zeros_like(rows), pattern, pattern["tile_dx"]
            if pattern["tile_dx"] != centre:
                fail(f"pattern {number}: windows of a group have different columns")
            for tap in range(WORD_TAPS):
                if not pattern["taps"] >> tap & 1:
                    continue
                row = pattern["row_offset"] + stride * tap
                if row < -size or row + stride * (size - 1) > 2 * size - 1:
                    fail(f"pattern {number}: tap {tap} leaves the region")
                rows = np.maximum(rows, window(pattern, row, size, 2 - size, columns))
        else:
            taken = pattern["column_offset"] + stride * np.arange(size) - (2 - size)
            if taken[0] < 0 or taken[-1] >= columns or pattern["tile_dx"] != centre:
                fail(f"pattern {number}: columns outside the window")
            largest, group = np.maximum(largest, rows[..., taken]), None
    return largest.reshape(*shape, -1).astype(np.int64)
