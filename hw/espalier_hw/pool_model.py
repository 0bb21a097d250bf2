"""What the pool unit writes, in NumPy: the reference of its tests."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping

import numpy as np
import numpy.typing as npt

from espalier.arch.config import HardwareConfig
from espalier.arch.operators import WORD_TAPS
from espalier_hw.extractor import Extractor
from espalier_hw.pool_average import PoolAverage

Tile = npt.NDArray[np.uint8]
# Window uint8[T+3, 3T-2] of a channel around the centre tile (channel, tile_y, tile_x), with a row offset.
WindowSource = Callable[[int, int, int, int], Tile]


def pool_tile(
    config: HardwareConfig,
    layer: Mapping[str, int],
    patterns: Iterable[Mapping[str, int]],
    place: tuple[int, int, int],
    source: WindowSource,
) -> Tile:
    """Tile uint8[T, T] of (tile_y, tile_x, channel), nothing masked; with `reduce` its byte in all lanes."""
    size = config.tile_size
    tile_y, tile_x, channel = place
    rows = np.zeros((size, config.window_columns), np.uint8)
    tile = np.zeros((size, size), np.uint8)
    total, in_steps = 0, False
    for pattern in patterns:
        if not pattern["fetch"]:
            in_steps = True
            columns = Extractor.model(config, rows, pattern["column_offset"], layer["stride"])
            tile = np.maximum(tile, columns)
            continue
        window = source(
            channel,
            layer["stride"] * tile_y + pattern["tile_dy"],
            layer["stride"] * tile_x + pattern["tile_dx"],
            pattern["row_offset"],
        )
        total += int(window[:size, size - 2 : 2 * size - 2].sum())
        rows, in_steps = rows * np.uint8(not in_steps), False
        for tap in range(WORD_TAPS):
            if pattern["taps"] >> tap & 1:
                rows = np.maximum(rows, window[tap : tap + size])
    if layer["reduce"]:
        scale = layer["pool_bias"], layer["pool_multiplier"], layer["pool_shift"], layer["out_zero"]
        tile[:] = PoolAverage.model(total, *scale)
    return tile


def pool_words(
    config: HardwareConfig,
    layer: Mapping[str, int],
    channels: int,
    patterns: list[Mapping[str, int]],
    tiles: Iterable[tuple[int, int]],
    source: WindowSource,
) -> Iterator[tuple[tuple[int, int, int], Tile]]:
    """All words of a layer in order, each with its (tile_y, tile_x, channel); lanes outside the map padded.

    tiles: (tile_y, tile_x) in the order of the walk.
    """
    for tile_y, tile_x in tiles:
        inside = np.ones((config.tile_size, config.tile_size), np.bool_)
        if tile_y == layer["out_tiles_y"] - 1:
            inside[layer["out_rows_last"] :] = False
        if tile_x == layer["out_tiles_x"] - 1:
            inside[:, layer["out_columns_last"] :] = False
        if layer["reduce"]:
            inside[:] = False
            inside[0, 0] = True
        for channel in range(channels):
            place = tile_y, tile_x, channel
            tile = pool_tile(config, layer, patterns, place, source)
            yield place, np.where(inside, tile, np.uint8(layer["out_pad"]))
