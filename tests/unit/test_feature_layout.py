import numpy as np
import pytest

from espalier.arch.config import load_config
from espalier.arch.feature_layout import (
    pack_tiles,
    tensor_pitch,
    tensor_words,
    tile_pixels,
    tile_position,
    tile_positions,
    tile_words,
    unpack_tiles,
)


@pytest.mark.parametrize(("tiles_y", "tiles_x", "channels"), [(1, 1, 5), (3, 3, 2), (4, 7, 3), (5, 2, 1)])
def test_tiles_have_distinct_positions_inside_the_tensor(tiles_y, tiles_x, channels):
    base = 11
    seen = {
        tile_position(base, tensor_pitch(tiles_x), channels, y, x, c)
        for y in range(tiles_y)
        for x in range(tiles_x)
        for c in range(channels)
    }
    assert len(seen) == tiles_y * tiles_x * channels
    words = [word for _, word in seen]
    assert min(words) == base
    assert max(words) == base + tensor_words(tiles_y, tiles_x, channels) - 1
    bank, word = tile_positions(base, tensor_pitch(tiles_x), channels, tiles_y, tiles_x)
    assert bank.shape == word.shape == (tiles_y, tiles_x, channels)
    assert set(zip(bank.flat, word.flat, strict=True)) == seen


def test_a_neighbourhood_touches_every_bank_once():
    banks = {tile_position(0, 3, 1, y, x, 0)[0] for y in range(-1, 2) for x in range(4, 7)}
    assert banks == set(range(9))


@pytest.mark.parametrize(("height", "width"), [(1, 1), (7, 14), (9, 20)])
def test_tile_words_round_trip(height, width):
    pixels = np.random.default_rng(1).integers(0, 256, (3, height, width), dtype=np.uint8)
    words = tile_words(pixels, 7, pad=128)
    assert words.shape == (-(-height // 7), -(-width // 7), 3, 49)
    assert words[0, 0, 2, 0] == pixels[2, 0, 0]
    if height % 7:
        assert (words[-1, :, :, 42:] == 128).all()
    assert (tile_pixels(words, height, width) == pixels).all()


def test_packed_words_are_whole_beats():
    config = load_config("zcu104")
    pixels = np.random.default_rng(0).integers(0, 256, (3, 9, 15), dtype=np.uint8)
    stored = pack_tiles(pixels, config, 113)
    words = stored.reshape(2, 3, 3, 64)
    assert not words[..., 49:].any()
    assert words[1, 2, 0, 48] == 113
    assert np.array_equal(unpack_tiles(stored, (3, 9, 15), 64, 7), pixels)


def test_vectors_are_unpacked_from_one_beat_a_word():
    pixels = np.arange(5, dtype=np.uint8).reshape(5, 1, 1)
    stored = tile_words(pixels, 7, 0)[..., :16].reshape(-1)
    assert np.array_equal(unpack_tiles(stored, (5, 1, 1), 16, 7), pixels)
