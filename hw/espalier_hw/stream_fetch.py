"""Reads a PE's operator stream: header, then the loop of operator words for ever, one operator a cycle."""

from __future__ import annotations

from typing import Any

from amaranth.hdl import Module, Signal
from amaranth.lib import memory, stream, wiring
from amaranth.lib.memory import MemoryData
from amaranth.lib.wiring import In, Out

from espalier.arch.config import HardwareConfig
from espalier.arch.operators import (
    HEADER_FIELDS,
    OPERATOR_BITS,
    OPERATOR_FIELDS,
    OPERATORS_PER_WORD,
    STREAM_WORD_BITS,
)
from espalier_hw.interfaces import memory_write, struct

OPERATOR = struct(OPERATOR_FIELDS)
HEADER = struct(HEADER_FIELDS)


class StreamFetch(wiring.Component):
    """Stream memory and prefetcher.

    restart: pulse, the next layer's header is word 0. start: pulse, read the next header, then deliver its
    loop again and again (also beyond the last tile: the user stops taking) until the next start.
    filters: field of the header, valid with the first operator. operators: no gap between words or loops.
    """

    def __init__(self, config: HardwareConfig) -> None:
        self._depth = config.stream_depth_words
        super().__init__(
            {
                "restart": In(1),
                "start": In(1),
                "write": In(memory_write(14, STREAM_WORD_BITS)),
                "filters": Out(6),
                "operators": Out(stream.Signature(OPERATOR)),
            }
        )

    def elaborate(self, platform: Any) -> Module:
        """Memory, address counter, and a word register ahead of the operator register."""
        m = Module()
        m.submodules.memory = storage = memory.Memory(
            MemoryData(shape=STREAM_WORD_BITS, depth=self._depth, init=[]), attrs={"ram_style": "ultra"}
        )
        write = storage.write_port()
        self._read = storage.read_port()
        m.d.comb += [
            write.en.eq(self.write.enable),
            write.addr.eq(self.write.address),
            write.data.eq(self.write.data),
        ]
        # `ahead`: the memory's output register holds a word that has not been taken yet.
        self._ahead = Signal()
        self._load = Signal()
        self._address_counter(m)
        self._word_register(m)
        return m

    def _address_counter(self, m: Module) -> None:
        """Header, then addresses `first` to `end` - 1 in a circle; `end` is where the next header lies."""
        read = self._read
        address, first, end = (Signal.like(read.addr) for _ in range(3))
        after = Signal.like(read.addr)
        header = HEADER(read.data[: HEADER.size])
        at_header, has_header, looping = Signal(), Signal(), Signal()
        m.d.comb += [
            read.addr.eq(address),
            read.en.eq(at_header | (looping & ~self._ahead)),
            after.eq(address + 1),
        ]
        m.d.sync += [at_header.eq(0), has_header.eq(at_header)]
        with m.If(self._load):
            m.d.sync += self._ahead.eq(0)
        with m.If(read.en):
            m.d.sync += [self._ahead.eq(looping), address.eq(after)]
            with m.If(looping & (after == end)):
                m.d.sync += address.eq(first)
        with m.If(has_header):
            m.d.sync += [
                self.filters.eq(header.filters),
                first.eq(address),
                end.eq(address + header.loop_words),
                looping.eq(header.loop_words != 0),
            ]
        with m.If(self.start):
            m.d.sync += [address.eq(end), at_header.eq(1), looping.eq(0), self._ahead.eq(0)]
        with m.If(self.restart):
            m.d.sync += end.eq(0)

    def _word_register(self, m: Module) -> None:
        """Split words into operators; a word is fetched within the six cycles the one before it lasts."""
        word = Signal(STREAM_WORD_BITS, reset_less=True)
        word_valid, take = Signal(), Signal()
        index = Signal(range(OPERATORS_PER_WORD))
        operator = Signal(OPERATOR, reset_less=True)
        last = index == OPERATORS_PER_WORD - 1
        m.d.comb += [
            self.operators.payload.eq(operator),
            take.eq(word_valid & (~self.operators.valid | self.operators.ready)),
            self._load.eq(self._ahead & (~word_valid | (take & last))),
        ]
        with m.If(self.operators.ready):
            m.d.sync += self.operators.valid.eq(0)
        with m.If(take):
            m.d.sync += [
                operator.eq(word.word_select(index, OPERATOR_BITS)),
                self.operators.valid.eq(1),
                index.eq(index + 1),
            ]
            with m.If(last):
                m.d.sync += [index.eq(0), word_valid.eq(0)]
        with m.If(self._load):
            m.d.sync += [word.eq(self._read.data), word_valid.eq(1)]
        with m.If(self.start):
            m.d.sync += [word_valid.eq(0), index.eq(0), self.operators.valid.eq(0)]
