"""Lane pairs: products, packing, and the DSP slice against its behavioural twin."""

from __future__ import annotations

import dataclasses
import random

import numpy as np
import pytest
from amaranth.hdl import Fragment, Module, Signal, signed
from amaranth.lib import wiring
from amaranth.lib.wiring import In
from amaranth.sim import Simulator
from dsp_slice import DspSlice

from espalier.arch.config import DSP_SLICES, load_config
from espalier_hw import lanes
from espalier_hw.pe import PE

TINY = load_config("tiny")
BOTH = pytest.mark.parametrize("spacing", DSP_SLICES)


def simulate(design, process):
    simulator = Simulator(design)
    simulator.add_clock(1e-8)
    simulator.add_testbench(process)
    simulator.run()


class SharedRegisters(wiring.Component):
    """A pair with the registers that a PE keeps for all of its pairs; `weight` is a cycle early."""

    def __init__(self, pair):
        self.pair = pair
        super().__init__({"weight": In(signed(4))})

    def elaborate(self, platform):
        m = Module()
        m.submodules.pair = pair = self.pair
        m.d.sync += [
            pair.weight.eq(self.weight),
            pair.weight_registered.eq(pair.weight),
            pair.load_registered.eq(pair.load),
        ]
        if isinstance(pair, lanes.AddedPair):
            m.d.comb += pair.digit.eq(lanes.digit_selections(m, self.weight))
        return m


def drive(pair, cycles, seed):
    """Random inputs in every cycle; returns the `sum` of each."""
    rng, sums = random.Random(seed), []
    shared = SharedRegisters(pair)

    async def process(ctx):
        for cycle in range(cycles):
            ctx.set(pair.pixels, rng.choice([0, 0xFF, 0xFF00, 0xFFFF, rng.getrandbits(16)]))
            ctx.set(shared.weight, rng.choice([0, -8, 7, rng.randrange(-8, 8)]))
            # The first operator after power-up always starts a sum.
            ctx.set(pair.load, int(cycle < 4 or rng.random() < 0.2))
            ctx.set(pair.clear, int(rng.random() < 0.4))
            ctx.set(pair.initial, rng.getrandbits(len(pair.initial)))
            await ctx.tick()
            sums.append(ctx.get(pair.sum))

    simulate(shared, process)
    return sums[7:]


@BOTH
def test_dsp_slice_equals_behavioural_pair(spacing, monkeypatch):
    monkeypatch.setattr(lanes, "Instance", DspSlice)
    assert drive(lanes.DspPair(spacing), 3000, 1) == drive(lanes.PackedPair(spacing), 3000, 1)


@BOTH
@pytest.mark.parametrize("count", [1, 2])
def test_added_pair_equals_multiplied_pair(count, spacing):
    assert drive(lanes.AddedPair(spacing, count), 3000, 2) == drive(lanes.FabricPair(spacing, count), 3000, 2)


@BOTH
def test_added_products_of_all_digits_and_pixels(spacing):
    """Each operator starts a sum of its own; the second lane has the pixels in the other order."""
    pair = lanes.AddedPair(spacing)
    shared = SharedRegisters(pair)
    cases = [(weight, pixel) for weight in range(-8, 8) for pixel in range(256)]
    random.Random(4).shuffle(cases)

    async def process(ctx):
        ctx.set(pair.load, 1)
        ctx.set(pair.clear, 1)
        for cycle in range(len(cases) + 3):
            if cycle < len(cases):
                ctx.set(shared.weight, cases[cycle][0])
            if 0 < cycle <= len(cases):
                pixel = cases[cycle - 1][1]
                ctx.set(pair.pixels, pixel | (255 - pixel) << 8)
            await ctx.tick()
            if cycle >= 3:
                weight, pixel = cases[cycle - 3]
                low, high = lanes.unpack_pair_model(ctx.get(pair.sum), spacing, packed=False)
                assert (low, high) == (weight * pixel, weight * (255 - pixel))

    simulate(shared, process)


@BOTH
@pytest.mark.parametrize("kind", ["packed", "fabric", "added", "dsp"])
def test_pair_accumulates(kind, spacing, monkeypatch):
    """A run: zero, operators, then the next run from the stored sum, with an idle cycle between."""
    monkeypatch.setattr(lanes, "Instance", DspSlice)
    kinds = {
        "packed": lanes.PackedPair,
        "fabric": lanes.FabricPair,
        "added": lanes.AddedPair,
        "dsp": lanes.DspPair,
    }
    pair = kinds[kind](spacing)
    shared = SharedRegisters(pair)
    operators = [(200, 3, 7), (255, 255, -8), (9, 1, 5)]

    async def process(ctx):
        stored = 0
        for run in range(3):
            for index in range(-1, len(operators) + 3):
                low, high, _ = operators[index] if 0 <= index < len(operators) else (77, 88, 0)
                ctx.set(pair.pixels, low | high << 8)
                ctx.set(shared.weight, operators[index + 1][2] if index + 1 < len(operators) else 0)
                ctx.set(pair.load, int(index == 1))
                ctx.set(pair.clear, int(run == 0))
                ctx.set(pair.initial, stored)
                await ctx.tick()
            stored = ctx.get(pair.sum)
            expected = (run + 1) * np.array([[low * w, high * w] for low, high, w in operators]).sum(0)
            packed = kind in ("packed", "dsp")
            assert list(lanes.unpack_pair_model(stored, spacing, packed)) == list(expected)

    simulate(shared, process)


@BOTH
@pytest.mark.parametrize("packed", [False, True])
def test_unpack(packed, spacing):
    """Hardware and model agree and invert the packing, at the bounds that the compiler keeps too."""
    rng = random.Random(5)
    bound = dataclasses.replace(TINY, pair_spacing_bits=spacing).max_weight_sum * 255
    ends = (-bound, -1, 0, 1, bound)
    sums = [(low, high) for low in ends for high in ends]
    sums += [(rng.randint(-bound, bound), rng.randint(-bound, bound)) for _ in range(300)]
    m = Module()
    value, low, high = Signal(2 * spacing), Signal(signed(20)), Signal(signed(20))
    unpacked = lanes.unpack_pair_value(value, spacing, packed)
    assert [part.shape() for part in unpacked] == [signed(spacing)] * 2
    m.d.comb += [low.eq(unpacked[0]), high.eq(unpacked[1])]
    m.d.sync += Signal().eq(0)

    async def process(ctx):
        for pair in sums:
            word = lanes.pack_pair_model(*pair, spacing, packed)
            ctx.set(value, word)
            assert (ctx.get(low), ctx.get(high)) == pair
            assert tuple(int(part) for part in lanes.unpack_pair_model(word, spacing, packed)) == pair

    simulate(m, process)


def test_unknown_primitives_are_refused():
    with pytest.raises(ValueError, match="primitives"):
        PE(TINY, 6, "other")


@pytest.mark.parametrize("dsp_pairs", [-1, 9])
def test_impossible_dsp_pairs_are_refused(dsp_pairs):
    with pytest.raises(ValueError, match="from 0 to 8"):
        PE(TINY, dsp_pairs)


@BOTH
def test_pairs_of_a_pe(spacing):
    """DSP pairs first; the last pair of an odd tile has one lane and stores one sum."""
    config = dataclasses.replace(TINY, tile_size=5, pair_spacing_bits=spacing)
    pairs = [lanes.make_pair(config, 4, index, "xilinx") for index in range(config.pairs)]
    for pair in pairs:
        Fragment.get(pair, None)  # Amaranth warns of blocks that are never built
    assert [type(pair) for pair in pairs] == [lanes.DspPair] * 4 + [lanes.AddedPair] * 9
    assert [lanes.pair_bits(config, 4, index) for index in (0, 4, 12)] == [
        2 * spacing,
        2 * spacing,
        spacing,
    ]
