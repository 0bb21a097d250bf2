"""Word writer: words, ring addresses and blocks over several layers, and the room that PEs leave."""

from __future__ import annotations

from collections import deque

import numpy as np
import pytest
from layers import to_bytes, to_integer
from stage_layers import offer_layer, random_layer, staged
from stalling import generator, simulate

from espalier.arch.config import load_config
from espalier_hw.extractor import Extractor
from espalier_hw.word_writer import WordWriter

CONFIG = load_config("tiny")
PES = 3
UNITS = CONFIG.ring_words // 8


class Expectation:
    """All windows of some layers, and what must be written: (address, word, commit, units)."""

    def __init__(self, rng, layers):
        self.windows, self.writes = [], []
        base = 0
        for layer in layers:
            block_words, stride = layer.common["block_words"], layer.common["stride"]
            words = list(layer.words())
            a_set = len(words) // layer.sets if words else 1
            for number, (_, _, pattern) in enumerate(words):
                slot = number % a_set % block_words
                commit = slot == block_words - 1 or number % a_set == a_set - 1
                if pattern["fetch"]:
                    shape = (CONFIG.word_rows, CONFIG.window_columns)
                    self.windows.append(rng.integers(0, 256, shape, dtype=np.uint8))
                word = Extractor.model(CONFIG, self.windows[-1], pattern["column_offset"], stride)
                self.writes.append(((base + slot) % CONFIG.ring_words, word, commit, block_words // 8))
                if commit:
                    base += block_words


class Rings:
    """Units that are outstanding in every PE, and the blocks that it has not released."""

    def __init__(self):
        self.outstanding = [0] * PES
        self.committed = [deque() for _ in range(PES)]

    def start(self, units):
        self.outstanding = [count + units for count in self.outstanding]
        assert max(self.outstanding) <= UNITS

    def commit(self, units):
        for queue in self.committed:
            queue.append(units)


async def release(ctx, dut, dice, rings, stall):
    """Release committed blocks of every PE, in order."""
    while True:
        narrow = wide = 0
        for pe, queue in enumerate(rings.committed):
            if queue and dice.random() >= stall:
                units = queue.popleft()
                rings.outstanding[pe] -= units
                narrow |= 1 << pe
                wide |= (units == 2) << pe
        ctx.set(dut.release, narrow)
        ctx.set(dut.release_wide, wide | (dice.getrandbits(PES) & ~narrow))
        await ctx.tick()


async def supply(ctx, dut, dice, windows, credits, stall):
    """Bring windows; credits[0] is the room in the buffer, of which `taken` tells."""
    for window in windows:
        while not credits[0] or dice.random() < stall:
            credits[0] += (await ctx.tick().sample(dut.taken))[2]
        ctx.set(dut.window_valid, 1)
        ctx.set(dut.window_data, to_integer(window))
        credits[0] += (await ctx.tick().sample(dut.taken))[2] - 1
        ctx.set(dut.window_valid, 0)
    while credits[0] < CONFIG.window_fifo_depth:
        credits[0] += (await ctx.tick().sample(dut.taken))[2]


async def check(ctx, dut, writes, rings):
    """Compare all ring writes; the gap in cycles before each."""
    gaps, first = [], True
    for address, word, commit, units in writes:
        gaps.append(0)
        while not ctx.get(dut.ring_write.enable):
            assert not ctx.get(dut.commit)
            gaps[-1] += 1
            await ctx.tick()
        if first:
            rings.start(units)
        assert ctx.get(dut.ring_write.address) == address
        data = to_bytes(ctx.get(dut.ring_write.data), word.shape)
        np.testing.assert_array_equal(data, word)
        assert ctx.get(dut.commit) == commit
        if commit:
            rings.commit(units)
        first = commit
        await ctx.tick()
    return gaps


@pytest.mark.parametrize(
    ("seed", "window_stall", "release_stall"), [(0, 0.2, 0.9), (1, 0.7, 0.5), (2, 0, 0.95)]
)
def test_writer_over_layers(seed, window_stall, release_stall):
    rng, dice = np.random.default_rng(seed), generator(seed)
    dut = WordWriter(CONFIG, PES)
    m, stage = staged(dut)
    m.d.comb += dut.sets.eq(stage.current.passes * stage.current_branch.tiles)
    batches = [[random_layer(rng, CONFIG.tile_size, index) for index in range(8)] for _ in range(2)]
    expected = [Expectation(rng, layers) for layers in batches]
    rings, ended = Rings(), [0, 0]

    async def sequence(ctx):
        for number, layers in enumerate(batches):
            # As at the start of an inference: nothing is at work, whatever the ring base was.
            while rings.outstanding != [0] * PES or sum(ended) < 2 * number:
                await ctx.tick()
            await ctx.tick().repeat(3)
            ctx.set(dut.restart, 1)
            await ctx.tick()
            ctx.set(dut.restart, 0)
            for index, layer in enumerate(layers):
                await offer_layer(ctx, stage, dut, layer, index % 2)

    async def windows(ctx):
        credits = [CONFIG.window_fifo_depth]
        for number in range(len(batches)):
            await supply(ctx, dut, dice, expected[number].windows, credits, window_stall)
            ended[0] += 1

    async def words(ctx):
        for number in range(len(batches)):
            await check(ctx, dut, expected[number].writes, rings)
            ended[1] += 1

    async def pes(ctx):
        await release(ctx, dut, dice, rings, release_stall)

    simulate(m, sequence, windows, words, background=[pes])


@pytest.mark.parametrize("block_words", [8, 16])
def test_writer_rate(block_words):
    """A word a cycle while nothing is in the way; three cycles at most between layers that wait."""
    rng, dice = np.random.default_rng(5), generator(5)
    layers = [random_layer(rng, CONFIG.tile_size, index, rests=0) for index in range(4)]
    for layer in layers:
        layer.patterns = [{**layer.patterns[0], "fetch": 1}] + [{**layer.patterns[0], "fetch": 0}] * 4
        layer.common |= {"block_words": block_words, "pattern_count": 5}
        layer.branch |= {"channels": 9, "tiles": 1}
    expected = Expectation(rng, layers)
    dut, rings = WordWriter(CONFIG, PES), Rings()
    m, stage = staged(dut)
    m.d.comb += dut.sets.eq(stage.current.passes * stage.current_branch.tiles)

    async def sequence(ctx):
        for index, layer in enumerate(layers):
            await offer_layer(ctx, stage, dut, layer, index % 2)

    async def windows(ctx):
        await supply(ctx, dut, dice, expected.windows, [CONFIG.window_fifo_depth], 0)

    async def words(ctx):
        gaps = await check(ctx, dut, expected.writes, rings)
        assert max(gaps[1:]) <= 3
        assert sum(gap > 0 for gap in gaps) <= len(layers)

    async def pes(ctx):
        await release(ctx, dut, dice, rings, 0)

    simulate(m, sequence, windows, words, background=[pes])


def test_writer_changes_block_size_while_a_block_waits():
    """One-word blocks wait for the ring, some while the next layer has another block size already."""
    rng, dice = np.random.default_rng(6), generator(6)
    layers = [random_layer(rng, CONFIG.tile_size, index, rests=0) for index in range(60)]
    for layer in layers:
        layer.patterns = [{**layer.patterns[0], "fetch": 1}]
        layer.common |= {"pattern_count": 1, "passes": 1}
        layer.branch |= {"channels": 1, "tiles": int(rng.integers(1, 4))}
    expected = Expectation(rng, layers)
    dut, rings = WordWriter(CONFIG, PES), Rings()
    m, stage = staged(dut)
    m.d.comb += dut.sets.eq(stage.current.passes * stage.current_branch.tiles)

    async def sequence(ctx):
        for index, layer in enumerate(layers):
            await offer_layer(ctx, stage, dut, layer, index % 2)
            await ctx.tick().repeat(dice.randrange(1, 30))

    async def windows(ctx):
        await supply(ctx, dut, dice, expected.windows, [CONFIG.window_fifo_depth], 0)

    async def words(ctx):
        await check(ctx, dut, expected.writes, rings)

    async def pes(ctx):
        await release(ctx, dut, dice, rings, 0.9)

    simulate(m, sequence, windows, words, background=[pes])
