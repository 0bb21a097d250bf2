"""LUTs and carry chains in Amaranth, in place of the vendor's primitives."""

from __future__ import annotations

from amaranth.hdl import Array, Cat, Const, Elaboratable, Module, Signal, Value


class Primitive(Elaboratable):
    """Takes what `Instance` takes, for LUT6, LUT6_2 and CARRY4 (UG574)."""

    def __init__(self, kind, **arguments):
        self.kind = kind
        self.table = arguments.pop("p_INIT", None)
        self.inputs = {k[2:]: Value.cast(v) for k, v in arguments.items() if k.startswith("i_")}
        self.outputs = {k[2:]: v for k, v in arguments.items() if k.startswith("o_")}

    def elaborate(self, platform):
        m = Module()
        getattr(self, f"_{self.kind.lower()}")(m)
        return m

    def _row(self, inputs):
        table = Value.cast(self.table).value
        bits = Array(Const(table >> row & 1, 1) for row in range(64))
        return bits[Cat(inputs)]

    def _lut6(self, m):
        m.d.comb += self.outputs["O"].eq(self._row([self.inputs[f"I{place}"] for place in range(6)]))

    def _lut6_2(self, m):
        inputs = [self.inputs[f"I{place}"] for place in range(6)]
        m.d.comb += [
            self.outputs["O5"].eq(self._row([*inputs[:5], Const(0, 1)])),
            self.outputs["O6"].eq(self._row(inputs)),
        ]

    def _carry4(self, m):
        carry = self.inputs["CI"] | self.inputs["CYINIT"]
        for place in range(4):
            propagate, generate = self.inputs["S"][place], self.inputs["DI"][place]
            m.d.comb += self.outputs["O"][place].eq(propagate ^ carry)
            following = Signal(name=f"carry_{place}")
            m.d.comb += following.eq((propagate & carry) | (~propagate & generate))
            m.d.comb += self.outputs["CO"][place].eq(following)
            carry = following
