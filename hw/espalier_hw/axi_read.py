"""AXI4 read engine: commands in, beats out."""

from __future__ import annotations

from amaranth.hdl import Cat, Module, Mux, Signal
from amaranth.lib import fifo, stream, wiring
from amaranth.lib.wiring import In, Out

from espalier.arch.config import HardwareConfig
from espalier_hw.axi_burst import OKAY, BurstSplitter, address_ports, fixed_address_fields
from espalier_hw.interfaces import dma_beat, dma_command

# Bursts that may be under way: enough to hide a DDR latency of 4 * burst_beats cycles.
OUTSTANDING = 4


class AxiRead(wiring.Component):
    """Reads whole commands in bursts of at most `burst_beats`, several of them ahead.

    command: byte address, a multiple of the beat size, and beats. data: the beats in order, `last` with the
    last one of a command. A burst is requested only when the buffer has room for all of it, so the R channel
    never waits. flush: level; start no more bursts, swallow those under way, forget command and buffer.
    idle: level; nothing commanded, under way or buffered. error: pulse, a beat with another answer than OKAY.
    beats: pulse per beat.
    """

    def __init__(self, config: HardwareConfig) -> None:
        self.config = config
        channel = {"rid": In(1), "rdata": In(config.axi_data_bits), "rresp": In(2), "rlast": In(1)}
        super().__init__(
            {
                "command": In(stream.Signature(dma_command(config))),
                "data": Out(stream.Signature(dma_beat(config))),
                "flush": In(1),
                "idle": Out(1),
                "error": Out(1),
                "beats": Out(1),
                **address_ports(config, "ar"),
                **channel,
                "rvalid": In(1),
                "rready": Out(1),
            }
        )

    def elaborate(self, platform: object) -> Module:
        """Request bursts, remember which of them end a command, buffer the beats."""
        m = Module()
        depth = OUTSTANDING * self.config.burst_beats
        m.submodules.splitter = splitter = BurstSplitter(self.config)
        m.submodules.buffer = buffer = fifo.SyncFIFOBuffered(width=self.config.axi_data_bits + 1, depth=depth)
        wiring.connect(m, wiring.flipped(self.command), splitter.command)
        # What is taken from the buffer counts a cycle later: the user's `ready` may come from deep logic.
        room, left_buffer = Signal(range(depth + 1), init=depth), Signal()
        taken = Signal()
        started, last_in_command = self._requests(m, splitter, room)
        m.d.comb += [
            splitter.clear.eq(self.flush),
            self.rready.eq(1),
            buffer.w_en.eq(self.rvalid),
            buffer.w_data.eq(Cat(self.rdata, self.rlast & last_in_command)),
            self.data.payload.eq(buffer.r_data),
            self.data.valid.eq(buffer.r_rdy & ~self.flush),
            taken.eq(buffer.r_rdy & (self.data.ready | self.flush)),
            buffer.r_en.eq(taken),
            self.idle.eq(~splitter.busy & (room == depth)),
        ]
        m.d.sync += [
            left_buffer.eq(taken),
            room.eq(room + left_buffer - Mux(started, splitter.burst.payload.beats, 0)),
            self.error.eq(self.rvalid & (self.rresp != OKAY)),
            self.beats.eq(self.rvalid),
        ]
        return m

    def _requests(self, m: Module, splitter: BurstSplitter, room: Signal) -> tuple[Signal, Signal]:
        """Fill the AR register; returns when, and whether the oldest burst under way ends its command."""
        burst = splitter.burst.payload
        under_way, ends = Signal(range(OUTSTANDING + 1)), Signal(OUTSTANDING)
        started, finished = Signal(), Signal()
        m.d.comb += fixed_address_fields(self, self.config, "ar")
        m.d.comb += [
            started.eq(
                splitter.burst.valid
                & ~self.flush
                & (~self.arvalid | self.arready)
                & (under_way != OUTSTANDING)
                & (room >= burst.beats)
            ),
            splitter.burst.ready.eq(started),
            finished.eq(self.rvalid & self.rlast),
        ]
        with m.If(started):
            m.d.sync += [self.araddr.eq(burst.address), self.arlen.eq(burst.beats - 1), self.arvalid.eq(1)]
        with m.Elif(self.arready):
            m.d.sync += self.arvalid.eq(0)
        # One bit a burst, the oldest at the right.
        place = Mux(finished, under_way - 1, under_way)[: OUTSTANDING.bit_length() - 1]
        remaining = Mux(finished, ends >> 1, ends)
        m.d.sync += [
            under_way.eq(under_way + started - finished),
            ends.eq(Mux(started & burst.last, remaining | (1 << place), remaining)),
        ]
        return started, ends[0]
