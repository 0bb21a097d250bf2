"""Extractor and pool unit against their models."""

from __future__ import annotations

import numpy as np
import pytest
from amaranth.hdl import Module, Signal, signed
from layers import to_bytes, to_integer
from stalling import generator, simulate

from espalier.arch.config import load_config
from espalier_hw.extractor import Extractor, select_columns
from espalier_hw.pool import LANE_BITS, PoolUnit


def offsets(size, stride):
    return range(2 - size, 2) if stride == 2 else range(-(size // 2), size - size // 2)


@pytest.mark.parametrize("target", ["tiny", "zcu104"])
@pytest.mark.parametrize("stride", [1, 2])
def test_extractor_cuts_every_offset(target, stride):
    config = load_config(target)
    rng = np.random.default_rng(1)
    m = Module()
    m.submodules.extractor = extractor = Extractor(config)
    offset, step = Signal(signed(4)), Signal(2)
    m.d.comb += extractor.select.eq(select_columns(m, config, offset, step))

    async def testbench(ctx):
        ctx.set(extractor.enable, 1)
        ctx.set(step, stride)
        for column_offset in offsets(config.tile_size, stride):
            window = rng.integers(0, 256, (config.word_rows, config.window_columns), dtype=np.uint8)
            ctx.set(extractor.window, to_integer(window))
            ctx.set(offset, column_offset)
            await ctx.tick()
            word = to_bytes(ctx.get(extractor.word), (config.word_rows, config.tile_size))
            np.testing.assert_array_equal(word, Extractor.model(config, window, column_offset, stride))

    simulate(m, testbench)


@pytest.mark.parametrize("average", [False, True])
def test_pool_unit_with_stalls(average):
    config = load_config("tiny")
    size = config.tile_size
    rng, dice = np.random.default_rng(2), generator(2)
    channels = [
        rng.integers(0, 256, (rng.integers(1, 5), config.word_rows, size), dtype=np.uint8) for _ in range(30)
    ]
    taps = [rng.integers(1, 16, len(words)) for words in channels]
    dut = PoolUnit(config)

    async def feed(ctx):
        ctx.set(dut.average, average)
        for words, masks in zip(channels, taps, strict=True):
            for index, (word, mask) in enumerate(zip(words, masks, strict=True)):
                while dice.random() < 0.3:
                    await ctx.tick()
                ctx.set(dut.word, to_integer(word))
                ctx.set(dut.taps, int(mask))
                ctx.set(dut.channel_end, index == len(words) - 1)
                ctx.set(dut.word_valid, 1)
                await ctx.tick().until(dut.word_ready)
                ctx.set(dut.word_valid, 0)

    async def check(ctx):
        for words, masks in zip(channels, taps, strict=True):
            while not ctx.get(dut.result_valid) or dice.random() < 0.5:
                await ctx.tick()
            value = ctx.get(dut.result)
            lanes = [
                (value >> LANE_BITS * lane) & ((1 << LANE_BITS) - 1) for lane in range(config.lanes_per_pe)
            ]
            tiles = [
                word[tap : tap + size].reshape(-1)
                for word, mask in zip(words, masks, strict=True)
                for tap in range(4)
                if mask >> tap & 1
            ]
            np.testing.assert_array_equal(lanes, PoolUnit.model(np.array(tiles), average))
            ctx.set(dut.take, 1)
            await ctx.tick()
            ctx.set(dut.take, 0)

    simulate(dut, feed, check)


def test_pool_unit_takes_a_tap_every_cycle():
    config = load_config("tiny")
    dut = PoolUnit(config)
    words = 20

    async def testbench(ctx):
        ctx.set(dut.word_valid, 1)
        ctx.set(dut.taps, 0b111)
        ctx.set(dut.channel_end, 1)
        accepted = 0
        for _ in range(3 * words):
            ctx.set(dut.take, ctx.get(dut.result_valid))
            _, _, ready = await ctx.tick().sample(dut.word_ready)
            accepted += ready
        assert accepted == words

    simulate(dut, testbench)
