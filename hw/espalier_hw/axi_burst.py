"""What both AXI4 engines share: port names, and commands cut into bursts."""

from __future__ import annotations

from amaranth.hdl import Cat, Const, Module, Mux, Signal, Value
from amaranth.lib import data, stream, wiring
from amaranth.lib.wiring import In, Out

from espalier.arch.config import HardwareConfig
from espalier_hw.interfaces import BURST_COUNT_BITS, dma_command

BURST_INCR = 0b01
CACHE_BUFFERABLE = 0b0011
OKAY = 0b00


def address_ports(config: HardwareConfig, prefix: str) -> dict[str, wiring.Member]:
    """Members of an AXI4 address channel of a master; `prefix` is "ar" or "aw"."""
    bits = {
        "id": 1,
        "addr": config.axi_address_bits,
        "len": 8,
        "size": 3,
        "burst": 2,
        "lock": 1,
        "cache": 4,
        "prot": 3,
        "qos": 4,
        "valid": 1,
    }
    outputs = {prefix + name: Out(width) for name, width in bits.items()}
    return {**outputs, prefix + "ready": In(1)}


def fixed_address_fields(component: wiring.Component, config: HardwareConfig, prefix: str) -> list[Value]:
    """Assign the fields of an address channel that never change; the others stay zero."""
    values = {"size": config.axi_bytes.bit_length() - 1, "burst": BURST_INCR, "cache": CACHE_BUFFERABLE}
    return [getattr(component, prefix + name).eq(value) for name, value in values.items()]


def burst_layout(config: HardwareConfig) -> data.StructLayout:
    """One burst: byte address, beats, and whether it ends its command."""
    beats = config.burst_beats.bit_length()
    return data.StructLayout({"address": config.axi_address_bits, "beats": beats, "last": 1})


class BurstSplitter(wiring.Component):
    """Cuts commands into bursts that never cross a multiple of the longest burst, nor so 4 KiB.

    clear: level, forget the command. busy: level, a command is being cut, or its last burst offered. Outputs
    follow registers only.
    """

    def __init__(self, config: HardwareConfig) -> None:
        self.config = config
        super().__init__(
            {
                "command": In(stream.Signature(dma_command(config))),
                "burst": Out(stream.Signature(burst_layout(config))),
                "clear": In(1),
                "busy": Out(1),
            }
        )

    def elaborate(self, platform: object) -> Module:
        """One burst in two cycles at most; a command is taken when the one before is cut.

        The first burst ends at a multiple of the longest one, so that all others begin at one.
        """
        m = Module()
        config, burst = self.config, self.burst.payload
        beat_bits = config.axi_bytes.bit_length() - 1
        address = Signal(config.axi_address_bits - beat_bits, reset_less=True)  # in beats
        left = Signal(BURST_COUNT_BITS, reset_less=True)
        room = Signal(range(config.burst_beats + 1), reset_less=True)  # up to the next multiple
        cutting, last = Signal(), Signal()
        m.d.comb += [
            last.eq(left <= room),
            self.busy.eq(cutting | self.burst.valid),
            self.command.ready.eq(~cutting),
        ]
        low = config.burst_beats.bit_length() - 1
        first = self.command.payload.address[beat_bits:]
        with m.If(~cutting):
            m.d.sync += [
                address.eq(first),
                left.eq(self.command.payload.beats),
                room.eq(config.burst_beats - first[:low]),
                cutting.eq(self.command.valid),
            ]
        with m.If(cutting & ~self.burst.valid):
            m.d.sync += [
                burst.address.eq(address << beat_bits),
                burst.last.eq(last),
                burst.beats.eq(Mux(last, left, room)),
                self.burst.valid.eq(1),
                address.eq(Cat(Const(0, low), address[low:] + 1)),
                left.eq(left - room),
                room.eq(config.burst_beats),
                cutting.eq(~last),
            ]
        with m.If(self.burst.valid & self.burst.ready):
            m.d.sync += self.burst.valid.eq(0)
        with m.If(self.clear):
            m.d.sync += [cutting.eq(0), self.burst.valid.eq(0)]
        return m
