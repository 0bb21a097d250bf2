"""Reads a PE's operator stream where parts of it come from DDR: a chain of segments."""

from __future__ import annotations

from typing import Any

from amaranth.hdl import Module, Signal
from amaranth.lib import memory
from amaranth.lib.wiring import In, Out

from espalier.arch.config import HardwareConfig
from espalier.arch.operators import STREAMING_HEADER_FIELDS
from espalier.arch.program import BATCH_COUNT_BITS
from espalier_hw.interfaces import struct
from espalier_hw.stream_fetch import HEADER, StreamFetch

SEGMENT = struct(STREAMING_HEADER_FIELDS)


class StreamedFetch(StreamFetch):
    """A `StreamFetch` that follows the chain of segments (`STREAMING_HEADER_FIELDS`) and counts batches.

    The header of the next segment is read as soon as its batch has been loaded: just after a word has been
    taken, so that the next word is there in time, or when nothing runs.
    loaded: batches loaded since the restart. required: batches that the loader wants to be left; space: they
    are. All are counted modulo 1 << BATCH_COUNT_BITS. Operators pause where a batch is missing.
    """

    def __init__(self, config: HardwareConfig) -> None:
        super().__init__(
            config,
            {"loaded": In(BATCH_COUNT_BITS), "required": In(BATCH_COUNT_BITS), "space": Out(1)},
        )

    def _address_counter(self, m: Module) -> None:
        """Walk segments; those that are not read once are loops."""
        read: memory.ReadPort = self._read
        address = Signal.like(read.addr)
        # Of the segment that runs, and of the one whose header was found last.
        first, end, next_first, next_end = (
            Signal.like(address, name=name, reset_less=True)
            for name in ("first", "end", "next_first", "next_end")
        )
        once, next_once = Signal(), Signal()
        segment, next_header = SEGMENT(read.data[: SEGMENT.size]), Signal(HEADER, reset_less=True)
        # `at_header`: the memory has put out a header; `continuation`: the one found continues the layer.
        at_header, continuation = Signal(), Signal()
        read_header, read_word, proceed, at_end = Signal(), Signal(), Signal(), Signal()
        hungry = Signal()  # there are no more words
        m.d.sync += hungry.eq(once & at_end & ~self._ahead & ~proceed)
        seek = self._seek(m, read_header, at_header, once, hungry, segment, proceed)
        m.d.comb += [
            self.layers.payload.eq(next_header),
            at_end.eq(address == end),
            proceed.eq(once & at_end & continuation),
            read_word.eq(~self._ahead & ~read_header & ~(once & at_end)),
            read.addr.eq(address),
            read.en.eq(read_header | read_word),
        ]
        m.d.sync += at_header.eq(read_header)
        with m.If(read_header):
            m.d.comb += read.addr.eq(seek)
        with m.If(self._load | read_header):
            m.d.sync += self._ahead.eq(0)
        with m.If(read_word):
            m.d.sync += [address.eq(address + 1), self._ahead.eq(1)]
        with m.If(self._ahead & at_end & ~once):
            m.d.sync += address.eq(first)
        with m.If(at_header):
            start = seek + 1
            m.d.sync += [next_header[name].eq(segment[name]) for name in HEADER.members]
            m.d.sync += [
                next_first.eq(start),
                next_end.eq(start + segment.loop_words),
                next_once.eq(segment.once),
                continuation.eq(once),
                self.layers.valid.eq(~once & ~segment.end & (segment.sets != 0)),
            ]
        with m.If(proceed | self._begin):
            m.d.sync += [first.eq(next_first), end.eq(next_end), address.eq(next_first), once.eq(next_once)]
            m.d.sync += continuation.eq(0)
        with m.If(self._begin):
            m.d.sync += [self.layers.valid.eq(0), self._ahead.eq(0)]
        with m.If(self.restart):
            m.d.sync += [once.eq(0), continuation.eq(0), at_header.eq(0), hungry.eq(0)]
            m.d.sync += [self.layers.valid.eq(0), self._ahead.eq(0)]

    def _seek(
        self,
        m: Module,
        read_header: Signal,
        at_header: Signal,
        once: Signal,
        hungry: Signal,
        segment: Any,
        proceed: Signal,
    ) -> Signal:
        """Say when to read the next header, and count batches; returns the header's address.

        once: that header continues the layer. hungry: the segment that runs has no more words.
        """
        place = Signal.like(self._read.addr)
        taken, released = Signal(BATCH_COUNT_BITS), Signal(BATCH_COUNT_BITS)
        # The header is to be found, it comes with a batch; the segment found came with one.
        seeking, wait, streamed = Signal(init=1), Signal(), Signal()
        fresh, idle, left = Signal(), Signal(), Signal.like(released)
        m.d.comb += [
            read_header.eq(seeking & ~at_header & (~wait | (self.loaded != taken)) & (fresh | idle | hungry)),
            left.eq(released - self.required),
            self.space.eq(~left[-1]),
        ]
        m.d.sync += [
            fresh.eq(self._load & ~self._begin),
            # Nobody wants the operators of the layer before any more.
            idle.eq(self.layers.ready & ~self.layers.valid),
        ]
        with m.If(idle | hungry):
            m.d.sync += released.eq(taken)
        with m.If(at_header):
            m.d.sync += [
                place.eq(segment.next),
                wait.eq(segment.wait),
                streamed.eq(segment.streamed),
                taken.eq(taken + wait),
                # Segments of layers in which this PE rests have a header and nothing else.
                seeking.eq(~once & ~segment.end & (segment.sets == 0)),
            ]
        with m.If(self._begin | proceed):
            m.d.sync += [seeking.eq(1), released.eq(taken - streamed)]
        with m.If(self.restart):
            m.d.sync += [place.eq(0), seeking.eq(1), wait.eq(0), taken.eq(0), released.eq(0)]
        return place
