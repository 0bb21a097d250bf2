"""Tensors in buffers: pixels go straight into the accelerator's tiles and come straight out of them."""

from __future__ import annotations

from collections.abc import Iterator

import numpy as np
import numpy.typing as npt

from espalier.backend.image import TensorInfo
from espalier.errors import TensorError

Bytes = npt.NDArray[np.uint8]


class TileBuffer:
    """A tensor inside a buffer of tile words (order tile row, tile column, channel), copied once per access.

    memory: uint8[bytes], the host's copy of the whole buffer. Lanes that no pixel lies in are written when
    this is made: with the pad value outside the map, with zero behind the tile.
    """

    def __init__(self, memory: Bytes, info: TensorInfo, tile_size: int) -> None:
        self.info, self._size = info, tile_size
        self.shape = info.channels, info.height, info.width
        own = memory[info.dram_offset :][: info.ddr_bytes]
        self._words = own.reshape(info.tiles_y, info.tiles_x, info.channels, info.ddr_word_bytes)
        # A map inside one tile may have words that are shorter than a tile.
        self._whole = info.ddr_word_bytes >= tile_size**2
        if self._whole:
            lanes = self._words[..., : tile_size**2]
            tiles = lanes.reshape(info.tiles_y, info.tiles_x, info.channels, tile_size, tile_size)
            self._tiles = tiles.transpose(2, 0, 3, 1, 4)
        else:
            assert self._words.shape[:2] == (1, 1), "words of maps of several tiles are whole"
            self._lanes = np.arange(info.height)[:, None] * tile_size + np.arange(info.width)

    def clear(self) -> None:
        """Write all lanes that no pixel lies in."""
        self._words[...] = 0
        self._words[..., : self._size**2] = self.info.pad

    def write(self, pixels: Bytes) -> None:
        """Copy uint8[channels, height, width] in.

        Raises:
            TensorError: another type or shape.

        """
        check_tensor(pixels, self.shape, self.info.name)
        if not self._whole:
            self._words[0, 0][:, self._lanes] = pixels
            return
        for tile, pixel, shape in self._parts():
            self._tiles[tile] = pixels[pixel].reshape(shape)  # views on both sides: one copy

    def read(self) -> Bytes:
        """Copy uint8[channels, height, width] out."""
        pixels = np.empty(self.shape, np.uint8)
        if not self._whole:
            pixels[...] = self._words[0, 0][:, self._lanes]
            return pixels
        for tile, pixel, shape in self._parts():
            pixels[pixel].reshape(shape)[...] = self._tiles[tile]  # a view of `pixels`
        return pixels

    def _parts(self) -> Iterator[tuple[tuple[slice, ...], tuple[slice, ...], tuple[int, ...]]]:
        """Whole tiles and those cut by the lower and right edge: their tiles, pixels, and shape as tiles."""
        every = slice(None)
        for tiles_y, rows, pixels_y in _spans(self.info.height, self._size):
            for tiles_x, columns, pixels_x in _spans(self.info.width, self._size):
                shape = (
                    self.info.channels,
                    tiles_y.stop - tiles_y.start,
                    rows.stop,
                    tiles_x.stop - tiles_x.start,
                    columns.stop,
                )
                yield (every, tiles_y, rows, tiles_x, columns), (every, pixels_y, pixels_x), shape


def _spans(length: int, size: int) -> list[tuple[slice, slice, slice]]:
    """Cut a side into whole tiles and the rest: tiles, lanes of each, pixels."""
    whole, rest = divmod(length, size)
    spans = [(slice(0, whole), slice(0, size), slice(0, whole * size))] if whole else []
    if rest:
        spans.append((slice(whole, whole + 1), slice(0, rest), slice(whole * size, length)))
    return spans


def check_tensor(pixels: object, shape: tuple[int, int, int], name: str) -> None:
    """Raise TensorError unless `pixels` is an array uint8 of that shape."""
    if not isinstance(pixels, np.ndarray):
        raise TensorError(
            f"tensor '{name}' must be a NumPy array uint8{list(shape)}, not {type(pixels).__name__}"
        )
    if pixels.dtype != np.uint8 or pixels.shape != shape:
        raise TensorError(
            f"tensor '{name}' is {pixels.dtype}{list(pixels.shape)}, the network takes uint8{list(shape)}"
            " (channels, height, width) of stored values; `prepare` makes them from a picture"
        )
