"""A whole branch with its PEs against direct convolution and pooling, layer after layer."""

from __future__ import annotations

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

CONFIG = load_config("tiny")
SIZE = CONFIG.tile_size


class Memory:
    """Answers the window and residual requests of the layer that runs."""

    def __init__(self, dut, dice, lazy):
        self.dut, self.dice, self.lazy = dut, dice, lazy
        self.layer = None
        self.windows_held = 0
        self.rows_ready = 255

    def window(self, request):
        """uint8[T+3, 3T-2]; rows beyond the region are arbitrary."""
        rng = np.random.default_rng(self.dice.randrange(1 << 30))
        window = rng.integers(0, 256, (CONFIG.word_rows, CONFIG.window_columns), dtype=np.uint8)
        top, left = request.centre.tile_y * SIZE, request.centre.tile_x * SIZE
        for r in range(CONFIG.word_rows):
            row = request.row_offset + request.stride * r
            if row < 2 * SIZE:
                window[r] = [
                    pixel(self.layer, request.centre.channel, top + row, left + 2 - SIZE + x)
                    for x in range(CONFIG.window_columns)
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
                    residual_tile(self.layer, SIZE, request.tile_y, request.tile_x, request.channel)
                )


async def load_streams(ctx, dut, layers):
    """Streams of all CONV layers, and the tables one after the other."""
    for pe in range(CONFIG.pes_per_branch):
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
    for position, tile in writes:
        accepted = False
        while not accepted:
            ctx.set(dut.write.ready, dice.random() >= lazy)
            _, _, valid, ready, payload, done = await ctx.tick().sample(
                dut.write.valid, dut.write.ready, dut.write.payload, dut.done
            )
            accepted = valid and ready
            assert not done
        address = payload.address
        assert (address.tile_y, address.tile_x, address.channel) == position
        np.testing.assert_array_equal(to_bytes(payload.data, (SIZE, SIZE)), tile)
    ctx.set(dut.write.ready, 0)


async def run_layer(ctx, dut, memory, layer, dice, lazy):
    memory.layer = layer
    await write_memory(ctx, dut.pattern_write, pattern_words(layer.patterns))
    set_layer(ctx, dut, layer.common, layer.branch)
    assert ctx.get(dut.done)
    ctx.set(dut.start, 1)
    await ctx.tick()
    ctx.set(dut.start, 0)
    assert ctx.get(dut.done) == (layer.branch["tiles"] == 0)
    if layer.branch["tiles"]:
        await check_writes(ctx, dut, expected_writes(CONFIG, layer), dice, lazy)
    await ctx.tick().repeat(4)
    assert ctx.get(dut.done)
    for _ in range(dice.randrange(8)):
        await ctx.tick()


def run_layers(layers, lazy, seed, restarts=1):
    dut = Branch(CONFIG)
    dice = generator(seed)
    memory = Memory(dut, generator(seed + 1), lazy)

    async def testbench(ctx):
        await load_streams(ctx, dut, layers)
        for _ in range(restarts):
            ctx.set(dut.restart, 1)
            await ctx.tick()
            ctx.set(dut.restart, 0)
            await ctx.tick().repeat(3)
            for layer in layers:
                await run_layer(ctx, dut, memory, layer, dice, lazy)

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


def conv_layer(rng, stride=1, **options):
    layer = random_geometry(rng, CONFIG, Opcode.CONV, stride, **options)
    add_filters(rng, CONFIG, layer)
    return layer


def pool_layer(rng, stride, average):
    layer = random_geometry(rng, CONFIG, Opcode.POOL, stride, average=average)
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
