"""AXI4 write engine: commands and beats in."""

from __future__ import annotations

from amaranth.hdl import Module, Signal
from amaranth.lib import stream, wiring
from amaranth.lib.wiring import In, Out

from espalier.arch.config import HardwareConfig
from espalier_hw.arbitration import RegisterSlice
from espalier_hw.axi_burst import OKAY, BurstSplitter, address_ports, fixed_address_fields
from espalier_hw.interfaces import dma_beat, dma_command

# Bursts whose answer may still be missing when another one starts.
UNANSWERED = 8


class AxiWrite(wiring.Component):
    """Writes whole commands in bursts of at most `burst_beats`.

    command: byte address, a multiple of the beat size, and beats. data: as many beats (`last` is not needed).
    Address and first beat of a burst are offered together, neither waits for the other. flush: level; start
    no more bursts, fill those under way with beats that write no byte, forget command and data.
    idle: level; nothing commanded and every burst answered. error: pulse, an answer other than OKAY.
    beats: pulse per beat.
    """

    def __init__(self, config: HardwareConfig) -> None:
        self.config = config
        super().__init__(
            {
                "command": In(stream.Signature(dma_command(config))),
                "data": In(stream.Signature(dma_beat(config))),
                "flush": In(1),
                "idle": Out(1),
                "error": Out(1),
                "beats": Out(1),
                **address_ports(config, "aw"),
                "wdata": Out(config.axi_data_bits),
                "wstrb": Out(config.axi_bytes),
                "wlast": Out(1),
                "wvalid": Out(1),
                "wready": In(1),
                "bid": In(1),
                "bresp": In(2),
                "bvalid": In(1),
                "bready": Out(1),
            }
        )

    def elaborate(self, platform: object) -> Module:
        """One burst at a time on AW and W, answers counted."""
        m = Module()
        m.submodules.splitter = splitter = BurstSplitter(self.config)
        wiring.connect(m, wiring.flipped(self.command), splitter.command)
        burst = splitter.burst.payload
        started, beats_left, unanswered = Signal(), Signal(len(burst.beats)), Signal(range(UNANSWERED + 1))
        m.d.comb += fixed_address_fields(self, self.config, "aw")
        m.d.comb += [
            splitter.clear.eq(self.flush),
            started.eq(
                splitter.burst.valid
                & ~self.flush
                & (~self.awvalid | self.awready)
                & (beats_left == 0)
                & (unanswered != UNANSWERED)
            ),
            splitter.burst.ready.eq(started),
            self.bready.eq(1),
            self.idle.eq(~splitter.busy & (unanswered == 0)),
        ]
        with m.If(started):
            m.d.sync += [
                self.awvalid.eq(1),
                self.awaddr.eq(burst.address),
                self.awlen.eq(burst.beats - 1),
                beats_left.eq(burst.beats),
            ]
        with m.Elif(self.awready):
            m.d.sync += self.awvalid.eq(0)
        m.d.sync += [
            unanswered.eq(unanswered + started - self.bvalid),
            self.error.eq(self.bvalid & (self.bresp != OKAY)),
            self.beats.eq(self.wvalid & self.wready),
        ]
        self._beats(m, beats_left)
        return m

    def _beats(self, m: Module, beats_left: Signal) -> None:
        """Fill the W register while a burst is under way; while flushing, with empty beats."""
        m.submodules.slice = beats = RegisterSlice(dma_beat(self.config))
        wiring.connect(m, wiring.flipped(self.data), beats.input)
        free, taken = Signal(), Signal()
        m.d.comb += [
            free.eq((beats_left != 0) & (~self.wvalid | self.wready)),
            taken.eq(free & (beats.output.valid | self.flush)),
            beats.output.ready.eq(free | self.flush),
        ]
        with m.If(taken):
            m.d.sync += [
                self.wvalid.eq(1),
                self.wdata.eq(beats.output.payload.data),
                self.wstrb.eq(~self.flush.replicate(self.config.axi_bytes)),
                self.wlast.eq(beats_left == 1),
                beats_left.eq(beats_left - 1),
            ]
        with m.Elif(self.wready):
            m.d.sync += self.wvalid.eq(0)
