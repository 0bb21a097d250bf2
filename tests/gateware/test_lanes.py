"""Lane pairs: products, packing, and the DSP slice against its behavioural twin."""

from __future__ import annotations

import dataclasses
import random

import numpy as np
import pytest
from amaranth.hdl import Fragment, Module, Signal, signed
from amaranth.sim import Simulator
from dsp48e2 import Dsp48e2

from espalier.arch.config import load_config
from espalier.arch.operators import MAX_WEIGHT_SUM
from espalier_hw import lanes
from espalier_hw.pe import PE

TINY = load_config("tiny")
BOUND = MAX_WEIGHT_SUM * 255


def simulate(design, process):
    if isinstance(design, lanes.Pair):
        design = with_shared_registers(design)
    simulator = Simulator(design)
    simulator.add_clock(1e-8)
    simulator.add_testbench(process)
    simulator.run()


def with_shared_registers(pair):
    """A pair with the two registers that a PE keeps for all of its pairs."""
    m = Module()
    m.submodules.pair = pair
    m.d.sync += [pair.weight_registered.eq(pair.weight), pair.load_registered.eq(pair.load)]
    return m


def drive(pair, cycles, seed):
    """Random inputs in every cycle; returns the `sum` of each."""
    rng, sums = random.Random(seed), []

    async def process(ctx):
        for cycle in range(cycles):
            ctx.set(pair.pixels, rng.choice([0, 0xFF, 0xFF00, 0xFFFF, rng.getrandbits(16)]))
            ctx.set(pair.weight, rng.choice([0, -8, 7, rng.randrange(-8, 8)]))
            # The first operator after power-up always starts a sum.
            ctx.set(pair.load, int(cycle < 4 or rng.random() < 0.2))
            ctx.set(pair.clear, int(rng.random() < 0.4))
            ctx.set(pair.initial, rng.getrandbits(36))
            await ctx.tick()
            sums.append(ctx.get(pair.sum))

    simulate(pair, process)
    return sums[6:]


def test_dsp_slice_equals_behavioural_pair(monkeypatch):
    monkeypatch.setattr(lanes, "Instance", Dsp48e2)
    assert drive(lanes.DspPair(), 3000, 1) == drive(lanes.PackedPair(), 3000, 1)


@pytest.mark.parametrize("count", [1, 2])
def test_added_product_pair_equals_multiplied_pair(count):
    assert drive(lanes.FabricPair(count, adders=True), 1000, 2) == drive(lanes.FabricPair(count), 1000, 2)


def test_added_product_is_the_product():
    m = Module()
    pixel, weight, product = Signal(8), Signal(signed(4)), Signal(signed(12))
    m.d.comb += product.eq(lanes.added_product(pixel, weight))
    m.d.sync += Signal().eq(0)

    async def process(ctx):
        for w in range(-8, 8):
            ctx.set(weight, w)
            for p in range(256):
                ctx.set(pixel, p)
                assert ctx.get(product) == w * p

    simulate(m, process)


@pytest.mark.parametrize("kind", ["packed", "fabric", "dsp"])
def test_pair_accumulates(kind, monkeypatch):
    """A run: zero, operators, then the next run from the stored sum, with an idle cycle between."""
    monkeypatch.setattr(lanes, "Instance", Dsp48e2)
    pair = {"packed": lanes.PackedPair, "fabric": lanes.FabricPair, "dsp": lanes.DspPair}[kind]()
    operators = [(200, 3, 7), (255, 255, -8), (9, 1, 5)]

    async def process(ctx):
        stored = 0
        for run in range(3):
            for index in range(len(operators) + 3):
                low, high, weight = operators[index] if index < len(operators) else (77, 88, 0)
                ctx.set(pair.pixels, low | high << 8)
                ctx.set(pair.weight, weight)
                ctx.set(pair.load, int(index == 1))
                ctx.set(pair.clear, int(run == 0))
                ctx.set(pair.initial, stored)
                await ctx.tick()
            stored = ctx.get(pair.sum)
            expected = (run + 1) * np.array([[low * w, high * w] for low, high, w in operators]).sum(0)
            assert list(lanes.unpack_pair_model(stored, kind != "fabric")) == list(expected)

    simulate(pair, process)


@pytest.mark.parametrize("packed", [False, True])
def test_unpack(packed):
    """Hardware and model agree and invert the packing, at the bounds that the compiler keeps too."""
    rng = random.Random(5)
    ends = (-BOUND, -1, 0, 1, BOUND)
    sums = [(low, high) for low in ends for high in ends]
    sums += [(rng.randint(-BOUND, BOUND), rng.randint(-BOUND, BOUND)) for _ in range(300)]
    m = Module()
    value, low, high = Signal(36), Signal(signed(20)), Signal(signed(20))
    unpacked = lanes.unpack_pair_value(value, packed)
    assert [part.shape() for part in unpacked] == [signed(18), signed(18)]
    m.d.comb += [low.eq(unpacked[0]), high.eq(unpacked[1])]
    m.d.sync += Signal().eq(0)

    async def process(ctx):
        for pair in sums:
            word = lanes.pack_pair_model(*pair, packed)
            ctx.set(value, word)
            assert (ctx.get(low), ctx.get(high)) == pair
            assert tuple(int(part) for part in lanes.unpack_pair_model(word, packed)) == pair

    simulate(m, process)


def test_unknown_primitives_are_refused():
    with pytest.raises(ValueError, match="primitives"):
        PE(TINY, "other")


def test_pairs_of_a_configuration():
    """DSP pairs first; the last pair of an odd tile has one lane and stores one sum."""
    config = dataclasses.replace(TINY, tile_size=5, dsp_pairs=4)
    pairs = [lanes.make_pair(config, index, "xilinx") for index in range(config.pairs)]
    for pair in pairs:
        Fragment.get(pair, None)  # Amaranth warns of blocks that are never built
    assert [type(pair) for pair in pairs] == [lanes.DspPair] * 4 + [lanes.FabricPair] * 9
    assert [lanes.pair_bits(config, index) for index in (0, 4, 12)] == [36, 36, 18]
