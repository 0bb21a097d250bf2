"""Additions with a choice in front of them, written so that one LUT per bit is enough."""

from __future__ import annotations

from amaranth.hdl import Cat, Const, Value


def add_choice(steady: Value, choice: Value, bits: int, carry: Value | int = 0) -> Value:
    """Lowest `bits` bits of steady + choice + carry; both operands extended by their own sign.

    A carry chain takes one operand from a register as it is and the logic of the other into its LUTs, if
    synthesis knows which is which. It sorts the operands of a sum, so this is written as a difference:
    a + b + c = a - ~b - (1 - c).
    """
    borrow = Cat(Const(0, 1), _extend(steady, bits)) - ~Cat(carry, _extend(choice, bits))
    return borrow[1 : bits + 1]


def _extend(value: Value, bits: int) -> Value:
    """Exactly `bits` bits."""
    top = value[-1] if value.shape().signed else Const(0, 1)
    return Cat(value, top.replicate(max(0, bits - len(value))))[:bits]
