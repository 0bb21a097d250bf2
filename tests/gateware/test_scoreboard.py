"""Scoreboard: what it says of every writer, and when it lets the output stages go on."""

from __future__ import annotations

import pytest
from stalling import generator, simulate

from espalier_hw.scoreboard import SETTLE_CYCLES, Scoreboard

BRANCHES = 3
POOL = BRANCHES


class Bench:
    """Branches and pool unit that write random words; `layers`: of both kinds, in program order.

    layers: whether it is a pool, whether it waits for the pool unit, whether more strips of it follow.
    """

    def __init__(self, seed, layers):
        self.rng = generator(seed)
        self.dut = Scoreboard(BRANCHES)
        self.left = [0] * (BRANCHES + 1)  # words of the layer at work
        self.expected = [None] * (BRANCHES + 1)  # the record of LOAD is like that of the pool unit
        self.layers, self.ended, self.at_work, self.pool_layer = layers, [], set(), None

    async def write(self, ctx):
        """One word in the memory in some of the cycles."""
        dut = self.dut
        writers = [w for w in range(BRANCHES + 1) if self.left[w]]
        ctx.set(dut.written, 0)
        if not writers or self.rng.random() < 0.4:
            return
        writer = self.rng.choice(writers)
        self.left[writer] -= 1
        word = {
            name: self.rng.getrandbits(bits) for name, bits in (("tile_y", 8), ("tile_x", 8), ("channel", 13))
        }
        marks = {"ordered": self.rng.getrandbits(1), "final_tile": self.rng.getrandbits(1)}
        last = int(self.left[writer] == 0)
        layer = self.expected[writer]["layer"]
        port = dut.written_word[int(writer >= BRANCHES)]
        ctx.set(port, word | {"marks": marks | {"layer": layer, "last": last}})
        ctx.set(dut.written, 1 << writer)
        self.expected[writer] |= word | marks | {"written": 1, "complete": last}

    def take(self, writer, layer, words):
        """A writer begins a layer."""
        self.left[writer] = words
        old = self.expected[writer] or {}
        self.expected[writer] = old | {"layer": layer, "written": 0, "complete": int(words == 0)}

    def check(self, ctx):
        """Compare the records."""
        for writer, want in enumerate(self.expected):
            for name, value in (want or {}).items():
                assert ctx.get(getattr(self.dut.progress[writer], name)) == value, (writer, name)

    async def step(self, ctx):
        """One cycle: words, ends, records."""
        await self.write(ctx)
        ctx.set(self.dut.counters_busy, self.rng.random() < 0.5)
        busy = ctx.get(self.dut.counters_busy)
        await ctx.tick()
        self.check(ctx)
        if ctx.get(self.dut.end):
            assert not busy
            layer = ctx.get(self.dut.end_layer)
            self.at_work.remove(layer)
            self.ended.append(layer)

    async def offer(self, ctx, layer, pool, wait_pool, more):
        """Offer a layer and see it taken."""
        dut, rng = self.dut, self.rng
        ctx.set(dut.layer.layer, layer)
        ctx.set(dut.layer.more, more)
        ctx.set(dut.layer.wait_pool, wait_pool)
        words = [rng.choice([0, 1, 5, 30]) for _ in range(BRANCHES)]
        if pool:
            while self.left[POOL] or self.pool_layer in self.at_work:
                await self.step(ctx)
            await self.step(ctx)  # an end that is not reported is not seen here
            await self.step(ctx)
            ctx.set(dut.pool_taken, 1)
            self.take(POOL, layer, 0)
            self.expected[POOL]["complete"] = 0
            if not more:
                self.at_work.add(layer)
                self.pool_layer = layer
            await self.step(ctx)
            ctx.set(dut.pool_taken, 0)
            self.left[POOL] = rng.choice([1, 20])
            return
        ctx.set(dut.rests, sum((not count) << b for b, count in enumerate(words)))
        waited, ready, waits = 0, [False] * BRANCHES, [False] * BRANCHES
        while not ctx.get(dut.outputs_take):
            ready = [past or rng.random() < 0.1 for past in ready]
            waits = [waiting or (not self.left[b] and rng.random() < 0.1) for b, waiting in enumerate(waits)]
            ctx.set(dut.windows_past, sum(bit << b for b, bit in enumerate(ready)))
            ctx.set(dut.outputs_wait, sum(bit << b for b, bit in enumerate(waits)))
            ctx.set(dut.pool_idle, not self.left[POOL])
            free = all(ready) and all(waits) and not (wait_pool and self.left[POOL])
            waited = waited + 1 if free else 0
            await self.step(ctx)
        assert waited >= SETTLE_CYCLES - 2
        for branch in range(BRANCHES):
            self.take(branch, layer, 0)  # nothing is written in the cycle of the change
        if not more:
            self.at_work.add(layer)
        for branch, count in enumerate(words):
            self.expected[branch]["complete"] = int(count == 0)
        await self.step(ctx)
        self.left[:BRANCHES] = words

    async def main(self, ctx):
        """All layers, then wait for the end."""
        for layer, kind in enumerate(self.layers):
            await self.offer(ctx, layer, *kind)
            ctx.set(self.dut.outputs_wait, 0)
        for _ in range(400):
            await self.step(ctx)
        assert ctx.get(self.dut.idle)
        assert sorted(self.ended) == [layer for layer, (*_, more) in enumerate(self.layers) if not more]


@pytest.mark.parametrize("seed", range(4))
def test_layers_end_once_and_stages_change_together(seed):
    rng = generator(seed + 10)
    layers = [tuple(rng.random() < 0.3 for _ in range(3)) for _ in range(12)]
    bench = Bench(seed, layers)
    simulate(bench.dut, bench.main)
