"""Plays branch and output stage for a PE in simulation."""

from __future__ import annotations

import random

from amaranth.sim import Simulator
from pe_streams import word_value

from espalier_hw.pe_model import block_words, decode_stream


class Bench:
    """Runs a stream on a PE; `events` counts the PE's pulses, `drained` holds its drain words.

    windows: see `pe_model.model`. write_gap, drain_gap: probability of a pause, a cycle at a time, before a
    window word and before a drain. pauses: most cycles without a word at the beginning of a layer.
    """

    def __init__(
        self, config, pe, stream, windows, seed=1, write_gap=0.3, drain_gap=0.5, inferences=1, pauses=0
    ):
        self.config, self.pe, self.stream = config, pe, stream
        self.headers = [header for header, _ in decode_stream(stream)]
        self.layers = list(zip(self.headers, windows, strict=True))
        self.inferences, self.pauses = inferences, pauses
        self.rng = random.Random(seed)
        self.write_gap, self.drain_gap = write_gap, drain_gap
        self.drained = []
        self.issue_cycles = []
        self.release_sizes = []
        self.cycle = 0
        self.events = dict.fromkeys(
            ("operator_issued", "null_issued", "ring_empty", "accumulators_full", "release", "set_done"), 0
        )
        # Drain words that are due after n finished sets.
        filters = [h["filters"] for h in self.headers * inferences for _ in range(h["sets"])]
        self.due = [sum(filters[:count]) for count in range(len(filters) + 1)]

    def _due(self):
        return self.due[self.events["set_done"]]

    def run(self, cycles=100_000):
        """Simulate until all layers are drained; asserts that this happens."""
        simulator = Simulator(self.pe)
        simulator.add_clock(1e-8)
        simulator.add_testbench(self._branch)
        for background in self.testbenches():
            simulator.add_testbench(background, background=True)
        self.limit = cycles
        simulator.run()
        return self

    def testbenches(self):
        """Background processes."""
        return [self._drain, self._monitor]

    async def _branch(self, ctx):
        pe = self.pe
        for address, word in enumerate(self.stream):
            ctx.set(pe.stream_write.enable, 1)
            ctx.set(pe.stream_write.address, address)
            ctx.set(pe.stream_write.data, word)
            await ctx.tick()
        ctx.set(pe.stream_write.enable, 0)
        for inference in range(1, self.inferences + 1):
            ctx.set(pe.restart, 1)
            await ctx.tick()
            ctx.set(pe.restart, 0)
            released, base = sum(self.release_sizes), 0
            for header, windows in self.layers:
                for _ in range(self.rng.randint(0, self.pauses)):
                    await ctx.tick()
                base = await self._write_layer(ctx, block_words(header), windows, released, base)
            while len(self.drained) < self.due[-1] * inference // self.inferences:
                await ctx.tick()
            for _ in range(self.rng.randint(8, 40)):
                await ctx.tick()

    async def _write_layer(self, ctx, size, windows, released, base):
        """Write a layer; base: words that the blocks since the restart take up. Returns the new base."""
        pe, config = self.pe, self.config
        for words in windows:
            for first in range(0, len(words), size):
                block = words[first : first + size]
                for slot, word in enumerate(block):
                    while self.rng.random() < self.write_gap:
                        await ctx.tick()
                    # The release that this waits for may have been sampled in this very cycle.
                    while base + size - (sum(self.release_sizes) - released) > config.ring_words:
                        await ctx.tick()
                    ctx.set(pe.ring_write.enable, 1)
                    ctx.set(pe.ring_write.address, (base + slot) % config.ring_words)
                    ctx.set(pe.ring_write.data, word_value(word))
                    ctx.set(pe.commit, int(slot == len(block) - 1))
                    await ctx.tick()
                    ctx.set(pe.ring_write.enable, 0)
                    ctx.set(pe.commit, 0)
                base += size
        return base

    async def _drain(self, ctx):
        pe = self.pe
        while True:
            while (
                self.due[self.events["set_done"]] <= len(self.drained) or self.rng.random() < self.drain_gap
            ):
                await ctx.tick()
            ctx.set(pe.drain_request, 1)
            valid = 0
            while not valid:
                _, _, valid, data = await ctx.tick().sample(pe.drain_valid, pe.drain_data)
                ctx.set(pe.drain_request, 0)
            self.drained.append(data)

    async def _monitor(self, ctx):
        pe = self.pe
        while True:
            names = list(self.events)
            sampled = await ctx.tick().sample(
                pe.drain_valid, pe.drain_data, pe.release_wide, *(getattr(pe, n) for n in names)
            )
            _, _, valid, data, wide, *pulses = sampled
            assert valid or data == 0, "drain_data must be zero between drains"
            for name, pulse in zip(names, pulses, strict=True):
                self.events[name] += pulse
            if pulses[names.index("release")]:
                self.release_sizes.append(16 if wide else 8)
            if pulses[0] or pulses[1]:
                self.issue_cycles.append(self.cycle)
            self.cycle += 1
            assert self.cycle < self.limit, f"the stream does not end: {self.events}"
