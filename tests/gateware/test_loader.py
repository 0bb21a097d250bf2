"""Loader: program images into memories, byte gearbox, errors."""

from __future__ import annotations

import dataclasses

import pytest
from stalling import generator, receive, send, simulate

from espalier.arch.config import load_config
from espalier.arch.fields import pack
from espalier.arch.program import SECTION_FIELDS, SectionKind
from espalier_hw.gearbox import Gearbox, words_of_beats
from espalier_hw.loader import Loader

CONFIG = load_config("tiny")
# (branch, PE) by the number of the PE; the branches of `tiny` differ in size.
PE_PLACES = [(b, pe) for b in range(CONFIG.branches) for pe in range(CONFIG.branch_pes(b))]


def section(kind, index, address, words, packed):
    """Beats of one section."""
    header = pack(SECTION_FIELDS, {"kind": kind, "index": index, "address": address, "words": len(words)})
    if not packed:
        return [header, *words]
    content = b"".join(word.to_bytes(9, "little") for word in words)
    content += bytes(-len(content) % 16)
    return [header] + [int.from_bytes(content[at : at + 16], "little") for at in range(0, len(content), 16)]


@pytest.mark.parametrize("stall", [0.0, 0.4])
def test_gearbox(stall):
    dut, rng = Gearbox(), generator(1)
    beats = [rng.getrandbits(128) for _ in range(90)]
    cycles = 0

    async def source(ctx):
        await send(ctx, dut.beats, beats, generator(2), stall)

    async def sink(ctx):
        expected = words_of_beats(beats)
        assert await receive(ctx, dut.words, len(expected), generator(3), stall) == expected

    async def clock(ctx):
        nonlocal cycles
        async for _ in ctx.tick():
            cycles += 1

    simulate(dut, source, sink, background=[clock])
    if stall == 0:
        assert cycles <= 160 + 8  # a word a cycle


def load(beats, stall=0.3, length=None):
    """Run the loader on an image; return its writes and whether it ended without an error."""
    dut, writes, ended = Loader(CONFIG), [], []

    async def memory(ctx):
        (command,) = await receive(ctx, dut.command, 1, generator(4), stall)
        assert command.address == 0x12345670
        assert command.beats == len(beats)
        await send(ctx, dut.beats, [{"data": b, "last": 0} for b in beats], generator(5), stall)

    async def watch(ctx):
        program = dut.program_write
        async for _, _, *values in ctx.tick().sample(
            program.enable, program.address, program.data, dut.stream_enable, dut.table_enable,
            dut.write_pe, dut.write_address, dut.write_data,
        ):  # fmt: skip
            program_enable, address, word, streams, tables, pe, packed_address, packed_word = values
            if program_enable:
                writes.append(("program", address, word))
            if streams:
                writes.append(("stream", streams.bit_length() - 1, pe, packed_address, packed_word))
                assert streams.bit_count() == 1
            if tables:
                writes.append(("table", tables.bit_length() - 1, packed_address, packed_word))
                assert tables.bit_count() == 1

    async def command(ctx):
        ctx.set(dut.address, 0x12345670)
        ctx.set(dut.length, 16 * len(beats) if length is None else length)
        ctx.set(dut.start, 1)
        await ctx.tick()
        ctx.set(dut.start, 0)
        done, error = await ctx.tick().sample(dut.done, dut.error).until(dut.done | dut.error)
        assert done + error == 1
        assert not ctx.get(dut.busy)
        ended.append(bool(done))
        await ctx.tick()

    simulate(dut, command, background=[memory, watch])
    return writes, ended[0]


@pytest.mark.parametrize("stall", [0.0, 0.5])
def test_image(stall):
    rng = generator(6)
    beats, expected = [], []
    for _ in range(12):
        kind = rng.choice([SectionKind.PROGRAM, SectionKind.STREAM, SectionKind.TABLE])
        address, count = rng.randrange(200), rng.randrange(1, 40)
        if kind == SectionKind.PROGRAM:
            words, index = [rng.getrandbits(128) for _ in range(count)], 0
            expected += [("program", address + n, word) for n, word in enumerate(words)]
        else:
            words = [rng.getrandbits(72) for _ in range(count)]
            index = rng.randrange(CONFIG.pes if kind == SectionKind.STREAM else CONFIG.branches)
            place = PE_PLACES[index] if kind == SectionKind.STREAM else (index,)
            expected += [(kind.name.lower(), *place, address + n, word) for n, word in enumerate(words)]
        beats += section(kind, index, address, words, kind != SectionKind.PROGRAM)
    beats += section(SectionKind.PROGRAM, 0, 0, [], False)  # an empty section is no error
    writes, good = load(beats, stall)
    assert good
    assert writes == expected
    writes, good = load(beats + section(SectionKind.END, 0, 0, [], False) + [7] * 20, stall)
    assert good
    assert writes == expected


@pytest.mark.parametrize(
    "beats",
    [
        section(9, 0, 0, [1], False),
        section(SectionKind.STREAM, CONFIG.pes, 0, [1], True),
        section(SectionKind.TABLE, CONFIG.branches, 0, [1], True),
        section(SectionKind.PROGRAM, 0, CONFIG.program_depth_words - 1, [1, 2], False),
        section(SectionKind.STREAM, 0, 0xFFFFFFFF, [1], True),
        [pack(SECTION_FIELDS, {"kind": SectionKind.TABLE, "index": 0, "address": 0, "words": 0x8001}), 5],
        section(SectionKind.PROGRAM, 0, 0, [1, 2, 3], False)[:-1],
        section(SectionKind.TABLE, 0, 0, [1, 2, 3], True)[:-1],
    ],
)
def test_bad_sections(beats):
    good_section = section(SectionKind.STREAM, 1, 3, [5], True)
    assert load(good_section + beats) == ([("stream", 0, 1, 3, 5)], False)


def test_empty_image():
    assert load([], length=0) == ([], False)


STREAMING = dataclasses.replace(CONFIG, streaming=True)


class Batches:
    """A loader with batches of streams in memory; `writes` has its writes, in order.

    batches: beats of each; needs: batches that must have been left before it, and `left` how many have been.
    """

    def __init__(self, batches, needs, rng, stall):
        self.batches, self.needs, self.rng, self.stall = batches, needs, rng, stall
        self.dut = Loader(STREAMING)
        self.writes = []
        self.left = self.held = self.commands = 0

    async def memory(self, ctx):
        """Answer commands, which must not come before they may."""
        dut, address = self.dut, 0x12345670
        for beats, need in zip(self.batches, self.needs, strict=True):
            (command,) = await receive(ctx, dut.command, 1, self.rng, self.stall)
            assert (command.address, command.beats) == (address, len(beats))
            assert self.left >= need
            assert not self.held
            assert ctx.get(dut.loaded) == self.commands % 16
            assert ctx.get(dut.reading)
            self.commands += 1
            address += 16 * len(beats)
            await send(ctx, dut.beats, [{"data": b, "last": 0} for b in beats], self.rng, self.stall)

    async def elements(self, ctx):
        """Leave batches that have been loaded after a while, and hold the loader now and then."""
        dut = self.dut
        while True:
            ctx.set(dut.space, (self.left - ctx.get(dut.required)) % 16 < 8)
            await ctx.tick()
            if (ctx.get(dut.loaded) - self.left) % 16 and self.rng.random() < 0.05:
                self.left += 1
            if not ctx.get(dut.reading):
                self.held = int(self.rng.random() < 0.3) if self.rng.random() < 0.1 else self.held
                ctx.set(dut.hold, self.held)

    async def watch(self, ctx):
        """Note writes, and how many batches counted as loaded by then."""
        dut = self.dut
        async for _, _, *values in ctx.tick().sample(
            dut.stream_enable, dut.write_pe, dut.write_address, dut.write_data, dut.loaded
        ):
            if values[0]:
                self.writes.append((values[0].bit_length() - 1, *values[1:]))

    async def start(self, ctx):
        """Restart, then start with the first batch."""
        dut = self.dut
        ctx.set(dut.restart, 1)
        await ctx.tick()
        ctx.set(dut.restart, 0)
        ctx.set(dut.address, 0x12345670)
        ctx.set(dut.length, 16 * len(self.batches[0]))
        ctx.set(dut.stream, 1)
        ctx.set(dut.start, 1)
        await ctx.tick()
        ctx.set(dut.start, 0)
        done, error = await ctx.tick().sample(dut.done, dut.error).until(dut.done | dut.error)
        assert not ctx.get(dut.busy)
        return done and not error

    def run(self):
        """Load all of them; returns whether that ended without an error."""
        ended = []

        async def main(ctx):
            ended.append(await self.start(ctx))
            await ctx.tick().repeat(2)

        simulate(self.dut, main, background=[self.memory, self.elements, self.watch])
        return ended[0]


@pytest.mark.parametrize("stall", [0.0, 0.5])
def test_batches(stall):
    rng = generator(8)
    count = 25  # more than the counters can tell apart
    contents, expected = [], []
    for number in range(count):
        beats = []
        for index, place in enumerate(PE_PLACES):
            address, words = rng.randrange(200), [rng.getrandbits(72) for _ in range(rng.randrange(1, 12))]
            beats += section(SectionKind.STREAM, index, address, words, True)
            expected += [(*place, address + n, word, number % 16) for n, word in enumerate(words)]
        contents.append(beats)
    needs = [max(0, number - rng.randrange(1, 8)) for number in range(count)]
    padding = [rng.randrange(5) for _ in range(count)]
    sizes = [len(beats) + 1 + more for beats, more in zip(contents, padding, strict=True)]
    batches = [
        [*beats, pack(SECTION_FIELDS, {"kind": SectionKind.END, "index": need, "words": size}), *[7] * more]
        for beats, need, size, more in zip(contents, [*needs[1:], 0], [*sizes[1:], 0], padding, strict=True)
    ]
    bench = Batches(batches, needs, rng, stall)
    assert bench.run()
    assert bench.writes == expected
    assert bench.commands == count


def test_bad_batch():
    """A section that the hardware has no memory for ends all, as in a program image."""
    end = {"kind": SectionKind.END, "index": 0, "words": 2}
    good = [*section(SectionKind.STREAM, 1, 3, [5], True), pack(SECTION_FIELDS, end)]
    bad = section(SectionKind.STREAM, CONFIG.pes, 0, [1], True)
    bench = Batches([good, bad], [0, 0], generator(9), 0.3)
    assert not bench.run()
    assert bench.writes == [(0, 1, 3, 5, 0)]
