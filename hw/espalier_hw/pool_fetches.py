"""Leaves out the column steps of pooling layers, so that the window walker spends no cycles on them."""

from __future__ import annotations

from typing import Any

from amaranth.hdl import Array, Cat, Module, Mux, Signal
from amaranth.lib import wiring
from amaranth.lib.wiring import In, Out

from espalier.arch.program import MAX_PATTERNS
from espalier_hw.interfaces import PATTERN, PATTERN_ADDRESS_BITS, memory_write


class PoolFetches(wiring.Component):
    """Passes on the patterns with `fetch`, moved together to the beginning of their bank.

    pattern_write: every layer's patterns in ascending order, from the bank's first; `fetch_write` follows
    combinationally. bank: of the layer at work; pattern_count: its patterns with `fetch`.
    """

    def __init__(self) -> None:
        port = memory_write(PATTERN_ADDRESS_BITS, PATTERN.size)
        super().__init__(
            {
                "pattern_write": In(port),
                "fetch_write": Out(port),
                "bank": In(1),
                "pattern_count": Out(range(MAX_PATTERNS + 1)),
            }
        )

    def elaborate(self, platform: Any) -> Module:
        """Build the block."""
        m = Module()
        source, target = self.pattern_write, self.fetch_write
        counts = Array(Signal(range(MAX_PATTERNS + 1), name=f"count_{bank}") for bank in (0, 1))
        place = Signal(range(MAX_PATTERNS + 1))
        bank = source.address[-1]
        fetch = PATTERN(source.data).fetch
        m.d.comb += [
            place.eq(Mux(source.address[:-1] == 0, 0, counts[bank])),
            target.enable.eq(source.enable & fetch),
            target.address.eq(Cat(place[: PATTERN_ADDRESS_BITS - 1], bank)),
            target.data.eq(source.data),
            self.pattern_count.eq(counts[self.bank]),
        ]
        with m.If(source.enable):
            m.d.sync += counts[bank].eq(place + fetch)
        return m
