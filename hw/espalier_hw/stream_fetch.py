"""Reads a PE's operator stream: layer headers, and the loop of a layer for ever, one operator a cycle."""

from __future__ import annotations

from collections.abc import Mapping
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
_NONE: Mapping[str, wiring.Member] = {}


class StreamFetch(wiring.Component):
    """Stream memory and prefetcher.

    restart: pulse, start over with the header in word 0. layers: headers of layers with sets, read while the
    layer before runs; nothing comes after the end of the stream. Whoever takes one gets that layer's
    operators from then on, the first one four cycles later, its loop again and again until the next header is
    taken. operators: no gap between words or loops; those on offer when a header is taken are dropped.
    """

    def __init__(self, config: HardwareConfig, further: Mapping[str, wiring.Member] = _NONE) -> None:
        """`further`: ports of a class made from this one."""
        self._depth = config.stream_depth_words
        self._style = "ultra" if config.has_ultra_ram else "block"
        super().__init__(
            {
                "restart": In(1),
                "write": In(memory_write(14, STREAM_WORD_BITS)),
                "layers": Out(stream.Signature(HEADER)),
                "operators": Out(stream.Signature(OPERATOR)),
                **further,
            }
        )

    def elaborate(self, platform: Any) -> Module:
        """Memory, address counter, and a word register ahead of the operator register."""
        m = Module()
        m.submodules.memory = storage = memory.Memory(
            MemoryData(shape=STREAM_WORD_BITS, depth=self._depth, init=[]), attrs={"ram_style": self._style}
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
        self._begin = Signal()
        m.d.comb += self._begin.eq(self.layers.valid & self.layers.ready)
        self._address_counter(m)
        self._word_register(m)
        return m

    def _address_counter(self, m: Module) -> None:
        """Walk a loop: addresses `first` to `end` - 1, the first time on through the headers behind it."""
        read = self._read
        address = Signal.like(read.addr)
        # Of the loop that runs and of the layer on offer; without effect before the first layer.
        first, end, next_first, next_end = (
            Signal.like(address, name=name, reset_less=True)
            for name in ("first", "end", "next_first", "next_end")
        )
        header, next_header = HEADER(read.data[: HEADER.size]), Signal(HEADER, reset_less=True)
        # `seeking`: headers are read until one is found; `at_header`: the memory has put out one.
        first_time, seeking, at_header = Signal(), Signal(), Signal()
        m.d.comb += [
            self.layers.payload.eq(next_header),
            read.addr.eq(address),
            read.en.eq(~self._ahead & ~at_header),
        ]
        m.d.sync += at_header.eq(0)
        with m.If(self._load):
            m.d.sync += self._ahead.eq(0)
        with m.If(read.en):
            m.d.sync += [address.eq(address + 1), self._ahead.eq(~seeking), at_header.eq(seeking)]
        # While the last word waits in the output register, nothing is read.
        with m.If(self._ahead & (address == end)):
            m.d.sync += seeking.eq(first_time)
            with m.If(~first_time):
                m.d.sync += address.eq(first)
        with m.If(at_header):
            m.d.sync += [
                next_header.eq(header),
                next_first.eq(address),
                next_end.eq(address + header.loop_words),
            ]
            # Layers in which this PE rests have a header and nothing else.
            with m.If(header.end | (header.sets != 0)):
                m.d.sync += [self.layers.valid.eq(~header.end), seeking.eq(0), first_time.eq(0)]
                m.d.sync += address.eq(first)
        with m.If(self._begin):
            m.d.sync += [first.eq(next_first), end.eq(next_end), address.eq(next_first)]
            m.d.sync += [first_time.eq(1), self.layers.valid.eq(0), self._ahead.eq(0)]
        with m.If(self.restart):
            m.d.sync += [address.eq(0), seeking.eq(1), at_header.eq(0)]
            m.d.sync += [self.layers.valid.eq(0), self._ahead.eq(0)]

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
        with m.If(self._begin | self.restart):
            m.d.sync += [word_valid.eq(0), index.eq(0), self.operators.valid.eq(0)]
