"""Runs inside the simulator: random networks through the AXI ports, every stored tensor against numerics.

ESPALIER_SEEDS: "first:last" of the networks. ESPALIER_SPACING: `pair_spacing_bits` of the accelerator.
"""

from __future__ import annotations

import itertools
import os
import random

import numpy as np
from bench_build import configuration
from cocotb.clock import Clock
from cocotb.triggers import ClockCycles, RisingEdge, with_timeout
from cocotbext.axi import AxiBus, AxiLiteBus, AxiLiteMaster, AxiRam

import cocotb
from espalier import numerics
from espalier.arch.feature_layout import pack_tiles
from espalier.arch.registers import Control, Status, offset_of
from espalier.backend.compiler import compile_graph, lower_integer_graph
from espalier.backend.options import CompileOptions
from espalier.passes.space_to_depth import rearrange_picture
from espalier_sim.random_networks import random_network

CONFIG = configuration(int(os.environ["ESPALIER_SPACING"]))
FIRST, LAST = (int(part) for part in os.environ["ESPALIER_SEEDS"].split(":"))
# Above 4 GiB, so that the high address registers matter; the memory model wraps around its size.
BASE, SIZE = 0x3_0000_0000, 1 << 22
CLOCK_NS = 10
TIMEOUT_MS = 20  # the longest of these networks takes 5 ms


class Host:
    """The accelerator behind cocotbext-axi masters and memories."""

    def __init__(self, dut):
        self.dut = dut
        reset = {"reset": dut.aresetn, "reset_active_level": False}
        self.master = AxiLiteMaster(AxiLiteBus.from_prefix(dut, "s_axi_ctrl"), dut.aclk, **reset)
        self.memory = AxiRam(AxiBus.from_prefix(dut, "m_axi"), dut.aclk, **reset, size=SIZE)

    def stall(self, seed):
        """Pause every channel at random."""
        rng = random.Random(seed)
        for side in (self.master, self.memory):
            for channel in ("aw", "w", "b"):
                self._pause(getattr(side.write_if, f"{channel}_channel"), rng)
            for channel in ("ar", "r"):
                self._pause(getattr(side.read_if, f"{channel}_channel"), rng)

    @staticmethod
    def _pause(channel, rng):
        share, own = rng.choice([0.0, 0.3, 0.7]), random.Random(rng.random())
        channel.set_pause_generator(own.random() < share for _ in itertools.repeat(None))

    async def start(self):
        """Clock and reset."""
        cocotb.start_soon(Clock(self.dut.aclk, CLOCK_NS, unit="ns").start())
        self.dut.aresetn.value = 0
        await ClockCycles(self.dut.aclk, 10)
        self.dut.aresetn.value = 1
        await ClockCycles(self.dut.aclk, 5)
        await self.write("INTERRUPT_ENABLE", 1)

    async def write(self, register, value):
        await self.master.write_dword(offset_of(register), value)

    async def read(self, register):
        return await self.master.read_dword(offset_of(register))

    async def set_address(self, name, offset):
        await self.write(f"{name}_ADDRESS", (BASE + offset) & 0xFFFFFFFF)
        await self.write(f"{name}_ADDRESS_HIGH", (BASE + offset) >> 32)

    async def command(self, command):
        """Give a command and wait for its interrupt."""
        await self.write("CONTROL", command)
        if not self.dut.interrupt.value:
            await with_timeout(RisingEdge(self.dut.interrupt), TIMEOUT_MS, "ms")
        status = await self.read("STATUS")
        assert status & Status.DONE and not status & (Status.ERROR | Status.BUSY), hex(status)
        await self.write("CONTROL", Control.CLEAR_INTERRUPT)


@cocotb.test()
@cocotb.parametrize(seed=list(range(FIRST, LAST)))
async def random_network_equals_numerics(dut, seed):
    graph, picture = random_network(seed)
    image = compile_graph(graph, CONFIG, CompileOptions(store_all=True))
    lowered = lower_integer_graph(graph, CONFIG)
    if factor := lowered.metadata.get("space_to_depth"):
        picture = rearrange_picture(picture, factor, graph.tensors[graph.input].zero_point)
    expected = numerics.run(lowered, picture)

    host = Host(dut)
    if seed % 3:
        host.stall(seed)
    await host.start()
    rng = random.Random(seed)
    program_at, input_at, output_at = (0x100000 * i + 16 * rng.randrange(1024) for i in range(3))
    program = image.program + bytes(-len(image.program) % 16)
    host.memory.write(program_at, program)
    await host.set_address("PROGRAM", program_at)
    await host.write("PROGRAM_BYTES", len(program))
    await host.command(Control.LOAD)

    host.memory.write(input_at, pack_tiles(picture, CONFIG, image.input.pad).tobytes())
    guard = bytes([0xA5]) * 64
    for repetition in range(2):  # the second call must not depend on the first
        target = output_at + 0x10000 * repetition * (image.output_bytes < 0x10000)
        host.memory.write(target, guard[:16] + bytes(image.output_bytes) + guard[:16])
        await host.set_address("INPUT", input_at)
        await host.set_address("OUTPUT", target + 16)
        await host.command(Control.START)
        content = host.memory.read(target, image.output_bytes + 32)
        assert content[:16] == content[-16:] == guard[:16], "written beyond the output"
        for name, info in image.metadata.tensors.items():
            if name == image.metadata.input or info.dram_offset < 0:
                continue
            found = info.stored(np.frombuffer(content[16:-16], np.uint8), CONFIG.tile_size)
            assert np.array_equal(found, expected[name]), f"call {repetition}, tensor {name} differs"
