"""Logic placed into LUTs by hand, where synthesis that prefers small LUTs takes more of them.

Only vendor primitives are built here: users also describe the same behaviourally, for simulators.
"""

from __future__ import annotations

import functools
from collections.abc import Callable, Sequence
from typing import Any

from amaranth.hdl import Cat, Const, Instance, Module, Signal, Value

LUT_INPUTS = 6
_CARRY_BITS = 4


@functools.cache
def truth_table(function: Callable[..., int], inputs: int) -> int:
    """INIT of a LUT of six inputs for a function of `inputs` bits; the other inputs do not matter."""
    mask = (1 << inputs) - 1
    return sum(
        (function(*((row & mask) >> bit & 1 for bit in range(inputs))) & 1) << row
        for row in range(1 << LUT_INPUTS)
    )


def lut(m: Module, function: Callable[..., int], inputs: Sequence[Value]) -> Signal:
    """One LUT6: `function` of up to six bits."""
    output = Signal()
    ports: dict[str, Any] = {f"i_I{index}": Const(0, 1) for index in range(LUT_INPUTS)}
    ports |= {f"i_I{index}": bit for index, bit in enumerate(inputs)}
    table = Const(truth_table(function, len(inputs)), 1 << LUT_INPUTS)
    m.submodules += Instance("LUT6", p_INIT=table, o_O=output, **ports)
    return output


def add(
    m: Module,
    first: Callable[..., int],
    second: Callable[..., int],
    operands: Sequence[Sequence[Value]],
    carry: Value,
) -> Value:
    """Sum of two operands and a carry, one LUT a bit: both are functions of the same up to five bits.

    operands: those bits for every bit of the sum, lowest first.
    """
    count = len(operands[0])
    low_half, high_half = truth_table(first, count), truth_table(lambda *x: first(*x) ^ second(*x), count)
    half = 1 << (LUT_INPUTS - 1)  # the fifth output is that of the lower half, the sixth of the upper one
    table = Const((low_half & ((1 << half) - 1)) | (high_half >> half << half), 2 * half)
    width = -(-len(operands) // _CARRY_BITS) * _CARRY_BITS
    generate, propagate, total = Signal(width), Signal(width), Signal(width)
    for index, bits in enumerate(operands):
        ports: dict[str, Any] = {f"i_I{place}": Const(0, 1) for place in range(LUT_INPUTS - 1)}
        ports |= {f"i_I{place}": bit for place, bit in enumerate(bits)}
        m.submodules += Instance(
            "LUT6_2",
            p_INIT=table,
            i_I5=Const(1, 1),
            o_O5=generate[index],
            o_O6=propagate[index],
            **ports,
        )
    entry: dict[str, Any] = {"i_CI": Const(0, 1), "i_CYINIT": carry}
    for base in range(0, width, _CARRY_BITS):
        out = Signal(_CARRY_BITS, name=f"carry_{base}")
        m.submodules += Instance(
            "CARRY4",
            **entry,
            i_DI=generate[base : base + _CARRY_BITS],
            i_S=propagate[base : base + _CARRY_BITS],
            o_O=total[base : base + _CARRY_BITS],
            o_CO=out,
        )
        entry = {"i_CI": out[-1], "i_CYINIT": Const(0, 1)}
    return total[: len(operands)]


def choose(m: Module, values: Sequence[Value], index: Value) -> Value:
    """Element `index` (two bits) of four values of the same width, one LUT a bit."""
    return Cat(
        lut(m, _choose, [*(value[bit] for value in values), index[0], index[1]])
        for bit in range(len(values[0]))
    )


def _choose(a: int, b: int, c: int, d: int, low: int, high: int) -> int:
    return (a, b, c, d)[low + 2 * high]


def fits(m: Module, segments: Sequence[Value], sign: Value, shift: Value) -> Value:
    """Whether all bits of segments number `shift` (two bits) and above are equal to the sign, in six LUTs.

    segments: three of six bits, and one of one bit, lowest first.
    """
    assert [len(segment) for segment in segments] == [6, 6, 6, 1]
    low = [lut(m, _differs, [sign, *segment[:5]]) for segment in segments[:3]]
    tops = [segment[-1] for segment in segments]
    lower = lut(m, _lower_tops, [*tops[:2], sign, *shift])
    higher = lut(m, _higher_tops, [*tops[2:], sign, *shift, lower])
    return lut(m, _none, [*low, higher, *shift])


def _differs(sign: int, *bits: int) -> int:
    return int(any(bit != sign for bit in bits))


def _lower_tops(top_0: int, top_1: int, sign: int, low: int, high: int) -> int:
    shift = low + 2 * high
    return int((top_0 != sign and shift <= 0) or (top_1 != sign and shift <= 1))


def _higher_tops(top_2: int, top_3: int, sign: int, low: int, high: int, lower: int) -> int:
    return int((top_2 != sign and low + 2 * high <= 2) or top_3 != sign or lower)


def _none(differ_0: int, differ_1: int, differ_2: int, tops: int, low: int, high: int) -> int:
    shift = low + 2 * high
    return int(
        not ((differ_0 and shift <= 0) or (differ_1 and shift <= 1) or (differ_2 and shift <= 2) or tops)
    )
