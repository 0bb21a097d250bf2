"""First-in first-out buffer in distributed RAM whose writer counts credits."""

from __future__ import annotations

from typing import Any

from amaranth.hdl import Cat, Module, Mux, Signal
from amaranth.lib import memory, wiring
from amaranth.lib.wiring import In, Out


class LutramFifo(wiring.Component):
    """Buffer of at least `depth` words of `width` bits; the oldest word shows at `read_data`.

    It has no back pressure: whoever writes must know that there is room. `level` counts the words
    held; `available` is high while there is one. `read` takes the oldest, only while `available`.
    """

    def __init__(self, width: int, depth: int) -> None:
        self.width = width
        self.address_bits = max(1, (depth - 1).bit_length())
        super().__init__(
            {
                "write": In(1),
                "write_data": In(width),
                "read": In(1),
                "read_data": Out(width),
                "available": Out(1),
                "level": Out(range((1 << self.address_bits) + 1)),
            }
        )

    def elaborate(self, platform: Any) -> Module:
        """Build the block."""
        m = Module()
        m.submodules.storage = storage = memory.Memory(
            shape=self.width, depth=1 << self.address_bits, init=[], attrs={"ram_style": "distributed"}
        )
        write_port = storage.write_port()
        read_port = storage.read_port(domain="comb")
        write_pointer = Signal(self.address_bits)
        read_pointer = Signal(self.address_bits)
        m.d.comb += [
            write_port.en.eq(self.write),
            write_port.addr.eq(write_pointer),
            write_port.data.eq(self.write_data),
            read_port.addr.eq(read_pointer),
            self.read_data.eq(read_port.data),
        ]
        m.d.sync += [
            write_pointer.eq(write_pointer + self.write),
            read_pointer.eq(read_pointer + self.read),
        ]
        with m.If(self.write & ~self.read):
            m.d.sync += [self.level.eq(self.level + 1), self.available.eq(1)]
        with m.Elif(~self.write & self.read):
            m.d.sync += [self.level.eq(self.level - 1), self.available.eq(self.level != 1)]
        return m


class EarlyFifo(wiring.Component):
    """A `LutramFifo` whose lowest `early` bits of the oldest word are registers, for decisions on them.

    While `available` is low, `read_data` means nothing.
    """

    def __init__(self, width: int, depth: int, early: int) -> None:
        """`early`: at least 1, less than `width`."""
        self.width, self.early = width, early
        self.address_bits = max(1, (depth - 1).bit_length())
        super().__init__(
            {
                "write": In(1),
                "write_data": In(width),
                "read": In(1),
                "read_data": Out(width),
                "available": Out(1),
            }
        )

    def elaborate(self, platform: Any) -> Module:
        """Keep the early bits apart, and read them a word ahead."""
        m = Module()
        write_pointer, pointer = Signal(self.address_bits), Signal(self.address_bits)
        following = Signal(self.address_bits, init=1)
        reads = []
        halves = (self.write_data[: self.early], following), (self.write_data[self.early :], pointer)
        for (data, address), name in zip(halves, ("early", "late"), strict=True):
            m.submodules[name] = storage = memory.Memory(
                shape=len(data), depth=1 << self.address_bits, init=[], attrs={"ram_style": "distributed"}
            )
            write_port, read_port = storage.write_port(), storage.read_port(domain="comb")
            m.d.comb += [
                write_port.en.eq(self.write),
                write_port.addr.eq(write_pointer),
                write_port.data.eq(data),
                read_port.addr.eq(address),
            ]
            reads.append(read_port.data)
        # `more`: there is a second word, if there is one at all.
        oldest, more = Signal(self.early, reset_less=True), Signal()
        m.d.comb += [
            more.eq(self.available & (following != write_pointer)),
            self.read_data.eq(Cat(oldest, reads[1])),
        ]
        m.d.sync += write_pointer.eq(write_pointer + self.write)
        with m.If(self.read):
            m.d.sync += [pointer.eq(following), following.eq(following + 1)]
        with m.If(self.read | ~self.available):
            m.d.sync += [
                oldest.eq(Mux(more, reads[0], self.write_data[: self.early])),
                self.available.eq(self.write | more),
            ]
        return m
