"""Descriptors for tests of a branch and its parts."""

from __future__ import annotations

import numpy as np

from espalier.arch.fields import pack
from espalier.arch.program import BRANCH_FIELDS, COMMON_FIELDS, PATTERN_FIELDS, TABLE_FIELDS


def set_layer(ctx, component, common, branch):
    """Put a layer onto the ports `layer` and `branch`."""
    ctx.set(component.layer.as_value(), pack(COMMON_FIELDS, common))
    ctx.set(component.branch.as_value(), pack(BRANCH_FIELDS, branch))


async def write_memory(ctx, port, words, address=0):
    """Fill a memory through its write port."""
    for offset, word in enumerate(words):
        ctx.set(port.enable, 1)
        ctx.set(port.address, address + offset)
        ctx.set(port.data, word)
        await ctx.tick()
    ctx.set(port.enable, 0)


def pattern_words(patterns):
    """Pattern memory content."""
    return [pack(PATTERN_FIELDS, pattern) for pattern in patterns]


def table_words(entries):
    """Table memory content."""
    return [pack(TABLE_FIELDS, entry) for entry in entries]


def walk_tiles(common, branch):
    """Tiles (y, x) of a branch in order."""
    y, x = branch["tile_y0"], branch["tile_x0"]
    for number in range(1, branch["tiles"] + 1):
        yield y, x
        jumps = number % branch["run"] == 0
        y, x = (y + branch["jump_y"], x + branch["jump_x"]) if jumps else (y, x + 1)
        if x >= common["out_tiles_x"]:
            y, x = y + 1, x - common["out_tiles_x"]


def to_integer(pixels):
    """Bytes of an array in row-major order as one integer, the first lowest."""
    return int.from_bytes(np.ascontiguousarray(pixels, dtype=np.uint8).tobytes(), "little")


def to_bytes(value, shape):
    """Inverse of `to_integer`."""
    count = int(np.prod(shape))
    return np.frombuffer(int(value).to_bytes(count, "little"), dtype=np.uint8).reshape(shape)


def mask_outside(tile, y, x, common):
    """Replace the lanes of an edge tile that lie outside the map by the pad value."""
    tile = tile.copy()
    if y == common["out_tiles_y"] - 1:
        tile[common["out_rows_last"] :] = common["out_pad"]
    if x == common["out_tiles_x"] - 1:
        tile[:, common["out_columns_last"] :] = common["out_pad"]
    return tile
