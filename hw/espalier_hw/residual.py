"""Scales residual pixels for the requantiser."""

from __future__ import annotations

from typing import Any

import numpy as np
import numpy.typing as npt
from amaranth.hdl import Cat, Module, Mux, Signal, Value, signed
from amaranth.lib import data, memory, wiring
from amaranth.lib.wiring import In, Out

from espalier.arch.config import HardwareConfig
from espalier.arch.program import (
    FIXED_POINT_BITS,
    FRACTION_BITS,
    RESIDUAL_MULTIPLIER_BITS,
    RESIDUAL_SHIFTS,
)
from espalier_hw.beats import beat_slots, select
from espalier_hw.carry import add_choice
from espalier_hw.interfaces import LAYER

ROUNDING = 1 << (FRACTION_BITS - 1)
# v + rounding + zero point of the output, both of them already shifted by FRACTION_BITS.
TERM_BITS = FIXED_POINT_BITS + 1
_PIXEL_BITS = 8
_LAST_PIXEL = (1 << _PIXEL_BITS) - 1
_PRODUCT_BITS = 1 + _PIXEL_BITS + RESIDUAL_MULTIPLIER_BITS


def saturate(value: npt.NDArray[np.int64]) -> npt.NDArray[np.int64]:
    """Clamp to FIXED_POINT_BITS signed bits."""
    limit = 1 << (FIXED_POINT_BITS - 1)
    return np.clip(value, -limit, limit - 1)


class ResidualScale(wiring.Component):
    """Pixels of one beat to the addend of the requantiser, two cycles of `advance` later.

        term = saturate(((pixel - z_res) * residual_multiplier) >> RESIDUAL_SHIFTS[i]) + 128 + 256 * z_out

    with 0 in place of the saturated value in layers without residual, where all pixels must be 0. A layer
    has only 256 different terms: each lane looks them up in a block RAM. Two tables take turns, so that a
    layer's table is filled while the layer before runs.

    restart: pulse before the first layer. offer: pulse, a layer will follow the current one: `offered`,
    valid from then until the next `go`. go: pulse, that layer begins. ready: its table is filled, from two
    cycles after `go`.
    """

    def __init__(self, config: HardwareConfig) -> None:
        self.lanes = len(beat_slots(config))
        super().__init__(
            {
                "restart": In(1),
                "offer": In(1),
                "offered": In(LAYER),
                "go": In(1),
                "ready": Out(1),
                "advance": In(1),
                "pixels": In(self.lanes * _PIXEL_BITS),
                "terms": Out(self.lanes * TERM_BITS),
            }
        )

    def elaborate(self, platform: Any) -> Module:
        """Build the block."""
        m = Module()
        read_bank = Signal()
        m.submodules.filler = filler = _TableFiller()
        m.d.comb += [
            filler.restart.eq(self.restart),
            filler.offer.eq(self.offer),
            filler.offered.eq(self.offered),
        ]
        m.d.sync += self.ready.eq(filler.filled.bit_select(read_bank, 1))
        with m.If(self.restart):
            m.d.sync += read_bank.eq(0)
        with m.Elif(self.go):
            m.d.sync += read_bank.eq(~read_bank)
        for lane in range(self.lanes):
            m.submodules[f"table_{lane}"] = table = memory.Memory(
                shape=TERM_BITS, depth=2 << _PIXEL_BITS, init=[], attrs={"ram_style": "block"}
            )
            write_port, read_port = table.write_port(), table.read_port()
            term = Signal(TERM_BITS, name=f"term_{lane}", reset_less=True)
            m.d.comb += [
                write_port.en.eq(filler.write_enable),
                write_port.addr.eq(filler.write_address),
                write_port.data.eq(filler.write_data),
                read_port.en.eq(self.advance),
                read_port.addr.eq(Cat(self.pixels.word_select(lane, _PIXEL_BITS), read_bank)),
                self.terms.word_select(lane, TERM_BITS).eq(term),
            ]
            with m.If(self.advance):
                m.d.sync += term.eq(read_port.data)
        return m

    @staticmethod
    def model(pixels: npt.NDArray[np.uint8], zero: int, multiplier: int, shift: int) -> npt.NDArray[np.int64]:
        """Saturated v of every pixel (without rounding and zero point of the output)."""
        return saturate(((pixels.astype(np.int64) - zero) * multiplier) >> RESIDUAL_SHIFTS[shift])


class _TableFiller(wiring.Component):
    """Computes the terms of a layer one a cycle: those of pixels from z_res down to 0, then up to 255.

    In layers without residual that of pixel 0 is all. Address: pixel, then bank. filled: one bit a bank.
    """

    def __init__(self) -> None:
        super().__init__(
            {
                "restart": In(1),
                "offer": In(1),
                "offered": In(LAYER),
                "filled": Out(2),
                "write_enable": Out(1),
                "write_address": Out(_PIXEL_BITS + 1),
                "write_data": Out(TERM_BITS),
            }
        )

    def elaborate(self, platform: Any) -> Module:
        """Count through the pixels; shift and saturation follow, a stage each."""
        m = Module()
        offered_bank, bank, pending, filling, down = (Signal() for _ in range(5))
        valid = Signal(2)  # stages behind `product` that are in use
        layer = Signal(LAYER, reset_less=True)
        pixel = Signal(_PIXEL_BITS, reset_less=True)
        product = Signal(signed(_PRODUCT_BITS), reset_less=True)
        ends, turns = Signal(), Signal()
        # One's complement of the multiplier on the way down; the carry makes it two's complement.
        step = Cat(layer.residual_multiplier ^ down.replicate(RESIDUAL_MULTIPLIER_BITS), down).as_signed()
        m.d.comb += [
            turns.eq(down & (pixel == 0) & layer.residual),
            ends.eq(Mux(down, (pixel == 0) & ~layer.residual, pixel == _LAST_PIXEL)),
        ]
        with m.If(filling):
            m.d.sync += [
                pixel.eq(pixel + Mux(down, -1, 1)),
                product.eq(add_choice(product, step, _PRODUCT_BITS, down)),
            ]
            with m.If(turns):
                m.d.sync += [down.eq(0), pixel.eq(layer.residual_zero), product.eq(0)]
            with m.If(ends):
                m.d.sync += filling.eq(0)
        with m.Elif(pending & ~valid.any()):
            m.d.sync += [
                layer.eq(self.offered),
                bank.eq(offered_bank),
                pixel.eq(Mux(self.offered.residual, self.offered.residual_zero, 0)),
                product.eq(0),
                down.eq(1),
                filling.eq(1),
                pending.eq(0),
            ]
        m.d.sync += valid.eq(Cat(filling, valid))
        m.d.comb += self.write_enable.eq(valid[1])
        self._write(m, layer, pixel, bank, product, filling & ends)
        with m.If(self.offer):
            m.d.sync += [
                pending.eq(1),
                offered_bank.eq(~offered_bank),
                self.filled.bit_select(~offered_bank, 1).eq(0),
            ]
        with m.If(self.restart):
            m.d.sync += [pending.eq(0), filling.eq(0), offered_bank.eq(0)]
        return m

    def _write(
        self,
        m: Module,
        layer: data.View,
        pixel: Signal,
        bank: Signal,
        product: Signal,
        last_pixel: Value,
    ) -> None:
        """Shift, then saturate and add the offset; `filled` rises when the last term is in the table."""
        bits = FIXED_POINT_BITS
        shifted = Signal(signed(bits + 1), reset_less=True)
        offset = Signal(FRACTION_BITS + 9)
        address, last = Signal(_PIXEL_BITS, reset_less=True), Signal(2)
        fits, sign = shifted[-1] == shifted[-2], shifted[-1]
        limit = Cat((~sign).replicate(bits - 1), sign)
        limited = Mux(fits, shifted[:bits], limit).as_signed()
        m.d.comb += offset.eq((layer.out_zero << FRACTION_BITS) + ROUNDING)
        m.d.sync += [
            last.eq(Cat(last_pixel, last)),
            shifted.eq(select([product >> shift for shift in RESIDUAL_SHIFTS], layer.residual_shift)),
            address.eq(pixel),
            self.write_address.eq(Cat(address, bank)),
            self.write_data.eq(add_choice(offset, limited, TERM_BITS)),
        ]
        with m.If(last[1]):
            m.d.sync += self.filled.bit_select(bank, 1).eq(1)
