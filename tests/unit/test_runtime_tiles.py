"""Tensors straight into tiles and out of them, against the layout's own functions."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from espalier.arch.config import load_config
from espalier.arch.feature_layout import pack_tiles, tile_counts
from espalier.backend.image import TensorInfo
from espalier.errors import TensorError
from espalier.runtime.tiles import TileBuffer

CONFIGS = {size: name for name, size in (("tiny", 4), ("zcu104", 7))}


def info(channels, height, width, size, pad=0, word_bytes=None, offset=0):
    tiles_y, tiles_x = tile_counts(height, width, size)
    word_bytes = word_bytes or -(-size * size // 16) * 16
    return TensorInfo("t", channels, height, width, 1.0, 0, 0, 1, tiles_y, tiles_x, pad, offset, word_bytes)


@settings(max_examples=60, deadline=None)
@given(
    st.integers(1, 5), st.integers(1, 23), st.integers(1, 23), st.sampled_from([4, 7]), st.integers(0, 255)
)
def test_written_as_the_compiler_lays_it_out(channels, height, width, size, pad):
    config = load_config(CONFIGS[size])
    pixels = np.random.default_rng(height).integers(0, 256, (channels, height, width), dtype=np.uint8)
    tensor = info(channels, height, width, size, pad)
    memory = np.full(tensor.ddr_bytes, 0xA5, np.uint8)
    buffer = TileBuffer(memory, tensor, size)
    buffer.clear()
    buffer.write(pixels[:, ::-1, ::-1])  # another picture before leaves nothing behind
    buffer.write(pixels)
    assert np.array_equal(memory, pack_tiles(pixels, config, pad))
    assert np.array_equal(buffer.read(), pixels)
    assert np.array_equal(buffer.read(), tensor.stored(memory, size))


@pytest.mark.parametrize("size", [4, 7])
def test_words_shorter_than_a_tile(size):
    tensor = info(9, 1, 1, size, word_bytes=16, offset=32)
    memory = np.arange(32 + tensor.ddr_bytes, dtype=np.uint8)
    found = TileBuffer(memory, tensor, size).read()
    assert np.array_equal(found, tensor.stored(memory, size)) and found.shape == (9, 1, 1)


def test_a_read_is_a_copy():
    tensor = info(2, 5, 5, 4)
    memory = np.zeros(tensor.ddr_bytes, np.uint8)
    buffer = TileBuffer(memory, tensor, 4)
    found = buffer.read()
    memory[:] = 1
    assert not found.any()


@pytest.mark.parametrize(
    ("pixels", "message"),
    [
        ([1, 2], "must be a NumPy array uint8"),
        (np.zeros((2, 5, 5)), r"float64\[2, 5, 5\], the network takes uint8\[2, 5, 5\]"),
        (np.zeros((5, 5, 2), np.uint8), r"uint8\[5, 5, 2\], the network takes uint8\[2, 5, 5\]"),
    ],
)
def test_other_arrays_are_refused(pixels, message):
    tensor = info(2, 5, 5, 4)
    buffer = TileBuffer(np.zeros(tensor.ddr_bytes, np.uint8), tensor, 4)
    with pytest.raises(TensorError, match=message):
        buffer.write(pixels)
