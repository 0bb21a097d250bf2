"""Global average: sum of all pixels of a channel, scaled to a byte."""

from __future__ import annotations

from typing import Any

from amaranth.hdl import Array, Cat, Const, Module, Mux, Signal, Value, signed
from amaranth.lib import wiring
from amaranth.lib.wiring import In, Out

from espalier.arch.config import HardwareConfig
from espalier.arch.program import (
    ACCUMULATOR_BITS,
    FIXED_POINT_BITS,
    FRACTION_BITS,
    MULTIPLIER_BITS,
    MULTIPLIER_SHIFTS,
)
from espalier_hw.carry import add_choice
from espalier_hw.interfaces import LAYER
from espalier_hw.pool_steps import half_rows

_PRODUCT_BITS = ACCUMULATOR_BITS + MULTIPLIER_BITS
_NUMBER_BITS = FIXED_POINT_BITS + 1
_ROUNDING = 1 << (FRACTION_BITS - 1)


class PoolAverage(wiring.Component):
    """Pipeline whose stages all move with `take`.

    pixels_valid, pixels, pixels_end: the pixels of a channel in any number of parts, taken with `take`. take:
    high unless a byte is there that has to wait, depends on `byte_take` combinationally. byte_valid,
    byte, byte_take: the average of a channel.
    """

    def __init__(self, config: HardwareConfig) -> None:
        self.config = config
        super().__init__(
            {
                "layer": In(LAYER),
                "pixels_valid": In(1),
                "pixels": In(half_rows(config) * config.tile_size * 8),
                "pixels_end": In(1),
                "take": Out(1),
                "byte_valid": Out(1),
                "byte": Out(8),
                "byte_take": In(1),
            }
        )

    def elaborate(self, platform: Any) -> Module:
        """Build the block."""
        m = Module()
        values: list[Value] = [self.pixels[bit : bit + 8] for bit in range(0, len(self.pixels), 8)]
        valid: Value = self.pixels_valid
        end: Value = self.pixels_end
        stage = 0
        m.d.comb += self.take.eq(~self.byte_valid | self.byte_take)
        while len(values) > 1:
            stage += 1
            values = [
                self._register(m, f"sum_{stage}_{first}", tree(values[first : first + 4]))
                for first in range(0, len(values), 4)
            ]
            end = self._register(m, f"end_{stage}", end)
            valid = self._flag(m, f"valid_{stage}", valid)
        total, finished = self._accumulate(m, values[0], valid, end)
        m.d.comb += self.byte.eq(self._scale(m, total))
        for name in ("valid_early", "valid_product", "valid_shifted", "valid_number"):
            finished = self._flag(m, name, finished)
        m.d.comb += self.byte_valid.eq(self._flag(m, "valid_byte", finished))
        return m

    def _register(self, m: Module, name: str, value: Value) -> Signal:
        """Pipeline register."""
        register = Signal(value.shape(), name=name, reset_less=True)
        with m.If(self.take):
            m.d.sync += register.eq(value)
        return register

    def _flag(self, m: Module, name: str, value: Value) -> Signal:
        """Pipeline register that is low after a reset."""
        flag = Signal(name=name)
        with m.If(self.take):
            m.d.sync += flag.eq(value)
        return flag

    def _accumulate(self, m: Module, value: Value, valid: Value, end: Value) -> tuple[Signal, Signal]:
        """Sum and bias of a channel, and whether it is complete."""
        fresh = Signal(init=1)
        total = Signal(signed(ACCUMULATOR_BITS), reset_less=True)
        with m.If(self.take & valid):
            start = Mux(fresh, self.layer.pool_bias, total)
            m.d.sync += [total.eq(add_choice(value, start, ACCUMULATOR_BITS)), fresh.eq(end)]
        return total, self._flag(m, "total_valid", valid & end)

    def _scale(self, m: Module, total: Signal) -> Signal:
        """Stages behind the sum: product (two, for the registers of a DSP slice), shift, zero point, byte."""
        bits = FIXED_POINT_BITS
        early = self._register(m, "early", total * self.layer.pool_multiplier)
        product = self._register(m, "product", early)
        tops = [product[s + bits - 1 :] for s in MULTIPLIER_SHIFTS]
        fits = Array(~top.any() | top.all() for top in tops)[self.layer.pool_shift]
        shifted = Array(product[s : s + bits] for s in MULTIPLIER_SHIFTS)[self.layer.pool_shift]
        fitting = self._register(m, "fitting", fits)
        sign = self._register(m, "sign", product[-1])
        limit = Cat((~sign).replicate(bits - 1), sign)
        limited = Mux(fitting, self._register(m, "shifted", shifted), limit).as_signed()
        term = Cat(Const(_ROUNDING, FRACTION_BITS), self.layer.out_zero)
        number = self._register(m, "number", add_choice(term, limited, _NUMBER_BITS).as_signed())
        above = number[FRACTION_BITS:-1]
        return self._register(
            m, "average", Mux(number[-1], Const(0, 8), above[:8] | above[8:].any().replicate(8))
        )

    @staticmethod
    def model(total: int, bias: int, multiplier: int, shift: int, zero: int) -> int:
        """Byte of the sum of all pixels of a channel; zero: of the output."""
        limit = 1 << (FIXED_POINT_BITS - 1)
        fixed = min(max((total + bias) * multiplier >> MULTIPLIER_SHIFTS[shift], -limit), limit - 1)
        return min(max((fixed + _ROUNDING >> FRACTION_BITS) + zero, 0), 255)


def tree(values: list[Value]) -> Value:
    """Sum as a balanced tree."""
    if len(values) == 1:
        return values[0]
    half = len(values) // 2
    return tree(values[:half]) + tree(values[half:])
