"""AXI4-Lite slave: the register map of `espalier.arch.registers` and the window onto the layer counters."""

from __future__ import annotations

from typing import Any

from amaranth.hdl import Cat, Module, Mux, Signal
from amaranth.lib import wiring
from amaranth.lib.wiring import In, Out

from espalier.arch.config import ARCH_VERSION, HardwareConfig
from espalier.arch.registers import ADDRESS_BITS, COUNTER_BASE, COUNTERS, MAGIC, REGISTERS, Control

AXI_LITE = wiring.Signature(
    {
        "awaddr": Out(ADDRESS_BITS),
        "awprot": Out(3),
        "awvalid": Out(1),
        "awready": In(1),
        "wdata": Out(32),
        "wstrb": Out(4),
        "wvalid": Out(1),
        "wready": In(1),
        "bresp": In(2),
        "bvalid": In(1),
        "bready": Out(1),
        "araddr": Out(ADDRESS_BITS),
        "arprot": Out(3),
        "arvalid": Out(1),
        "arready": In(1),
        "rdata": In(32),
        "rresp": In(2),
        "rvalid": In(1),
        "rready": Out(1),
    }
)


def constant_registers(config: HardwareConfig) -> dict[str, int]:
    """Values of the registers that never change, by register name."""
    return {"MAGIC": MAGIC, "VERSION": ARCH_VERSION, "CONFIG_HASH": config.hash}


def counter_address_bits(config: HardwareConfig) -> int:
    """Address bits of the counter memory: layer * counters + counter."""
    return (config.max_layers * len(COUNTERS) - 1).bit_length()


class Csr(wiring.Component):
    """Registers as ports, named in lower case: `rw` are outputs, `ro` are inputs of 32 bits.

    control: the bits of CONTROL, each high for one cycle when written as one.
    counter_address, counter_data: read port of the counter memory, data one cycle after the address.
    Holes of the map read as zero and ignore writes; every access is answered with OKAY.
    """

    def __init__(self, config: HardwareConfig) -> None:
        self.config = config
        members: dict[str, wiring.Member] = {
            "bus": In(AXI_LITE),
            "control": Out(len(Control)),
            "counter_address": Out(counter_address_bits(config)),
            "counter_data": In(32),
        }
        for register in REGISTERS:
            if register.access == "rw":
                members[register.name.lower()] = Out(32)
            elif register.access == "ro" and register.name not in constant_registers(config):
                members[register.name.lower()] = In(32)
        super().__init__(members)

    def elaborate(self, platform: Any) -> Module:
        """Serve writes and reads independently of each other, one of each at a time."""
        m = Module()
        # Nothing may be accepted while the reset, which is registered, still holds.
        self.awake = Signal()
        m.d.sync += self.awake.eq(1)
        self._write(m)
        self._read(m)
        return m

    def _write(self, m: Module) -> None:
        bus = self.bus
        address, data, strobe = Signal(ADDRESS_BITS), Signal(32), Signal(4)
        have_address, have_data, commit = Signal(), Signal(), Signal()
        m.d.comb += [
            bus.awready.eq(self.awake & ~have_address),
            bus.wready.eq(self.awake & ~have_data),
            commit.eq(have_address & have_data & ~bus.bvalid),
        ]
        with m.If(bus.awvalid & bus.awready):
            m.d.sync += [address.eq(bus.awaddr), have_address.eq(1)]
        with m.If(bus.wvalid & bus.wready):
            m.d.sync += [data.eq(bus.wdata), strobe.eq(bus.wstrb), have_data.eq(1)]
        with m.If(commit):
            m.d.sync += [have_address.eq(0), have_data.eq(0), bus.bvalid.eq(1)]
        with m.Elif(bus.bready):
            m.d.sync += bus.bvalid.eq(0)

        m.d.sync += self.control.eq(0)
        merge = Cat(strobe[byte].replicate(8) for byte in range(4))
        with m.If(commit), m.Switch(address[2:]):
            for register in REGISTERS:
                if register.access == "ro":
                    continue
                with m.Case(register.offset // 4):
                    if register.access == "wo":
                        m.d.sync += self.control.eq(data & merge)
                    else:
                        value = getattr(self, register.name.lower())
                        for byte in range(4):
                            with m.If(strobe[byte]):
                                m.d.sync += value.word_select(byte, 8).eq(data.word_select(byte, 8))

    def _read(self, m: Module) -> None:
        bus = self.bus
        address, value = Signal(ADDRESS_BITS), Signal(32)
        busy, looked_up = Signal(), Signal()
        layers_end = COUNTER_BASE + self.config.max_layers * len(COUNTERS) * 4
        m.d.comb += [
            bus.arready.eq(self.awake & ~busy),
            self.counter_address.eq(address[2:]),
        ]
        with m.If(~busy):
            m.d.sync += [address.eq(bus.araddr), busy.eq(bus.arvalid & self.awake), looked_up.eq(0)]
        with m.Elif(~looked_up):
            m.d.sync += looked_up.eq(1)  # the counter memory reads in this cycle
        with m.Elif(~bus.rvalid):
            is_counter = (address >= COUNTER_BASE) & (address < layers_end)
            m.d.sync += [bus.rvalid.eq(1), bus.rdata.eq(Mux(is_counter, self.counter_data, value))]
        with m.Elif(bus.rready):
            m.d.sync += [bus.rvalid.eq(0), busy.eq(0)]

        constants = constant_registers(self.config)
        with m.Switch(address[2:]):
            for register in REGISTERS:
                if register.access == "wo":
                    continue
                with m.Case(register.offset // 4):
                    source = constants.get(register.name)
                    m.d.comb += value.eq(getattr(self, register.name.lower()) if source is None else source)
