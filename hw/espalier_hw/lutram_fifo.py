"""First-in first-out buffer in distributed RAM whose writer counts credits."""

from __future__ import annotations

from typing import Any

from amaranth.hdl import Module, Signal
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
