"""A whole branch with its PEs against direct convolution and pooling, layer after layer."""

from __future__ import annotations

import dataclasses

import numpy as np
import pytest
from layers import pattern_words, set_layer, table_words, to_bytes, to_integer, write_memory
from random_layers import (
    add_filters,
    expected_writes,
    pixel,
    random_geometry,
    residual_tile,
    stream_words,
)
from stalling import generator, simulate

from espalier.arch.config import load_config
from espalier.arch.program import Opcode
from espalier_hw.branch import Branch

TINY = load_config("tiny")
# The tile and the beats of the large configuration, with two PEs.
LARGE_TILE = dataclasses.replace(
    load_config("zcu104"), pes_per_branch=2, stream_depth_words=1024, table_depth_words=256
)


class Memory:
    """Answers the window and residual requests of the layer that runs."""

    def __init__(self, dut, dice, lazy):
        self.dut, self.dice, self.lazy, self.config = dut, dice, lazy, dut.config
        self.layer = None
        self.rows_ready = 255

    def window(self, request):
        """uint8[T+3, 3T-2]; rows beyond the region are arbitrary."""
        config, size = self.config, self.config.tile_size
        rng = np.random.default_rng(self.dice.randrange(1 << 30))
        window = rng.integers(0, 256, (config.word_rows, config.window_columns), dtype=np.uint8)
        top, left = request.centre.tile_y * size, request.centre.tile_x * size
        for r in range(config.word_rows):
            row = request.row_offset + request.stride * r
            if row < 2 * size:
                window[r] = [
                    pixel(self.layer, request.centre.channel, top + row, left + 2 - size + x)
                    for x in range(config.window_columns)
                ]
        return window

    def check(self, request):
        common = self.layer.common
        centre = request.centre
        assert (centre.base, centre.pitch, centre.channels) == tuple(
            common[name] for name in ("in_base", "in_pitch", "in_channels")
        )
        assert (request.tiles_y, request.tiles_x) == (common["in_tiles_y"], common["in_tiles_x"])
        assert request.pad == common["in_pad"]
        if common.get("wait_load"):
            assert self.rows_ready > max(0, min(centre.tile_y + 1, common["in_tiles_y"] - 1))

    async def windows(self, ctx):
        dut, pending, cycle = self.dut, [], 0
        while True:
            ctx.set(dut.window_request.ready, self.dice.random() >= self.lazy)
            ctx.set(dut.window_valid, 0)
            ctx.set(dut.rows_ready, self.rows_ready)
            if pending and pending[0][0] <= cycle and self.dice.random() >= self.lazy:
                ctx.set(dut.window_valid, 1)
                ctx.set(dut.window_data, to_integer(pending.pop(0)[1]))
            _, _, valid, ready, request = await ctx.tick().sample(
                dut.window_request.valid, dut.window_request.ready, dut.window_request.payload
            )
            cycle += 1
            if valid and ready:
                self.check(request)
                pending.append((cycle + 3, self.window(request)))

    async def residuals(self, ctx):
        dut, pending = self.dut, []
        while True:
            ctx.set(dut.residual_request.ready, self.dice.random() >= self.lazy)
            ctx.set(dut.residual_valid, 0)
            if pending and self.dice.random() >= self.lazy:
                ctx.set(dut.residual_valid, 1)
                ctx.set(dut.residual_data, to_integer(pending.pop(0)))
            _, _, valid, ready, request = await ctx.tick().sample(
                dut.residual_request.valid, dut.residual_request.ready, dut.residual_request.payload
            )
            if valid and ready:
                assert request.base == self.layer.common["residual_base"]
                pending.append(
                    residual_tile(
                        self.layer, self.config.tile_size, request.tile_y, request.tile_x, request.channel
                    )
                )


async def load_streams(ctx, dut, layers):
    """Streams of all CONV layers, and the tables one after the other."""
    for pe in range(dut.config.pes_per_branch):
        words = [
            word
            for layer in layers
            if layer.common["opcode"] == Opcode.CONV
            for word in stream_words(layer, pe)
        ]
        ctx.set(dut.stream_write_pe, pe)
        await write_memory(ctx, dut.stream_write, words)
    base = 0
    for layer in layers:
        layer.branch["table_base"] = base
        await write_memory(ctx, dut.table_write, table_words(layer.entries), base)
        base += len(layer.entries)


async def check_writes(ctx, dut, writes, dice, lazy):
    """Compare all words written; returns the cycles that took."""
    cycles = 0
    for position, tile in writes:
        accepted = False
        while not accepted:
            ctx.set(dut.write.ready, dice.random() >= lazy)
            _, _, valid, ready, payload, done = await ctx.tick().sample(
                dut.write.valid, dut.write.ready, dut.write.payload, dut.done
            )
            accepted = valid and ready
            cycles += 1
            assert not done
        address = payload.address
        assert (address.tile_y, address.tile_x, address.channel) == position
        np.testing.assert_array_equal(to_bytes(payload.data, tile.shape), tile)
    ctx.set(dut.write.ready, 0)
    return cycles


async def run_layer(ctx, dut, memory, layer, dice, lazy):
    memory.layer = layer
    await write_memory(ctx, dut.pattern_write, pattern_words(layer.patterns))
    set_layer(ctx, dut, layer.common, layer.branch)
    assert ctx.get(dut.done)
    ctx.set(dut.start, 1)
    await ctx.tick()
    ctx.set(dut.start, 0)
    assert ctx.get(dut.done) == (layer.branch["tiles"] == 0)
    cycles = 0
    if layer.branch["tiles"]:
        cycles = await check_writes(ctx, dut, expected_writes(dut.config, layer), dice, lazy)
    await ctx.tick().repeat(4)
    assert ctx.get(dut.done)
    for _ in range(dice.randrange(8)):
        await ctx.tick()
    return cycles


def run_layers(layers, lazy, seed, restarts=1, config=TINY):
    dut = Branch(config)
    dice = generator(seed)
    memory = Memory(dut, generator(seed + 1), lazy)
    cycles = []

    async def testbench(ctx):
        await load_streams(ctx, dut, layers)
        for _ in range(restarts):
            ctx.set(dut.restart, 1)
            await ctx.tick()
            ctx.set(dut.restart, 0)
            await ctx.tick().repeat(3)
            for layer in layers:
                cycles.append(await run_layer(ctx, dut, memory, layer, dice, lazy))

    async def deliver_rows(ctx):
        while True:
            for _ in range(25):
                await ctx.tick()
            waits = memory.layer is not None and memory.layer.common.get("wait_load")
            memory.rows_ready = (
                memory.rows_ready + 1 if waits and memory.rows_ready < 255 else memory.rows_ready
            )

    for layer in layers[:1]:
        if layer.common.get("wait_load"):
            memory.rows_ready = 0
    simulate(dut, testbench, background=[memory.windows, memory.residuals, deliver_rows], cycles=60_000)
    return cycles[0]


def conv_layer(rng, stride=1, config=TINY, **options):
    layer = random_geometry(rng, config, Opcode.CONV, stride, **options)
    add_filters(rng, config, layer)
    return layer


def pool_layer(rng, stride, average, config=TINY):
    layer = random_geometry(rng, config, Opcode.POOL, stride, average=average)
    layer.entries = [
        {"multiplier": 1 << 16, "shift": 1, "bias": 0, "first": 1, "last": 1, "end_of_pass": 1, "pe": 1}
    ]
    layer.branch["table_entries"] = 1
    return layer


@pytest.mark.parametrize("lazy", [0.0, 0.5])
@pytest.mark.parametrize("seed", range(3))
def test_convolutions_one_after_the_other(seed, lazy):
    rng = np.random.default_rng(seed)
    layers = [conv_layer(rng, stride=1), conv_layer(rng, stride=2, residual=1), conv_layer(rng, residual=1)]
    run_layers(layers, lazy, seed, restarts=2 if seed == 0 else 1)


@pytest.mark.parametrize("seed", range(2))
def test_pooling_between_convolutions(seed):
    rng = np.random.default_rng(20 + seed)
    layers = [
        pool_layer(rng, 2, 0),
        conv_layer(rng),
        pool_layer(rng, 1, 1),
        conv_layer(rng, tiles=0),
        conv_layer(rng, residual=1),
    ]
    run_layers(layers, 0.3, seed)


def test_windows_wait_for_the_rows_of_a_load():
    rng = np.random.default_rng(40)
    layer = conv_layer(rng, stride=2)
    layer.common["wait_load"] = 1
    run_layers([layer], 0.2, 40)


@pytest.mark.slow
def test_tiles_of_seven_pixels():
    rng = np.random.default_rng(50)
    layers = [
        conv_layer(rng, stride=2, config=LARGE_TILE, residual=1),
        pool_layer(rng, 2, 0, config=LARGE_TILE),
        conv_layer(rng, config=LARGE_TILE),
    ]
    run_layers(layers, 0.2, 50, config=LARGE_TILE)


def test_a_word_every_cycle():
    """Words of a layer with one window each keep pace with PEs that have one operator for each."""
    rng = np.random.default_rng(60)
    layer = random_geometry(rng, TINY, Opcode.CONV, 1)
    pattern = {"tile_dy": 0, "tile_dx": 0, "row_offset": 0, "column_offset": 0, "taps": 1, "fetch": 1}
    layer.patterns = [pattern]
    channels = 64
    layer.tensor = rng.integers(0, 256, (channels, *layer.tensor.shape[1:]), dtype=np.uint8)
    layer.common |= {"pattern_count": 1, "passes": 1, "block_words": 8, "blocks": channels // 8}
    layer.common["in_channels"] = channels
    layer.branch |= {"channel0": 0, "channels": channels}
    layer.operators = [[[[[(1, slot, 0) for slot in range(8)]] * (channels // 8)]] for _ in range(3)]
    layer.entries = [
        {"multiplier": 4096, "shift": 1, "pe": pe, "out_channel": pe, "first": 1, "last": 1, "high_digit": 0}
        for pe in range(3)
    ]
    for entry in layer.entries:
        entry["end_of_pass"] = int(entry["pe"] == 2)
    layer.branch["table_entries"] = 3
    config = dataclasses.replace(TINY, window_fifo_depth=16)
    cycles = run_layers([layer], 0.0, 60, config=config)
    words = channels * layer.branch["tiles"]
    assert words <= cycles < words + 60
