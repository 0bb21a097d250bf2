"""A whole branch with its PEs against direct convolution, layer after layer without a pause."""

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
from espalier.arch.fields import pack
from espalier.arch.operators import HEADER_FIELDS
from espalier.arch.program import MAX_PATTERNS, Follows
from espalier_hw.branch import Branch

TINY = load_config("tiny")
DSP, LUT = 0, TINY.branches - 1
# The tile and the beats of the large configuration, with two PEs.
LARGE_TILE = dataclasses.replace(
    load_config("zcu104"), pes_per_branch=2, stream_depth_words=1024, table_depth_words=256
)


class Memory:
    """Answers window and residual requests; tensors of the layers are told apart by their base."""

    def __init__(self, dut, layers, dice, lazy):
        self.dut, self.dice, self.lazy, self.config = dut, dice, lazy, dut.config
        self.inputs = {layer.common["in_base"]: layer for layer in layers}
        self.residuals_of = {layer.common["residual_base"]: layer for layer in layers}

    def window(self, layer, request):
        """uint8[T+3, 3T-2]; rows beyond the region are arbitrary."""
        config, size = self.config, self.config.tile_size
        rng = np.random.default_rng(self.dice.randrange(1 << 30))
        window = rng.integers(0, 256, (config.word_rows, config.window_columns), dtype=np.uint8)
        top, left = request.centre.tile_y * size, request.centre.tile_x * size
        for r in range(config.word_rows):
            row = request.row_offset + request.stride * r
            if row < 2 * size:
                window[r] = [
                    pixel(layer, request.centre.channel, top + row, left + 2 - size + x)
                    for x in range(config.window_columns)
                ]
        return window

    def check(self, layer, request):
        common, centre = layer.common, request.centre
        assert (centre.pitch, centre.channels) == (common["in_pitch"], common["in_channels"])
        assert (request.tiles_y, request.tiles_x) == (common["in_tiles_y"], common["in_tiles_x"])
        assert request.pad == common["in_pad"]
        assert request.group_mask == layer.branch["group_mask"]

    async def windows(self, ctx):
        dut, pending, cycle = self.dut, [], 0
        while True:
            ctx.set(dut.window_request.ready, self.dice.random() >= self.lazy)
            ctx.set(dut.window_valid, 0)
            if pending and pending[0][0] <= cycle and self.dice.random() >= self.lazy:
                ctx.set(dut.window_valid, 1)
                ctx.set(dut.window_data, to_integer(pending.pop(0)[1]))
            _, _, valid, ready, request = await ctx.tick().sample(
                dut.window_request.valid, dut.window_request.ready, dut.window_request.payload
            )
            cycle += 1
            if valid and ready:
                layer = self.inputs[request.centre.base]
                self.check(layer, request)
                pending.append((cycle + 3, self.window(layer, request)))

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
                layer = self.residuals_of[request.base]
                assert layer.common["residual"]
                assert request.pitch == layer.common["residual_pitch"]
                assert request.channels == layer.common["out_channels"]
                pending.append(
                    residual_tile(
                        layer, self.config.tile_size, request.tile_y, request.tile_x, request.channel
                    )
                )


async def load_streams(ctx, dut, layers):
    """Streams of all layers, and the tables one after the other."""
    for pe in range(dut.pes):
        words = [word for layer in layers for word in stream_words(layer, pe)]
        ctx.set(dut.stream_write_pe, pe)
        await write_memory(ctx, dut.stream_write, [*words, pack(HEADER_FIELDS, {"end": 1})])
    base = 0
    for layer in layers:
        layer.branch["table_base"] = base
        await write_memory(ctx, dut.table_write, table_words(layer.entries), base)
        base += len(layer.entries)


async def check_writes(ctx, dut, layer, dice, lazy):
    """Compare all words of a layer."""
    writes = expected_writes(dut.config, layer) if layer.branch["tiles"] else []
    final_tile = writes[-1][0][:2] if writes else None
    for index, (position, tile) in enumerate(writes):
        accepted = False
        while not accepted:
            ctx.set(dut.write.ready, dice.random() >= lazy)
            _, _, valid, ready, payload, idle = await ctx.tick().sample(
                dut.write.valid, dut.write.ready, dut.write.payload, dut.idle
            )
            accepted = valid and ready
            assert index == 0 or not idle
        address, marks = payload.address, payload.marks
        assert (address.tile_y, address.tile_x, address.channel) == position
        assert address.base == layer.common["out_base"]
        assert (marks.layer, marks.ordered) == (layer.common["layer"], layer.common["ordered"])
        assert marks.last == (index == len(writes) - 1)
        assert marks.final_tile == (position[:2] == final_tile)
        np.testing.assert_array_equal(to_bytes(payload.data, tile.shape), tile)
    ctx.set(dut.write.ready, 0)


async def offer_layers(ctx, dut, layers):
    """What the sequencer does."""
    for number, layer in enumerate(layers):
        bank = number % 2
        await write_memory(ctx, dut.pattern_write, pattern_words(layer.patterns), bank * MAX_PATTERNS)
        set_layer(ctx, dut, layer.common, layer.branch)
        ctx.set(dut.bank, bank)
        ctx.set(dut.offer, 1)
        await ctx.tick()
        ctx.set(dut.offer, 0)
        await ctx.tick().until(~dut.pending)


async def take_outputs(ctx, dut, dice):
    """What the scoreboard does."""
    while True:
        ctx.set(dut.outputs_take, 0)
        await ctx.tick()
        if ctx.get(dut.outputs_wait) and ctx.get(dut.windows_past) and dice.random() < 0.3:
            ctx.set(dut.outputs_take, 1)
            await ctx.tick()


def run_layers(layers, lazy, seed, restarts=1, config=TINY, number=DSP):
    dut = Branch(config, number)
    dice = generator(seed)
    for index, layer in enumerate(layers):
        layer.common |= {"in_base": 3 + index, "residual_base": 200 + index, "out_base": 100 + index}
    memory = Memory(dut, layers, generator(seed + 1), lazy)
    cycles = [0]

    async def count(ctx):
        while True:
            await ctx.tick()
            cycles[0] += 1

    async def testbench(ctx):
        await load_streams(ctx, dut, layers)
        for _ in range(restarts):
            ctx.set(dut.restart, 1)
            await ctx.tick()
            ctx.set(dut.restart, 0)
            await ctx.tick().repeat(3)
            assert ctx.get(dut.idle)
            cycles[0] = 0
            await offer_layers(ctx, dut, layers)
            await ctx.tick().until(dut.idle)

    async def checker(ctx):
        for _ in range(restarts):
            for layer in layers:
                await check_writes(ctx, dut, layer, generator(seed + 2), lazy)
            await ctx.tick().until(dut.idle)

    async def takes(ctx):
        await take_outputs(ctx, dut, dice)

    background = [memory.windows, memory.residuals, takes, count]
    simulate(dut, testbench, checker, background=background, cycles=60_000)
    return cycles[0]


def conv_layer(rng, stride=1, config=TINY, number=DSP, **options):
    layer = random_geometry(rng, config, stride, **options)
    add_filters(rng, config, layer, config.branch_pes(number))
    return layer


@pytest.mark.parametrize("number", [DSP, LUT])
@pytest.mark.parametrize("lazy", [0.0, 0.5])
@pytest.mark.parametrize("seed", range(2))
def test_layers_overlap(seed, lazy, number):
    rng = np.random.default_rng(seed)
    layers = [
        conv_layer(rng, stride=1, number=number),
        conv_layer(rng, stride=2, residual=1, number=number),
        conv_layer(rng, tiles=0, number=number),
        conv_layer(rng, residual=1, number=number),
    ]
    run_layers(layers, lazy, seed, restarts=2 if seed == 0 else 1, number=number)


def test_followed_layer_that_is_past_holds_nothing_up():
    rng = np.random.default_rng(45)
    layer = conv_layer(rng)
    layer.common |= {"follows": Follows.BRANCHES, "follows_layer": 7}  # the records say layer 0
    run_layers([layer], 0.2, 45)


@pytest.mark.slow
def test_tiles_of_seven_pixels():
    rng = np.random.default_rng(50)
    layers = [
        conv_layer(rng, stride=2, config=LARGE_TILE, residual=1),
        conv_layer(rng, config=LARGE_TILE),
    ]
    run_layers(layers, 0.2, 50, config=LARGE_TILE)


def test_a_word_every_cycle():
    """Words of a layer with one window each keep pace with PEs that have one operator for each."""
    rng = np.random.default_rng(60)
    layer = random_geometry(rng, TINY, 1)
    pattern = {"tile_dy": 0, "tile_dx": 0, "row_offset": 0, "column_offset": 0, "taps": 1, "fetch": 1}
    layer.patterns = [pattern]
    channels = 64
    layer.tensor = rng.integers(0, 256, (channels, *layer.tensor.shape[1:]), dtype=np.uint8)
    layer.common |= {"pattern_count": 1, "passes": 1, "block_words": 8, "blocks": channels // 8}
    layer.common["in_channels"] = channels
    layer.branch["channels"] = channels
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
    assert words <= cycles < words + 70
