"""AXI4 engines against a memory that stalls."""

import dataclasses

import pytest
from amaranth.hdl import Signal
from axi_memory import AxiMemory
from stalling import generator, receive, send, simulate

from espalier.arch.config import load_config
from espalier_hw.axi_burst import address_ports
from espalier_hw.axi_read import AxiRead
from espalier_hw.axi_write import AxiWrite

TINY = load_config("tiny")
BASE, SIZE = 0x7_0000_0000, 0x8000


class OneSided:
    """An engine as a whole master: the memory model's names, and signals that rest for the missing half."""

    def __init__(self, engine):
        self.engine, self.missing = engine, {}

    def __getattr__(self, name):
        name = name.removeprefix("m_axi_")
        if name in self.engine.signature.members:
            return getattr(self.engine, name)
        return self.missing.setdefault(name, Signal(128, name=name))


def random_commands(rng, count, burst_beats):
    """Commands of all lengths and alignments, some across 4 KiB."""
    commands = []
    for _ in range(count):
        beats = rng.choice([1, 2, 3, burst_beats, burst_beats + 1, rng.randint(1, 5 * burst_beats)])
        first = rng.choice([rng.randrange(SIZE // 16 - beats), 256 - rng.randint(0, min(beats, 255))])
        commands.append({"address": BASE + 16 * first, "beats": beats})
    return commands


@pytest.mark.parametrize(("burst_beats", "stall"), [(4, 0.4), (16, 0.0), (16, 0.6), (64, 0.3)])
def test_read(burst_beats, stall):
    config = dataclasses.replace(TINY, burst_beats=burst_beats)
    dut, rng = AxiRead(config), generator(burst_beats)
    memory = AxiMemory(OneSided(dut), BASE, SIZE, generator(1), stall)
    memory.put(BASE, rng.randbytes(SIZE))
    commands = random_commands(rng, 25, burst_beats)
    total = sum(command["beats"] for command in commands)
    received, counted = [], [0]

    async def sender(ctx):
        await send(ctx, dut.command, commands, generator(2), stall)

    async def receiver(ctx):
        received.extend(await receive(ctx, dut.data, total, generator(3), stall))
        await ctx.tick().repeat(3)
        assert ctx.get(dut.idle)
        assert memory.quiet

    async def counter(ctx):
        while True:
            _, _, beat, error, ready = await ctx.tick().sample(dut.beats, dut.error, dut.rready)
            counted[0] += beat
            assert not error
            assert ready

    simulate(dut, sender, receiver, background=[memory.run, counter])
    expected = [
        (
            int.from_bytes(memory[place : place + 16], "little"),
            place == command["address"] + 16 * command["beats"] - 16,
        )
        for command in commands
        for place in range(command["address"], command["address"] + 16 * command["beats"], 16)
    ]
    assert [(beat["data"], bool(beat["last"])) for beat in received] == expected
    assert counted[0] == total


def test_read_streams_without_gaps():
    """A memory that answers every burst 40 cycles late, but in parallel, still delivers a beat a cycle."""
    dut, beats, latency = AxiRead(TINY), 256, 40
    arrivals = []

    async def memory(ctx):
        cycle, bursts, beat = 0, [], 0
        ctx.set(dut.arready, 1)
        while True:
            due = bool(bursts) and bursts[0][0] <= cycle
            ctx.set(dut.rvalid, due)
            ctx.set(dut.rlast, due and beat == bursts[0][1])
            _, _, valid, length = await ctx.tick().sample(dut.arvalid, dut.arlen)
            cycle += 1
            if due:
                beat = 0 if beat == bursts[0][1] else beat + 1
                if beat == 0:
                    bursts.pop(0)
            if valid:
                bursts.append((cycle + latency, length))

    async def main(ctx):
        ctx.set(dut.command.payload, {"address": BASE, "beats": beats})
        ctx.set(dut.command.valid, 1)
        ctx.set(dut.data.ready, 1)
        await ctx.tick()
        ctx.set(dut.command.valid, 0)
        cycle = 0
        while len(arrivals) < beats:
            _, _, valid = await ctx.tick().sample(dut.data.valid)
            cycle += 1
            if valid:
                arrivals.append(cycle)

    simulate(dut, main, background=[memory])
    assert arrivals[-1] - arrivals[0] <= beats + 8


@pytest.mark.parametrize(("burst_beats", "stall"), [(4, 0.4), (16, 0.0), (16, 0.6), (64, 0.3)])
def test_write(burst_beats, stall):
    config = dataclasses.replace(TINY, burst_beats=burst_beats)
    dut, rng = AxiWrite(config), generator(burst_beats)
    memory = AxiMemory(OneSided(dut), BASE, SIZE, generator(1), stall)
    commands = random_commands(rng, 25, burst_beats)
    beats = [rng.getrandbits(128) for command in commands for _ in range(command["beats"])]
    expected, remaining = bytearray(SIZE), iter(beats)
    for command in commands:
        for beat in range(command["beats"]):
            place = command["address"] - BASE + 16 * beat
            expected[place : place + 16] = next(remaining).to_bytes(16, "little")

    async def commander(ctx):
        await send(ctx, dut.command, commands, generator(2), stall)

    async def feeder(ctx):
        await send(ctx, dut.data, [{"data": beat, "last": 0} for beat in beats], generator(3), stall)
        while not ctx.get(dut.idle):
            await ctx.tick()
        await ctx.tick()
        assert memory.quiet
        assert memory.content == expected
        assert memory.written_beats == len(beats)

    simulate(dut, commander, feeder, background=[memory.run])


@pytest.mark.parametrize("side", ["read", "write"])
def test_error_answers(side):
    """One failing beat: one pulse for the beat read, or for the burst written."""
    dut = AxiRead(TINY) if side == "read" else AxiWrite(TINY)
    memory = AxiMemory(OneSided(dut), BASE, SIZE, generator(4), 0.2)
    {"read": memory.fail_read, "write": memory.fail_write}[side].add(BASE + 16 * 21)
    errors = [0]

    async def main(ctx):
        await send(ctx, dut.command, [{"address": BASE, "beats": 40}], generator(5))
        if side == "read":
            await receive(ctx, dut.data, 40, generator(6))
        else:
            await send(ctx, dut.data, [{"data": 1, "last": 0}] * 40, generator(6))
        while not ctx.get(dut.idle):
            await ctx.tick()
        await ctx.tick().repeat(3)

    async def counter(ctx):
        while True:
            _, _, error = await ctx.tick().sample(dut.error)
            errors[0] += error

    simulate(dut, main, background=[memory.run, counter])
    assert errors[0] == 1


@pytest.mark.parametrize("after", [*range(1, 30), 50, 80])
def test_flush_of_a_read(after):
    """Flushed at any time, the engine comes to rest, and the next command gets its own data only."""
    dut, rng = AxiRead(TINY), generator(after)
    memory = AxiMemory(OneSided(dut), BASE, SIZE, generator(7 + after), 0.3)
    memory.put(BASE, rng.randbytes(SIZE))

    async def main(ctx):
        await send(ctx, dut.command, [{"address": BASE, "beats": 200}], rng, 0)
        ctx.set(dut.data.ready, after % 2)
        await ctx.tick().repeat(after)
        ctx.set(dut.flush, 1)
        ctx.set(dut.data.ready, 0)
        await ctx.tick()
        while not ctx.get(dut.idle):
            assert not ctx.get(dut.data.valid)
            await ctx.tick()
        await ctx.tick()
        assert memory.quiet
        ctx.set(dut.flush, 0)
        await send(ctx, dut.command, [{"address": BASE + 0x2000, "beats": 20}], rng, 0)
        beats = await receive(ctx, dut.data, 20, rng)
        content = b"".join(beat["data"].to_bytes(16, "little") for beat in beats)
        assert content == memory[BASE + 0x2000 : BASE + 0x2000 + 320]
        assert [beat["last"] for beat in beats] == [0] * 19 + [1]

    simulate(dut, main, background=[memory.run])


@pytest.mark.parametrize("after", [*range(1, 30), 50, 80])
def test_flush_of_a_write(after):
    """Bursts under way are completed without a byte more than was given."""
    dut, rng = AxiWrite(TINY), generator(after)
    memory = AxiMemory(OneSided(dut), BASE, SIZE, generator(7 + after), 0.3)
    feeding = [True]

    async def feeder(ctx):
        ctx.set(dut.data.payload, {"data": (1 << 128) - 1, "last": 0})
        while feeding[0]:
            ctx.set(dut.data.valid, rng.random() < 0.5)
            await ctx.tick()
        ctx.set(dut.data.valid, 0)

    async def main(ctx):
        await send(ctx, dut.command, [{"address": BASE, "beats": 100}], rng, 0)
        await ctx.tick().repeat(after)
        feeding[0] = False
        ctx.set(dut.flush, 1)
        await ctx.tick().repeat(4)
        while not ctx.get(dut.idle):
            await ctx.tick()
        await ctx.tick()
        assert memory.quiet
        ctx.set(dut.flush, 0)
        kept = bytes(memory.content).rstrip(b"\0")
        assert kept == b"\xff" * len(kept)
        assert len(kept) // 16 <= after + 3
        await send(ctx, dut.command, [{"address": BASE + 0x2000, "beats": 3}], rng, 0)
        await send(ctx, dut.data, [{"data": beat, "last": 0} for beat in (5, 6, 7)], rng)
        while not ctx.get(dut.idle):
            await ctx.tick()
        words = memory[BASE + 0x2000 : BASE + 0x2000 + 64]
        assert [int.from_bytes(words[i : i + 16], "little") for i in range(0, 64, 16)] == [5, 6, 7, 0]

    simulate(dut, main, feeder, background=[memory.run])


def test_fixed_fields():
    """INCR bursts of whole beats, bufferable, no lock, no quality of service."""
    for engine, prefix in ((AxiRead(TINY), "ar"), (AxiWrite(TINY), "aw")):
        assert set(address_ports(TINY, prefix)) <= set(engine.signature.members)

        async def main(ctx, engine=engine, prefix=prefix):
            await ctx.tick()
            values = {
                name: ctx.get(getattr(engine, prefix + name))
                for name in ("size", "burst", "cache", "lock", "qos", "id", "prot")
            }
            assert values == {"size": 4, "burst": 1, "cache": 3, "lock": 0, "qos": 0, "id": 0, "prot": 0}

        simulate(engine, main)
