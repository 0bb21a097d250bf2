"""Stream registers, round robin, one-hot multiplexer, delay line."""

from __future__ import annotations

from collections.abc import Sequence
from functools import reduce
from operator import or_

from amaranth.hdl import Cat, Const, Module, Mux, Signal, Value, ValueLike
from amaranth.lib import stream, wiring
from amaranth.lib.wiring import In, Out


class HoldingRegister(wiring.Component):
    """One stream element in a register; sustains one element a cycle.

    `input.ready` follows `output.ready` in the same cycle, everything else is registered.
    """

    def __init__(self, shape: object) -> None:
        """`shape`: payload of the stream."""
        super().__init__({"input": In(stream.Signature(shape)), "output": Out(stream.Signature(shape))})

    def elaborate(self, platform: object) -> Module:
        """Load whenever the register is empty or is being emptied."""
        m = Module()
        payload = Signal(len(Value.cast(self.input.payload)), reset_less=True)
        m.d.comb += [
            self.input.ready.eq(~self.output.valid | self.output.ready),
            Value.cast(self.output.payload).eq(payload),
        ]
        with m.If(self.input.ready):
            m.d.sync += self.output.valid.eq(self.input.valid)
            with m.If(self.input.valid):
                m.d.sync += payload.eq(self.input.payload)
        return m


class RegisterSlice(wiring.Component):
    """Two stream elements in registers; sustains one element a cycle, with no combinational path at all."""

    def __init__(self, shape: object) -> None:
        """`shape`: payload of the stream."""
        super().__init__({"input": In(stream.Signature(shape)), "output": Out(stream.Signature(shape))})

    def elaborate(self, platform: object) -> Module:
        """Keep what arrives while the output is stuck in the spare register."""
        m = Module()
        width = len(Value.cast(self.input.payload))
        payload, spare = Signal(width, reset_less=True), Signal(width, reset_less=True)
        spare_full = Signal()
        m.d.comb += [self.input.ready.eq(~spare_full), Value.cast(self.output.payload).eq(payload)]
        with m.If(self.input.ready):
            m.d.sync += spare.eq(self.input.payload)
        with m.If(self.output.ready | ~self.output.valid):
            m.d.sync += [
                self.output.valid.eq(self.input.valid | spare_full),
                payload.eq(Mux(spare_full, spare, self.input.payload)),
                spare_full.eq(0),
            ]
        with m.Elif(self.input.valid):
            m.d.sync += spare_full.eq(1)
        return m


class RoundRobin(wiring.Component):
    """Grants one of `count` requests: the one whose last grant is the longest ago, at first the lowest.

    `grant` is one-hot, or zero without requests, in the same cycle. `advance`: the grant is used.
    """

    def __init__(self, count: int) -> None:
        """`count`: number of requesters."""
        self.count = count
        super().__init__({"requests": In(count), "advance": In(1), "grant": Out(count)})

    def elaborate(self, platform: object) -> Module:
        """Keep for every pair of requesters who goes first: two levels of LUTs instead of eight."""
        m = Module()
        beaten: list[list[Value]] = [[] for _ in range(self.count)]
        for low in range(self.count):
            for high in range(low + 1, self.count):
                high_first = Signal(name=f"first_{high}_{low}")
                beaten[low].append(self.requests[high] & high_first)
                beaten[high].append(self.requests[low] & ~high_first)
                with m.If(self.advance & (self.grant[low] | self.grant[high])):
                    m.d.sync += high_first.eq(self.grant[low])
        for index, by in enumerate(beaten):
            m.d.comb += self.grant[index].eq(self.requests[index] & ~Cat(by).any())
        return m


def select(one_hot: Value, values: Sequence[ValueLike]) -> Value:
    """Choose the value whose bit in `one_hot` is set, zero if there is none; all have the same width."""
    plain = [Value.cast(value) for value in values]
    return reduce(or_, (v & one_hot[index].replicate(len(v)) for index, v in enumerate(plain)))


def delay(m: Module, value: Value, cycles: int, *, control: bool = False, name: str = "delayed") -> Signal:
    """Return `value` some cycles later; only `control` values are reset (to zero)."""
    for index in range(cycles):
        later = Signal(value.shape(), name=f"{name}_{index}", reset_less=not control)
        m.d.sync += later.eq(value)
        value = later
    return value


def look_up(index: Value, values: Sequence[int], bits: int) -> Value:
    """values[index], as a table for each bit: synthesis makes one LUT of it, if the index has six bits."""
    tables = [sum((value >> bit & 1) << place for place, value in enumerate(values)) for bit in range(bits)]
    return Cat(Const(table, len(values)).bit_select(index, 1) for table in tables)


def room_for_more(m: Module, most: int, begun: Value, ended: Value) -> Value:
    """Count what is under way, `most` at most; whether one more may begin in this cycle.

    begun: one has begun in the cycle before; ended: one ends in this cycle.
    """
    bits = most.bit_length()
    counts = range(1 << bits)
    under_way = Signal(bits, name="under_way")
    changes = [count + more - less for less in (0, 1) for more in (0, 1) for count in counts]
    m.d.sync += under_way.eq(look_up(Cat(under_way, begun, ended), changes, bits))
    room = [int(count + more < most) for more in (0, 1) for count in counts]
    return look_up(Cat(under_way, begun), room, 1)
