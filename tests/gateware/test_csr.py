"""Register bank and layer counters."""

from __future__ import annotations

import pytest
from axi_lite import read, write
from stalling import generator, simulate

from espalier.arch.config import load_config
from espalier.arch.registers import COUNTER_BASE, COUNTERS, REGISTERS, Control, offset_of
from espalier_hw.counters import LayerCounters
from espalier_hw.csr import Csr, constant_registers

CONFIG = load_config("tiny")


def test_every_register_of_the_table():
    dut, rng = Csr(CONFIG), generator(1)
    status = {r.name: rng.getrandbits(32) for r in REGISTERS if r.access == "ro"} | constant_registers(CONFIG)

    async def bench(ctx):
        for name, value in status.items():
            if name not in constant_registers(CONFIG):
                ctx.set(getattr(dut, name.lower()), value)
        content = dict.fromkeys((r.name for r in REGISTERS if r.access == "rw"), 0)
        for _ in range(100):
            register = rng.choice(REGISTERS)
            value, strobe = rng.getrandbits(32), rng.getrandbits(4)
            await write(ctx, dut.bus, register.offset, value, rng, strobe)
            if register.name in content:
                mask = sum(0xFF << 8 * byte for byte in range(4) if strobe >> byte & 1)
                content[register.name] = content[register.name] & ~mask | value & mask
            register = rng.choice(REGISTERS)
            expected = {"CONTROL": 0} | status | content
            assert await read(ctx, dut.bus, register.offset, rng) == expected[register.name]
        for name, value in content.items():
            assert ctx.get(getattr(dut, name.lower())) == value

    simulate(dut, bench)


def test_holes_read_zero_and_ignore_writes():
    dut, rng = Csr(CONFIG), generator(2)
    used = {register.offset for register in REGISTERS}
    counters_end = COUNTER_BASE + 32 * CONFIG.max_layers

    async def bench(ctx):
        ctx.set(dut.counter_data, 0x55)
        for address in [*sorted(set(range(0, 0x80, 4)) - used), 0x7FFC, counters_end, 0xFFFC]:
            await write(ctx, dut.bus, address, 0xFFFFFFFF, rng)
            assert await read(ctx, dut.bus, address, rng) == 0
        assert await read(ctx, dut.bus, counters_end - 4, rng) == 0x55

    simulate(dut, bench)


def test_control_pulses_last_one_cycle_and_need_their_byte():
    dut, rng = Csr(CONFIG), generator(3)
    pulses = []

    async def watch(ctx):
        async for _, _, control in ctx.tick().sample(dut.control):
            if control:
                pulses.append(control)

    async def bench(ctx):
        await write(ctx, dut.bus, offset_of("CONTROL"), Control.START | Control.CLEAR_INTERRUPT, rng)
        await write(ctx, dut.bus, offset_of("CONTROL"), Control.RESET, rng, strobe=14)
        await write(ctx, dut.bus, offset_of("CONTROL"), Control.LOAD, rng, strobe=1)

    simulate(dut, bench, background=[watch])
    assert pulses == [Control.START | Control.CLEAR_INTERRUPT, Control.LOAD]


@pytest.mark.parametrize("seed", range(3))
def test_layer_counters(seed):
    dut, rng = LayerCounters(CONFIG), generator(seed)
    names = [name for name, _ in COUNTERS]
    expected = {}

    async def bench(ctx):
        ctx.set(dut.begin, 1)
        for layer in (0, 5, CONFIG.max_layers - 1, CONFIG.max_layers, 6):
            sums = dict.fromkeys(names, 0)
            cycles = rng.randrange(10, 60)
            for cycle in range(cycles):
                for branch in range(CONFIG.branches):
                    for name, shape in dut.events[branch].shape().members.items():
                        # The block before a layer's end is quiet: events are summed a cycle late.
                        value = rng.getrandbits(shape.width) if cycle < cycles - 2 else 0
                        ctx.set(getattr(dut.events[branch], name), value)
                        sums[name] += value
                await ctx.tick()
                ctx.set(dut.begin, 0)
                ctx.set(dut.end, 0)
            ctx.set(dut.layer, layer)
            ctx.set(dut.end, 1)
            ctx.set(dut.begin, 1)
            expected[layer] = sums | {"cycles": cycles}
        await ctx.tick()
        ctx.set(dut.end, 0)
        await ctx.tick().until(~dut.busy)
        for layer, sums in expected.items():
            for index, name in enumerate(names):
                ctx.set(dut.address, layer * len(names) + index)
                await ctx.tick()
                if layer < CONFIG.max_layers:
                    assert ctx.get(dut.data) == sums[name], (layer, name)

    simulate(dut, bench)
