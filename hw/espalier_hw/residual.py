"""Scales residual pixels for the requantiser."""

from __future__ import annotations

from typing import Any

import numpy as np
import numpy.typing as npt
from amaranth.hdl import Array, Cat, Module, Mux, Signal, Value, signed
from amaranth.lib import memory, wiring
from amaranth.lib.wiring import In, Out

from espalier.arch.config import HardwareConfig
from espalier.arch.program import (
    FIXED_POINT_BITS,
    FRACTION_BITS,
    RESIDUAL_MULTIPLIER_BITS,
    RESIDUAL_SHIFTS,
)
from espalier_hw.carry import add_choice
from espalier_hw.interfaces import LAYER

ROUNDING = 1 << (FRACTION_BITS - 1)
# v + rounding + zero point of the output, both of them already shifted by FRACTION_BITS.
TERM_BITS = FIXED_POINT_BITS + 1
_NIBBLE = 4
_PRODUCT_BITS = 9 + RESIDUAL_MULTIPLIER_BITS


def saturate(value: npt.NDArray[np.int64]) -> npt.NDArray[np.int64]:
    """Clamp to FIXED_POINT_BITS signed bits."""
    limit = 1 << (FIXED_POINT_BITS - 1)
    return np.clip(value, -limit, limit - 1)


class ResidualScale(wiring.Component):
    """Pixels of one beat to the addend of the requantiser, four cycles of `advance` later.

        term = saturate(((pixel - z_res) * residual_multiplier) >> RESIDUAL_SHIFTS[i]) + 128 + 256 * z_out

    with 0 in place of the saturated value in layers without residual. The multiplier is the same
    for a whole layer: all multiples by a hexadecimal digit are tabulated in distributed RAM at its
    start, and a pixel costs two look-ups and one addition. go: pulse, `layer` valid since the cycle
    before. ready: the tables are filled.
    """

    def __init__(self, config: HardwareConfig) -> None:
        self.lanes = 2 * config.output_pairs
        super().__init__(
            {
                "go": In(1),
                "layer": In(LAYER),
                "ready": Out(1),
                "advance": In(1),
                "pixels": In(self.lanes * 8),
                "terms": Out(self.lanes * TERM_BITS),
            }
        )

    def elaborate(self, platform: Any) -> Module:
        """Build the block."""
        m = Module()
        low_table = self._table(m, "low_table", RESIDUAL_MULTIPLIER_BITS + _NIBBLE)
        high_table = self._table(m, "high_table", _PRODUCT_BITS)
        self._fill(m, low_table.write_port(), high_table.write_port())
        offset = Signal(FRACTION_BITS + 9)
        m.d.comb += offset.eq((self.layer.out_zero << FRACTION_BITS) + ROUNDING)
        terms: list[Value] = []
        for lane in range(self.lanes):
            low_port, high_port = low_table.read_port(domain="comb"), high_table.read_port(domain="comb")
            m.d.comb += [
                low_port.addr.eq(self.pixels.word_select(2 * lane, _NIBBLE)),
                high_port.addr.eq(self.pixels.word_select(2 * lane + 1, _NIBBLE)),
            ]
            terms.append(self._lane(m, lane, low_port.data, high_port.data, offset))
        m.d.comb += self.terms.eq(Cat(terms))
        return m

    def _lane(self, m: Module, lane: int, low_data: Value, high_data: Value, offset: Signal) -> Signal:
        """Add two multiples, shift, saturate and add the offset, one register each."""
        low = Signal(RESIDUAL_MULTIPLIER_BITS + _NIBBLE, name=f"low_{lane}", reset_less=True)
        high = Signal(signed(_PRODUCT_BITS), name=f"high_{lane}", reset_less=True)
        product = Signal(signed(_PRODUCT_BITS), name=f"product_{lane}", reset_less=True)
        shifted = Signal(signed(FIXED_POINT_BITS + 1), name=f"shifted_{lane}", reset_less=True)
        term = Signal(signed(TERM_BITS), name=f"term_{lane}", reset_less=True)
        sign, fits = shifted[-1], shifted[-1] == shifted[-2]
        limit = Cat((~sign).replicate(FIXED_POINT_BITS - 1), sign)
        limited = Mux(self.layer.residual, Mux(fits, shifted[:FIXED_POINT_BITS], limit), 0).as_signed()
        with m.If(self.advance):
            m.d.sync += [
                low.eq(low_data),
                high.eq(high_data.as_signed()),
                product.eq(high + low),
                shifted.eq(Array(product >> shift for shift in RESIDUAL_SHIFTS)[self.layer.residual_shift]),
                term.eq(add_choice(offset, limited, TERM_BITS)),
            ]
        return term

    def _table(self, m: Module, name: str, bits: int) -> memory.Memory:
        """Memory of sixteen multiples."""
        table = memory.Memory(shape=bits, depth=1 << _NIBBLE, init=[], attrs={"ram_style": "distributed"})
        m.submodules[name] = table
        return table

    def _fill(self, m: Module, low_port: Any, high_port: Any) -> None:
        """First -z_res * multiplier, bit by bit; then d * multiplier and (16 * d * multiplier - that)."""
        layer = self.layer
        digit = Signal(_NIBBLE)
        low = Signal(RESIDUAL_MULTIPLIER_BITS + _NIBBLE, reset_less=True)
        high = Signal(signed(_PRODUCT_BITS), reset_less=True)
        zero = Signal(8, reset_less=True)
        m.d.comb += [
            low_port.addr.eq(digit),
            low_port.data.eq(low),
            high_port.addr.eq(digit),
            high_port.data.eq(high),
        ]
        with m.FSM(init="FULL"):
            with m.State("FULL"):
                m.d.sync += [low.eq(0), high.eq(0), digit.eq(8), zero.eq(layer.residual_zero)]
                m.d.comb += self.ready.eq(1)
                with m.If(self.go & layer.residual):
                    m.next = "ZERO"
            with m.State("ZERO"):
                m.d.sync += [
                    high.eq((high << 1) - Mux(zero[7], layer.residual_multiplier, 0)),
                    zero.eq(zero << 1),
                    digit.eq(digit + 1),
                ]
                with m.If(digit == 15):
                    m.next = "FILL"
            with m.State("FILL"):
                m.d.comb += [low_port.en.eq(1), high_port.en.eq(1)]
                m.d.sync += [
                    low.eq(low + layer.residual_multiplier),
                    high.eq(high + (layer.residual_multiplier << _NIBBLE)),
                    digit.eq(digit + 1),
                ]
                with m.If(digit == 15):
                    m.next = "FULL"

    @staticmethod
    def model(pixels: npt.NDArray[np.uint8], zero: int, multiplier: int, shift: int) -> npt.NDArray[np.int64]:
        """Saturated v of every pixel (without rounding and zero point of the output)."""
        return saturate(((pixels.astype(np.int64) - zero) * multiplier) >> RESIDUAL_SHIFTS[shift])
