"""Wide OR of the words of many PEs, of which at most one is not zero."""

from __future__ import annotations

from collections import deque
from typing import Any

from amaranth.hdl import Cat, Const, Module, Signal, Value
from amaranth.lib import data, wiring
from amaranth.lib.wiring import In, Out

from espalier_hw.luts import LUT_INPUTS, lut


class OrTree(wiring.Component):
    """word = OR of `count` words of `bits` bits, combinational.

    primitives: "behavioural", or "xilinx" for six-input LUTs: three for each bit of sixteen words, where
    synthesis that prefers small LUTs takes up to five.
    """

    def __init__(self, count: int, bits: int, primitives: str = "behavioural") -> None:
        self._primitives, self._bits = primitives, bits
        super().__init__({"words": In(data.ArrayLayout(bits, count)), "word": Out(bits)})

    def elaborate(self, platform: Any) -> Module:
        """Combine six words at a time, those that have passed the fewest LUTs first."""
        m = Module()
        queue: deque[Value] = deque(self.words[index] for index in range(self.words.shape().length))
        while len(queue) > 1:
            group = [queue.popleft() for _ in range(min(LUT_INPUTS, len(queue)))]
            combined = Signal(self._bits, name=f"combined_{len(queue)}")
            self._combine(m, group, combined)
            queue.append(combined)
        m.d.comb += self.word.eq(queue[0])
        return m

    def _combine(self, m: Module, group: list[Value], combined: Signal) -> None:
        """OR of up to six words."""
        if self._primitives == "behavioural":
            total: Value = Const(0, 1)
            for word in group:
                total = total | word
            m.d.comb += combined.eq(total)
            return
        m.d.comb += combined.eq(Cat(lut(m, _any, [word[bit] for word in group]) for bit in range(self._bits)))


def _any(*bits: int) -> int:
    return int(any(bits))
