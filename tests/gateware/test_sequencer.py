"""Sequencer against the rules of starting, waiting and ending; command control."""

from __future__ import annotations

import dataclasses

import pytest
from stalling import generator, simulate

from espalier.arch.config import load_config
from espalier.arch.fields import pack, unpack
from espalier.arch.program import (
    PATTERNS_PER_WORD,
    Follows,
    Opcode,
    descriptor_words,
    layer_fields,
)
from espalier.arch.registers import Control, ErrorCode, Status
from espalier_hw.control import CommandControl
from espalier_hw.interfaces import BRANCH_LAYER
from espalier_hw.sequencer import Sequencer

CONFIG = load_config("tiny")


def descriptor(rng, **values):
    """Random descriptor with the given fields; returns its words, its fields and its patterns."""
    fields = {f.name: rng.randint(f.low, f.high) for f in layer_fields(CONFIG)} | values
    patterns = [rng.getrandbits(21) for _ in range(fields["pattern_count"])]
    word = pack(layer_fields(CONFIG), fields)
    words = [word >> 128 * n & ((1 << 128) - 1) for n in range(descriptor_words(CONFIG))]
    for first in range(0, len(patterns), PATTERNS_PER_WORD):
        own = patterns[first : first + PATTERNS_PER_WORD]
        words.append(sum(pattern << 32 * n for n, pattern in enumerate(own)))
    return words, fields, patterns


class Bench:
    """The sequencer with branches and DMA that take random times; `events` tells what happened."""

    def __init__(self, seed, config=CONFIG):
        self.rng = generator(seed)
        self.dut = Sequencer(config)
        self.events = []
        self.patterns = {}

    async def fill(self, ctx, words):
        """Write the program memory."""
        port = self.dut.program_write
        ctx.set(port.enable, 1)
        for address, word in enumerate(words):
            ctx.set(port.address, address)
            ctx.set(port.data, word)
            await ctx.tick()
        ctx.set(port.enable, 0)

    async def watch(self, ctx):
        """Play all the units that the sequencer starts: they take a layer after a while and end it later."""
        dut = self.dut
        left = dict.fromkeys(("taken", "work", "load", "store"), 0)
        ctx.set(dut.all_idle, 1)
        while True:
            _, _, write, address, pattern, for_pool, *pulses = await ctx.tick().sample(
                dut.pattern_write.enable, dut.pattern_write.address, dut.pattern_write.data,
                dut.pattern_for_pool, dut.restart, dut.offer_branches, dut.offer_pool, dut.load_start,
                dut.store_start, dut.done, dut.error,
            )  # fmt: skip
            restart, branches, pool, load, store, done, error = pulses
            if write:
                self.patterns[for_pool, address] = pattern
            for name in left:
                left[name] -= left[name] > 0
            idle = not left["taken"] and not left["work"]
            if restart:
                self.events.append("restart")
            if branches or pool:
                assert not left["taken"]
                busy = bool(left["load"]), bool(left["store"])
                self.events.append(("pool" if pool else "conv", busy, idle, self.snapshot(ctx)))
                left["taken"] = self.rng.randrange(1, 60)
                left["work"] = left["taken"] + self.rng.randrange(200)
            if load:
                assert not left["load"]
                self.events.append(("load", (False, bool(left["store"])), idle, self.snapshot(ctx)))
                left["load"] = self.rng.randrange(1, 400)
            if store:
                assert not left["store"]
                self.events.append(("store", (bool(left["load"]), False), idle, self.snapshot(ctx)))
                left["store"] = self.rng.randrange(1, 400)
            if done:
                assert not any(left.values())
                self.events.append("done")
            if error:
                self.events.append("error")
            ctx.set(dut.pending, left["taken"] != 0)
            ctx.set(dut.all_idle, not left["taken"] and not left["work"])
            ctx.set(dut.load_busy, left["load"] != 0)
            ctx.set(dut.store_busy, left["store"] != 0)

    def snapshot(self, ctx):
        """What those see that take layers."""
        dut = self.dut
        word = ctx.get(dut.layer.as_value())
        for index, branch in enumerate(dut.branch):
            word |= ctx.get(branch.as_value()) << (dut.layer.shape().size + index * BRANCH_LAYER.size)
        fields = unpack(layer_fields(CONFIG), word)
        bank, pool = ctx.get(dut.bank), fields["opcode"] == Opcode.POOL
        patterns = [self.patterns[pool, 64 * bank + n] for n in range(fields["pattern_count"])]
        return fields, patterns, ctx.get(dut.layer_index), bank

    def run(self, words, starts=1):
        """Fill the program memory and start it so many times."""

        async def main(ctx):
            await self.fill(ctx, words)
            for _ in range(starts):
                ctx.set(self.dut.start, 1)
                await ctx.tick()
                ctx.set(self.dut.start, 0)
                await ctx.tick().until(self.dut.done | self.dut.error)
                await ctx.tick().repeat(2)

        simulate(self.dut, main, background=[self.watch])


@pytest.mark.parametrize("seed", range(4))
def test_random_programs(seed):
    bench, rng = Bench(seed), generator(seed + 100)
    program, expected = [], ["restart"]
    for _ in range(24):
        opcode = rng.choice([Opcode.LOAD, Opcode.CONV, Opcode.CONV, Opcode.POOL, Opcode.STORE])
        compute = opcode in (Opcode.CONV, Opcode.POOL)
        count = rng.choice([1, 3, 4, 5, 9, 64]) if compute else 0
        words, fields, patterns = descriptor(
            rng,
            opcode=opcode,
            pattern_count=count,
            follows=rng.randrange(4),
            barrier=int(rng.random() < 0.3),
            during_load=int(rng.random() < 0.2),
            wait_store=rng.randrange(2),
        )
        program += words
        expected.append((fields, patterns))
    program += descriptor(rng, opcode=Opcode.END, pattern_count=0)[0]
    expected.append("done")
    bench.run(program, starts=2)
    assert len(bench.events) == 2 * len(expected)
    banks = {"conv": 1, "pool": 1}
    for got, want in zip(bench.events, expected * 2, strict=True):
        if not isinstance(want, tuple):
            assert got == want
            continue
        kind, (loading, storing), idle, (fields, patterns, layer, bank) = got
        assert kind == Opcode(want[0]["opcode"]).name.lower()
        assert (fields, patterns) == want
        assert not fields["barrier"] or (idle and not loading and not storing)
        if kind == "store":
            continue
        assert not fields["wait_store"] or not storing
        if kind == "load":
            continue
        assert layer == fields["layer"]
        # A LOAD is only overlapped where the layer watches it, or where it does not matter.
        assert fields["follows"] == Follows.LOAD or fields["during_load"] or not loading
        assert bank != banks[kind]  # the patterns of the layer before may still be in use
        banks[kind] = bank
    for kinds in (("conv", "pool"), ("load",), ("store",)):
        assert any(event[0] in kinds and not event[2] for event in bench.events)


def test_unknown_opcode():
    bench, rng = Bench(0), generator(1)
    bench.run(descriptor(rng, opcode=9, pattern_count=0)[0])
    assert bench.events == ["restart", "error"]


def test_layer_overlaps_load():
    bench, rng = Bench(3), generator(1)
    program = descriptor(rng, opcode=Opcode.LOAD, pattern_count=0)[0]
    program += descriptor(rng, opcode=Opcode.CONV, pattern_count=1, follows=Follows.LOAD, barrier=0)[0]
    bench.run(program + descriptor(rng, opcode=Opcode.END, pattern_count=0)[0])
    assert bench.events[2][1] == (True, False)


def test_streams_come_beside_layers():
    """STREAM waits for nothing and nothing but END waits for its batches."""
    bench, rng = Bench(5, dataclasses.replace(CONFIG, streaming=True)), generator(1)
    words, fields, _ = descriptor(rng, opcode=Opcode.STREAM, pattern_count=0)
    program = descriptor(rng, opcode=Opcode.LOAD, pattern_count=0)[0] + words
    program += descriptor(rng, opcode=Opcode.CONV, pattern_count=1, follows=Follows.LOAD, barrier=0)[0]
    program += descriptor(rng, opcode=Opcode.STORE, pattern_count=0)[0]
    program += descriptor(rng, opcode=Opcode.END, pattern_count=0)[0]
    left = 0

    async def loader(ctx):
        nonlocal left
        dut = bench.dut
        while True:
            _, _, start, words, offset, done = await ctx.tick().sample(
                dut.stream_start, dut.layer.dram_words, dut.layer.dram_offset, dut.done
            )
            left -= left > 0
            if start:
                assert (words, offset) == (fields["dram_words"], fields["dram_offset"])
                bench.events.append(("stream", ctx.get(dut.load_busy)))
                left = 2000
            assert not (done and left)
            ctx.set(dut.stream_busy, left > 0)

    async def main(ctx):
        await bench.fill(ctx, program)
        ctx.set(bench.dut.start, 1)
        await ctx.tick()
        ctx.set(bench.dut.start, 0)
        await ctx.tick().until(bench.dut.done)
        await ctx.tick().repeat(2)

    simulate(bench.dut, main, background=[bench.watch, loader])
    kinds = [event if isinstance(event, str) else event[0] for event in bench.events]
    assert kinds == ["restart", "load", "stream", "conv", "store", "done"]
    assert bench.events[2] == ("stream", 1)


def test_hardware_without_streaming_knows_no_streams():
    bench, rng = Bench(0), generator(1)
    bench.run(descriptor(rng, opcode=Opcode.STREAM, pattern_count=0)[0])
    assert bench.events == ["restart", "error"]


class Commands:
    """Command control with a core and a bus that answer when told."""

    def __init__(self, streaming=False):
        self.dut = CommandControl(streaming)

    async def command(self, ctx, bits):
        """Write CONTROL."""
        ctx.set(self.dut.control, bits)
        await ctx.tick()
        ctx.set(self.dut.control, 0)
        await ctx.tick()

    async def pulse(self, ctx, name):
        """One event from the core or the bus."""
        ctx.set(getattr(self.dut, name), 1)
        await ctx.tick()
        ctx.set(getattr(self.dut, name), 0)
        await ctx.tick()

    async def load(self, ctx):
        """A LOAD without errors."""
        await self.command(ctx, Control.LOAD)
        assert ctx.get(self.dut.status) == Status.BUSY
        await self.pulse(ctx, "loader_done")
        assert ctx.get(self.dut.status) == Status.DONE | Status.LOADED


def test_commands_in_order():
    bench = Commands()
    dut = bench.dut

    async def main(ctx):
        ctx.set(dut.interrupt_enable, 1)
        ctx.set(dut.bus_idle, 1)
        await bench.command(ctx, Control.START)
        assert ctx.get(dut.status) == Status.ERROR
        assert ctx.get(dut.error_code) == ErrorCode.NOT_LOADED
        await bench.load(ctx)
        assert ctx.get(dut.error_code) == 0
        await ctx.tick()
        assert ctx.get(dut.interrupt)
        await bench.command(ctx, Control.CLEAR_INTERRUPT)
        assert ctx.get(dut.status) == Status.LOADED
        assert not ctx.get(dut.interrupt)
        ctx.set(dut.control, Control.START)
        await ctx.tick()
        ctx.set(dut.control, 0)
        assert ctx.get(dut.sequencer_start)
        ctx.set(dut.read_beat, 1)
        await ctx.tick().repeat(9)
        ctx.set(dut.read_beat, 0)
        await bench.command(ctx, Control.LOAD)  # ignored while busy
        ctx.set(dut.sequencer_done, 1)
        await ctx.tick()
        ctx.set(dut.sequencer_done, 0)
        assert ctx.get(dut.status) == Status.DONE | Status.LOADED
        assert ctx.get(dut.cycles) == 12
        assert ctx.get(dut.read_beats) == 8
        assert ctx.get(dut.write_beats) == 0

    simulate(dut, main)


@pytest.mark.parametrize(
    ("event", "code"),
    [
        ("read_error", ErrorCode.AXI_READ),
        ("write_error", ErrorCode.AXI_WRITE),
        ("sequencer_error", ErrorCode.BAD_OPCODE),
        ("loader_error", ErrorCode.BAD_SECTION),
        (None, ErrorCode.NONE),
    ],
)
def test_errors_and_reset_flush_the_bus(event, code):
    bench = Commands(streaming=event == "loader_error")
    dut = bench.dut

    async def main(ctx):
        await bench.load(ctx)
        await bench.command(ctx, Control.START)
        await (bench.pulse(ctx, event) if event else bench.command(ctx, Control.RESET))
        for _ in range(50):  # as long as the bus is busy
            assert ctx.get(dut.core_reset)
            assert ctx.get(dut.flush)
            assert ctx.get(dut.status) & Status.BUSY
            await ctx.tick()
        ctx.set(dut.bus_idle, 1)
        await ctx.tick().until(~dut.core_reset)
        assert ctx.get(dut.status) & Status.BUSY
        await ctx.tick().until(~dut.flush)
        assert ctx.get(dut.status) == (Status.ERROR | Status.LOADED if event else 0)
        assert ctx.get(dut.error_code) == code
        await bench.load(ctx)

    simulate(dut, main)
