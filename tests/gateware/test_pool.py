"""Pool unit against its model and NumPy: shapes, edge tiles, several layers, random stalls on all sides."""

from __future__ import annotations

import dataclasses
import itertools

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from layers import walk_tiles
from pool_layers import average_layer, check_words, max_layer, offer_layers, window_memory
from stalling import generator, simulate

from espalier.arch.config import load_config
from espalier.backend.geometry import pool_geometry
from espalier.errors import CapacityError
from espalier.ir.graph import Requantisation
from espalier.numerics.requantisation import requantise
from espalier_hw.pool_average import PoolAverage
from espalier_hw.pool_unit import PoolUnit

# kernel, stride, pads
SHAPES = [
    ((3, 3), 2, (1, 1)),
    ((2, 2), 2, (0, 0)),
    ((3, 3), 1, (1, 1)),
    ((1, 1), 1, (0, 0)),
    ((1, 1), 2, (0, 0)),
    ((5, 5), 1, (2, 2)),
    ((5, 4), 2, (1, 2)),
    ((2, 6), 1, (0, 3)),
    ((9, 2), 1, (4, 0)),
]


def run_layers(config, layers, lazy, seed=1):
    """Simulate all layers back to back; returns the cycles between first and last word of each."""
    dut = PoolUnit(config)
    spans = []

    async def sequencer(ctx):
        await offer_layers(ctx, dut, layers)

    async def memory(ctx):
        for layer in layers:
            spans.append(await check_words(ctx, dut, config, layer, generator(seed + len(spans)), lazy))
        for _ in range(10):
            await ctx.tick()
            assert not ctx.get(dut.write.valid)
        assert ctx.get(dut.idle)

    background = [window_memory(dut, config, layers, generator(seed + 100), lazy)]
    simulate(dut, sequencer, memory, background=background, cycles=20_000)
    return spans


def assemble(config, layer, result):
    """Check the model's words against the whole map."""
    size = config.tile_size
    for (tile_y, tile_x, channel), tile in layer.words(config):
        rows, columns = (slice(size * t, size * (t + 1)) for t in (tile_y, tile_x))
        wanted = result[channel, rows, columns]
        np.testing.assert_array_equal(tile[: wanted.shape[0], : wanted.shape[1]], wanted)
        assert (tile[wanted.shape[0] :] == layer.common["out_pad"]).all()
        assert (tile[:, wanted.shape[1] :] == layer.common["out_pad"]).all()


@pytest.mark.parametrize("lazy", [0.0, 0.4])
def test_all_shapes_back_to_back(lazy):
    config, rng = load_config("tiny"), np.random.default_rng(1)
    layers = []
    for kernel, stride, pads in SHAPES:
        shape = tuple(int(extent) for extent in rng.integers(9, 18, 2))
        layer, result = max_layer(rng, config, kernel, stride, pads, shape, int(rng.integers(1, 4)))
        assemble(config, layer, result)
        layers += [layer, average_layer(rng, config, shape, 3)]
    run_layers(config, layers, lazy)


@pytest.mark.parametrize("lazy", [0.0, 0.4])
def test_tiles_of_seven(lazy):
    config, rng = load_config("zcu104"), np.random.default_rng(2)
    layers = []
    for kernel, stride, pads in [((3, 3), 2, (1, 1)), ((5, 5), 1, (2, 2))]:
        layer, result = max_layer(rng, config, kernel, stride, pads, (15, 17), 2)
        assemble(config, layer, result)
        layers += [layer, average_layer(rng, config, (7, 7), 5), average_layer(rng, config, (13, 8), 3)]
    run_layers(config, layers, lazy)


def test_layer_without_tiles_is_passed_over():
    config, rng = load_config("tiny"), np.random.default_rng(3)
    layers = [max_layer(rng, config, (2, 2), 2, (0, 0), (8, 8), 2)[0] for _ in range(3)]
    layers[1].branch["tiles"] = 0
    dut = PoolUnit(config)

    async def sequencer(ctx):
        await offer_layers(ctx, dut, layers)

    async def memory(ctx):
        for layer in (layers[0], layers[2]):
            await check_words(ctx, dut, config, layer, generator(4), 0.2)

    background = [window_memory(dut, config, layers, generator(5), 0.2)]
    simulate(dut, sequencer, memory, background=background, cycles=5_000)


def test_the_next_layer_waits_until_the_last_word_is_in_the_memory():
    config, rng = load_config("tiny"), np.random.default_rng(5)
    layers = [average_layer(rng, config, (4, 4), 2) for _ in range(2)]
    dut = PoolUnit(config)
    complete = dut.progress[config.branches].complete

    async def sequencer(ctx):
        await offer_layers(ctx, dut, layers)

    async def memory(ctx):
        await ctx.tick()
        ctx.set(complete, 0)
        await check_words(ctx, dut, config, layers[0], generator(4), 0.0)
        for _ in range(50):
            await ctx.tick()
        assert ctx.get(dut.pending)
        ctx.set(complete, 1)
        await check_words(ctx, dut, config, layers[1], generator(4), 0.0)

    background = [window_memory(dut, config, layers, generator(5), 0.0)]
    simulate(dut, sequencer, memory, background=background, cycles=2_000)


@pytest.mark.parametrize(
    ("kernel", "pads", "cycles"), [((3, 3), (1, 1), 3), ((2, 2), (0, 0), 2), ((1, 1), (0, 0), 2)]
)
def test_cycles_of_a_tile(kernel, pads, cycles):
    config, rng = load_config("tiny"), np.random.default_rng(6)
    config = dataclasses.replace(config, window_fifo_depth=32)
    layer, _ = max_layer(rng, config, kernel, 2, pads, (16, 16), 12)
    words = len(list(walk_tiles(layer.common, layer.branch))) * 12
    assert run_layers(config, [layer], 0.0) == [cycles * (words - 1)]


def test_an_average_every_other_cycle():
    config, rng = load_config("tiny"), np.random.default_rng(7)
    config = dataclasses.replace(config, window_fifo_depth=32)
    assert run_layers(config, [average_layer(rng, config, (4, 4), 40)], 0.0) == [2 * 39]


@settings(deadline=None, max_examples=60)
@given(
    kernel=st.tuples(st.integers(1, 9), st.integers(1, 9)),
    stride=st.integers(1, 2),
    pads=st.tuples(st.integers(0, 4), st.integers(0, 4)),
    size=st.integers(4, 8),
    seed=st.integers(0, 1 << 16),
)
def test_patterns_of_max_pooling(kernel, stride, pads, size, seed):
    config, rng = dataclasses.replace(load_config("tiny"), tile_size=size), np.random.default_rng(seed)
    pads = tuple(min(pad, extent - 1) for pad, extent in zip(pads, kernel, strict=True))
    layer, result = max_layer(rng, config, kernel, stride, pads, (12, 11), 1)
    assemble(config, layer, result)
    patterns = layer.patterns
    for before, pattern in itertools.pairwise(patterns):
        if not pattern["fetch"]:
            assert [pattern[n] for n in ("tile_dy", "tile_dx", "row_offset")] == [
                before[n] for n in ("tile_dy", "tile_dx", "row_offset")
            ]
        assert bool(pattern["taps"]) == pattern["fetch"]


def test_steps_of_a_3x3_window_with_stride_2():
    patterns = pool_geometry((3, 3), 2, (1, 1), 7, "layer").patterns
    assert [(p.fetch, p.taps.bit_count()) for p in patterns] == [(True, 2), (True, 1)] + [(False, 0)] * 3


def test_a_window_with_too_many_patterns_is_refused():
    with pytest.raises(CapacityError, match="'pool5'"):
        pool_geometry((15, 70), 1, (0, 0), 7, "'pool5'")


def test_average_agrees_with_the_software():
    rng = np.random.default_rng(8)
    for _ in range(200):
        total = int(rng.integers(0, 64 * 64 * 255))
        bias, multiplier = int(rng.integers(-(1 << 20), 1 << 20)), int(rng.integers(0, 1 << 17))
        shift, zero = int(rng.integers(4)), int(rng.integers(256))
        numbers = Requantisation(*(np.array([value]) for value in (multiplier, shift, bias)))
        software = requantise(np.array([[total]]), numbers, zero)
        assert PoolAverage.model(total, bias, multiplier, shift, zero) == software[0, 0]
