"""Plays branch and output stage for a PE in simulation."""

from __future__ import annotations

import random

from amaranth.sim import Simulator
from pe_streams import word_value


class Bench:
    """Runs layers on a PE; `events` counts the PE's pulses, `drained` holds its drain words."""

    def __init__(
        self, config, pe, stream, layers, filters, seed=1, write_gap=0.3, drain_gap=0.5, inferences=1
    ):
        self.config, self.pe, self.stream = config, pe, stream
        # Each inference starts with a restart and runs all layers.
        self.inferences, self.layers, self.filters = inferences, layers * inferences, filters * inferences
        self.rng = random.Random(seed)
        self.write_gap, self.drain_gap = write_gap, drain_gap
        self.drained = []
        self.issue_cycles = []
        self.finished_layers = self.cycle = 0
        self.events = dict.fromkeys(
            ("operator_issued", "null_issued", "ring_empty", "accumulators_full", "release", "set_done"), 0
        )

    def run(self, cycles=100_000):
        """Simulate until all layers are drained; asserts that this happens."""
        simulator = Simulator(self.pe)
        simulator.add_clock(1e-8)
        simulator.add_testbench(self._branch)
        simulator.add_testbench(self._drain, background=True)
        simulator.add_testbench(self._monitor, background=True)
        self.limit = cycles
        simulator.run()
        return self

    async def _branch(self, ctx):
        pe = self.pe
        for address, word in enumerate(self.stream):
            ctx.set(pe.stream_write.enable, 1)
            ctx.set(pe.stream_write.address, address)
            ctx.set(pe.stream_write.data, word)
            await ctx.tick()
        ctx.set(pe.stream_write.enable, 0)
        drained = 0
        for layer, filters in zip(self.layers, self.filters, strict=True):
            if self.finished_layers % (len(self.layers) // self.inferences) == 0:
                ctx.set(pe.restart, 1)
                await ctx.tick()
                ctx.set(pe.restart, 0)
            for name, value in (
                ("sets", layer.sets),
                ("blocks", layer.blocks),
                ("block_words", layer.block_words),
            ):
                ctx.set(getattr(pe, name), value)
            ctx.set(pe.start, 1)
            await ctx.tick()
            ctx.set(pe.start, 0)
            await self._write_layer(ctx, layer)
            drained += layer.sets * filters
            while len(self.drained) < drained:
                await ctx.tick()
            for _ in range(8):
                await ctx.tick()
            self.finished_layers += 1

    async def _write_layer(self, ctx, layer):
        pe, config = self.pe, self.config
        number, released = 0, self.events["release"]
        for words in layer.windows:
            for first in range(0, len(words), layer.block_words):
                block = words[first : first + layer.block_words]
                base = number * layer.block_words
                for slot, word in enumerate(block):
                    while self.rng.random() < self.write_gap:
                        await ctx.tick()
                    # The release that this waits for may have been sampled in this very cycle.
                    while (
                        number - (self.events["release"] - released) >= config.ring_words // layer.block_words
                    ):
                        await ctx.tick()
                    ctx.set(pe.ring_write.enable, 1)
                    ctx.set(pe.ring_write.address, (base + slot) % config.ring_words)
                    ctx.set(pe.ring_write.data, word_value(word))
                    ctx.set(pe.commit, int(slot == len(block) - 1))
                    await ctx.tick()
                    ctx.set(pe.ring_write.enable, 0)
                    ctx.set(pe.commit, 0)
                number += 1

    async def _drain(self, ctx):
        pe = self.pe
        while True:
            while not self._due() or self.rng.random() < self.drain_gap:
                await ctx.tick()
            ctx.set(pe.drain_request, 1)
            valid = 0
            while not valid:
                _, _, valid, data = await ctx.tick().sample(pe.drain_valid, pe.drain_data)
                ctx.set(pe.drain_request, 0)
            self.drained.append(data)

    def _due(self):
        """Whether an accumulator of a finished set is left."""
        done = self.events["set_done"]
        due = 0
        for layer, filters in zip(self.layers, self.filters, strict=True):
            sets = min(done, layer.sets)
            due += sets * filters
            done -= sets
        return due > len(self.drained)

    async def _monitor(self, ctx):
        pe = self.pe
        while True:
            names = list(self.events)
            sampled = await ctx.tick().sample(pe.drain_valid, pe.drain_data, *(getattr(pe, n) for n in names))
            _, _, valid, data, *pulses = sampled
            assert valid or data == 0, "drain_data must be zero between drains"
            for name, pulse in zip(names, pulses, strict=True):
                self.events[name] += pulse
            if pulses[0] or pulses[1]:
                self.issue_cycles.append(self.cycle)
            self.cycle += 1
            assert self.cycle < self.limit, f"layer {self.finished_layers} does not end: {self.events}"
