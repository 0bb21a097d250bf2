"""Where the tiles of a tensor lie in the feature memory, and tensors as tile words."""

from __future__ import annotations

from typing import TypeVar

import numpy as np
from numpy.typing import NDArray

from espalier.arch.config import HardwareConfig

# Banks along one side of the 3x3 neighbourhood that one read returns.
BANK_SIDE = 3
BANKS = BANK_SIDE * BANK_SIDE

# One coordinate, or an array of them.
Index = TypeVar("Index", int, NDArray[np.int64])


def tile_counts(height: int, width: int, tile_size: int) -> tuple[int, int]:
    """Tile rows and tile columns that cover a map."""
    return -(-height // tile_size), -(-width // tile_size)


def tensor_pitch(tiles_x: int) -> int:
    """Tile columns of a tensor that share a bank: the distance of two of its rows, before channels."""
    return -(-tiles_x // BANK_SIDE)


def tensor_words(tiles_y: int, tiles_x: int, channels: int) -> int:
    """Words that a tensor takes in every one of the nine banks."""
    return -(-tiles_y // BANK_SIDE) * tensor_pitch(tiles_x) * channels


def tile_position(
    base: int, pitch: int, channels: int, tile_y: Index, tile_x: Index, channel: Index, ring: int = 0
) -> tuple[Index, Index]:
    """Bank (0..8) and word of one tile of one channel.

    `base` is the tensor's first word in every bank, `pitch` is `tensor_pitch(tiles_x)`. Tiles outside the
    map have positions too (rounding towards minus infinity); what is read there is never used. ring: words in
    every bank that the tensor goes round in, a power of two, 0 if it does not: then words that are a multiple
    of `ring` apart are the same one, in the aligned block of memory that `base` lies in.
    """
    bank = tile_y % BANK_SIDE * BANK_SIDE + tile_x % BANK_SIDE
    row, column = tile_y // BANK_SIDE, tile_x // BANK_SIDE
    word = base + (row * pitch + column) * channels + channel
    return bank, base - base % ring + word % ring if ring else word


def tile_positions(
    base: int, pitch: int, channels: int, tiles_y: int, tiles_x: int, ring: int = 0
) -> tuple[NDArray[np.int64], NDArray[np.int64]]:
    """Bank and word of every tile word of a tensor: int64[tiles_y, tiles_x, channels] each."""
    y, x, channel = np.indices((tiles_y, tiles_x, channels), np.int64)
    return tile_position(base, pitch, channels, y, x, channel, ring)


def ring_rows(tiles_x: int, channels: int, ring: int) -> int:
    """Tile rows one below the other that a ring of so many words in every bank holds at the same time."""
    return BANK_SIDE * (ring // (tensor_pitch(tiles_x) * channels))


def tile_words(pixels: NDArray[np.uint8], tile_size: int, pad: int) -> NDArray[np.uint8]:
    """Cut uint8[C, H, W] into tiles uint8[tiles_y, tiles_x, C, T*T]; lanes outside the map hold `pad`.

    Lane r*T + c of a word is pixel (r, c) of its tile. In this order the words also lie in DDR.
    """
    channels, height, width = pixels.shape
    tiles_y, tiles_x = tile_counts(height, width, tile_size)
    padded = np.full((channels, tiles_y * tile_size, tiles_x * tile_size), pad, np.uint8)
    padded[:, :height, :width] = pixels
    tiles = padded.reshape(channels, tiles_y, tile_size, tiles_x, tile_size).transpose(1, 3, 0, 2, 4)
    return np.ascontiguousarray(tiles).reshape(tiles_y, tiles_x, channels, tile_size**2)


def tile_pixels(words: NDArray[np.uint8], height: int, width: int) -> NDArray[np.uint8]:
    """Inverse of `tile_words`: uint8[tiles_y, tiles_x, C, T*T] to uint8[C, height, width]."""
    tiles_y, tiles_x, channels, lanes = words.shape
    tile_size = round(lanes**0.5)
    assert tile_size**2 == lanes, "a tile is square"
    assert (tiles_y - 1) * tile_size < height <= tiles_y * tile_size, "height belongs to another tiling"
    assert (tiles_x - 1) * tile_size < width <= tiles_x * tile_size, "width belongs to another tiling"
    tiles = words.reshape(tiles_y, tiles_x, channels, tile_size, tile_size).transpose(2, 0, 3, 1, 4)
    whole = tiles.reshape(channels, tiles_y * tile_size, tiles_x * tile_size)
    return np.ascontiguousarray(whole[:, :height, :width])


def pack_tiles(pixels: NDArray[np.uint8], config: HardwareConfig, pad: int) -> NDArray[np.uint8]:
    """Lay out uint8[C, H, W] as LOAD reads it from DDR: tile words of whole AXI beats, one-dimensional."""
    words = tile_words(pixels, config.tile_size, pad)
    padded = np.zeros((*words.shape[:3], config.word_beats * config.axi_bytes), np.uint8)
    padded[..., : words.shape[3]] = words
    return padded.reshape(-1)


def unpack_tiles(
    stored: NDArray[np.uint8], shape: tuple[int, int, int], word_bytes: int, tile_size: int
) -> NDArray[np.uint8]:
    """Pixels uint8[C, H, W] = `shape` out of what STORE has written: tile words of `word_bytes` bytes each.

    A word may hold fewer bytes than lanes, if the first of them are all that the map needs.
    """
    channels, height, width = shape
    tiles_y, tiles_x = tile_counts(height, width, tile_size)
    words = np.zeros((tiles_y, tiles_x, channels, tile_size**2), np.uint8)
    lanes = min(word_bytes, tile_size**2)
    words[..., :lanes] = stored.reshape(tiles_y, tiles_x, channels, word_bytes)[..., :lanes]
    return tile_pixels(words, height, width)
