"""Top level: register bank, command control, AXI engines and the core, behind AXI ports with usual names."""

from __future__ import annotations

from typing import Any

from amaranth.hdl import Cat, ClockDomain, DomainRenamer, Module, Signal, Value
from amaranth.lib import wiring
from amaranth.lib.wiring import In, Out, connect

from espalier.arch.config import HardwareConfig
from espalier_hw.axi_read import AxiRead
from espalier_hw.axi_write import AxiWrite
from espalier_hw.control import CommandControl
from espalier_hw.core import Core
from espalier_hw.csr import AXI_LITE, Csr

CONTROL_PREFIX, MEMORY_PREFIX = "s_axi_ctrl_", "m_axi_"


def axi_master(config: HardwareConfig) -> dict[str, dict[str, wiring.Member]]:
    """Ports of the AXI4 master without their prefix, reading and writing channels apart."""
    address = {
        "id": 1,
        "addr": config.axi_address_bits,
        "len": 8,
        "size": 3,
        "burst": 2,
        "cache": 4,
        "prot": 3,
    }
    request = {name: Out(bits) for name, bits in address.items()} | {"valid": Out(1), "ready": In(1)}
    read = {"id": In(1), "data": In(config.axi_data_bits), "resp": In(2), "last": In(1)}
    write = {"data": Out(config.axi_data_bits), "strb": Out(config.axi_bytes), "last": Out(1)}
    answer = {"id": In(1), "resp": In(2)}
    channels = {
        "read": {"ar": request, "r": read | {"valid": In(1), "ready": Out(1)}},
        "write": {
            "aw": request,
            "w": write | {"valid": Out(1), "ready": In(1)},
            "b": answer | {"valid": In(1), "ready": Out(1)},
        },
    }
    return {
        side: {prefix + name: member for prefix, members in parts.items() for name, member in members.items()}
        for side, parts in channels.items()
    }


class Espalier(wiring.Component):
    """The accelerator.

    aclk, aresetn: clock and reset (active low) of everything. s_axi_ctrl_*: AXI4-Lite slave, the registers.
    m_axi_*: AXI4 master to DDR. interrupt: level, active high.
    primitives: "behavioural", or the vendor whose primitives the branches instantiate.

    Inside, trace_valid_0, trace_bank_0, trace_address_0, trace_data_0, trace_layer_0, and the same with 1,
    show every write into the feature memory one cycle late, for simulation; nothing reads them.
    """

    def __init__(self, config: HardwareConfig, primitives: str = "behavioural") -> None:
        self.config, self.primitives = config, primitives
        members = {"aclk": In(1), "aresetn": In(1), "interrupt": Out(1)}
        for name, member in AXI_LITE.flip().members.items():
            members[CONTROL_PREFIX + name] = wiring.Member(member.flow, member.shape)
        for ports in axi_master(config).values():
            members |= {MEMORY_PREFIX + name: member for name, member in ports.items()}
        super().__init__(members)

    def elaborate(self, platform: Any) -> Module:
        """Two resets on one clock: `bus` for registers and AXI engines, `sync` for the core."""
        m = Module()
        self.csr, self.control = Csr(self.config), CommandControl(self.config.streaming)
        self.read, self.write = AxiRead(self.config), AxiWrite(self.config)
        self.core = Core(self.config, self.primitives)
        in_bus = DomainRenamer("bus")
        m.submodules.csr = in_bus(self.csr)
        m.submodules.commands = in_bus(self.control)
        m.submodules.axi_read = in_bus(self.read)
        m.submodules.axi_write = in_bus(self.write)
        m.submodules.core = self.core
        self._domains(m)
        self._ports(m, CONTROL_PREFIX, self.csr.bus, list(AXI_LITE.members))
        for side, engine in (("read", self.read), ("write", self.write)):
            self._ports(m, MEMORY_PREFIX, engine, list(axi_master(self.config)[side]))
        self._engines(m)
        self._registers(m)
        self._commands(m)
        self._trace(m)
        return m

    def _domains(self, m: Module) -> None:
        """Both resets are registered: an unregistered one would tie every register to an input."""
        unreset, bus, core = ClockDomain("unreset", reset_less=True), ClockDomain("bus"), ClockDomain("sync")
        bus.rst, core.rst = Signal(init=1, name="bus_reset"), Signal(init=1, name="core_reset")
        for domain in (unreset, bus, core):
            domain.clk = self.aclk
        m.domains += [unreset, bus, core]
        m.d.unreset += [bus.rst.eq(~self.aresetn), core.rst.eq(~self.aresetn | self.control.core_reset)]

    def _ports(self, m: Module, prefix: str, block: Any, names: list[str]) -> None:
        for name in names:
            inner, outer = getattr(block, name), getattr(self, prefix + name)
            drives_port = self.signature.members[prefix + name].flow == wiring.Out
            m.d.comb += outer.eq(inner) if drives_port else inner.eq(outer)

    def _engines(self, m: Module) -> None:
        """While the engines flush, they finish what is on the bus and take nothing from the core."""
        core, flush = self.core, self.control.flush
        for engine, command in ((self.read, core.read_command), (self.write, core.write_command)):
            m.d.comb += [
                engine.flush.eq(flush),
                engine.command.payload.eq(command.payload),
                engine.command.valid.eq(command.valid & ~flush),
                command.ready.eq(engine.command.ready & ~flush),
            ]
        connect(m, self.read.data, core.read_data)
        connect(m, core.write_data, self.write.data)
        m.d.comb += [
            core.write_idle.eq(self.write.idle),
            self.control.bus_idle.eq(self.read.idle & self.write.idle),
        ]

    def _address(self, name: str) -> Value:
        return Cat(getattr(self.csr, name), getattr(self.csr, f"{name}_high"))[: self.config.axi_address_bits]

    def _registers(self, m: Module) -> None:
        csr, control, core = self.csr, self.control, self.core
        for name in ("status", "error_code", "cycles", "read_beats", "write_beats"):
            m.d.comb += getattr(csr, name).eq(getattr(control, name))
        for name in ("program_address", "input_address", "output_address", "scratch_address"):
            m.d.comb += getattr(core, name).eq(self._address(name))
        m.d.comb += [
            core.program_bytes.eq(csr.program_bytes),
            csr.layer.eq(core.layer),
            csr.state.eq(core.state),
            core.counter_address.eq(csr.counter_address),
            csr.counter_data.eq(core.counter_data),
            control.control.eq(csr.control),
            control.interrupt_enable.eq(csr.interrupt_enable[0]),
            self.interrupt.eq(control.interrupt),
        ]

    def _commands(self, m: Module) -> None:
        control, core = self.control, self.core
        for unit in ("loader", "sequencer"):
            m.d.comb += getattr(core, f"{unit}_start").eq(getattr(control, f"{unit}_start"))
            for result in ("done", "error"):
                m.d.comb += getattr(control, f"{unit}_{result}").eq(getattr(core, f"{unit}_{result}"))
        for side, engine in (("read", self.read), ("write", self.write)):
            m.d.comb += [
                getattr(control, f"{side}_error").eq(engine.error),
                getattr(control, f"{side}_beat").eq(engine.beats),
            ]

    def _trace(self, m: Module) -> None:
        for port, observed in enumerate(self.core.observed):
            for name in ("valid", "layer", "bank", "address", "data"):
                source = observed[name]
                kept = Signal(len(source), name=f"trace_{name}_{port}", reset_less=name != "valid")
                m.d.sync += kept.eq(source)
