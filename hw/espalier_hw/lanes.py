"""Multiply-accumulate lanes in pairs: two products in one DSP slice, or two fabric adders.

All pairs keep the same time, that of a DSP slice: `pixels` and `weight` of cycle 0 are registered (cycle 1),
multiplied (2) and added (3, when `sum` holds the result). `load`, `clear` and `initial` belong to
the operands of the cycle before: with `load` the sum starts from `initial`, or from zero if `clear` is high.
A weight of zero changes nothing, so that idle cycles need no enable.

spacing: `HardwareConfig.pair_spacing_bits`, by which the two products of a slice lie apart; every sum of
a lane has so many bits.
"""

from __future__ import annotations

from typing import Any

import numpy as np
import numpy.typing as npt
from amaranth.hdl import Cat, ClockSignal, Const, Instance, Module, Mux, Signal, Value, signed
from amaranth.lib import data, wiring
from amaranth.lib.wiring import In, Out

from espalier.arch.config import DSP_SLICES, HardwareConfig
from espalier_hw.carry import add_choice
from espalier_hw.dsp_slices import (
    A_BITS,
    OPMODE_BITS,
    OPMODE_C_PLUS_M,
    OPMODE_P_PLUS_M,
    SUM_BITS,
    fixed_arguments,
)

PRIMITIVES = ("behavioural", "xilinx")


def unpack_pair_value(value: Value, spacing: int, packed: bool) -> tuple[Value, Value]:
    """Two signed lane sums (low, high) of `spacing` bits each from an accumulator of twice as many.

    packed: the pair sat in one DSP slice, where a negative low sum has borrowed one from the high field.
    """
    low, high = value[:spacing], value[spacing : 2 * spacing]
    if packed:
        high = (high + low[-1])[:spacing]
    return low.as_signed(), high.as_signed()


def unpack_pair_model(
    value: npt.ArrayLike, spacing: int, packed: bool
) -> tuple[npt.NDArray[np.int64], npt.NDArray[np.int64]]:
    """`unpack_pair_value` on integers (any shape): int64 arrays (low, high) of the same shape."""
    raw = np.asarray(value, dtype=np.int64)
    half = 1 << (spacing - 1)
    low = ((raw & (2 * half - 1)) ^ half) - half
    high = (raw >> spacing) + ((low < 0) if packed else 0)
    return low, ((high & (2 * half - 1)) ^ half) - half


def pack_pair_model(low: int, high: int, spacing: int, packed: bool) -> int:
    """Inverse of `unpack_pair_model`: the accumulator that holds two lane sums."""
    if not packed:
        low &= (1 << spacing) - 1
    return ((high << spacing) + low) & ((1 << 2 * spacing) - 1)


def is_packed(dsp_pairs: int, pair: int) -> bool:
    """Whether a pair shares a DSP slice; a PE has `dsp_pairs` of those, and the fabric pairs after them."""
    return pair < dsp_pairs


class Pair(wiring.Component):
    """Ports of a lane pair, times as in the module text. pixels: low lane in bits 7..0, high in 15..8.

    weight_registered, load_registered: `weight` and `load` a cycle later. A DSP slice has registers of its
    own for them; all other pairs of a PE share one.
    """

    def __init__(self, spacing: int, more: dict[str, wiring.Member] | None = None) -> None:
        self._spacing = spacing
        super().__init__(
            {
                "pixels": In(16),
                "weight": In(signed(4)),
                "weight_registered": In(signed(4)),
                "load": In(1),
                "load_registered": In(1),
                "clear": In(1),
                "initial": In(2 * spacing),
                "sum": Out(2 * spacing),
                **(more or {}),
            }
        )

    def _initial(self, m: Module) -> Signal:
        """Add register C, in step with the product."""
        initial = Signal(2 * self._spacing, reset_less=True)
        with m.If(self.load):
            m.d.sync += initial.eq(self.initial)
        with m.If(self.clear):
            m.d.sync += initial.eq(0)
        return initial


class PackedPair(Pair):
    """sum = low bits of sum((high pixel << spacing + low pixel) * weight), described behaviourally."""

    def elaborate(self, platform: Any) -> Module:
        """Build registers A, B, C, M and P of a DSP slice."""
        m = Module()
        initial = self._initial(m)
        # Widths and signs are those that compiled simulators handle fastest: a product of 32 bits, no sign in
        # the sum, which only its low bits matter to.
        wide = Signal(self._spacing + 10, reset_less=True)
        product = Signal(signed(32), reset_less=True)
        addend = Signal(signed(2 * self._spacing))
        total = Signal(2 * self._spacing, reset_less=True)
        m.d.comb += [self.sum.eq(total), addend.eq(product)]
        m.d.sync += [
            wide.eq(packed_pixels(self.pixels, self._spacing)),
            product.eq(wide * self.weight_registered),
            total.eq(Mux(self.load_registered, initial, total) + addend.as_unsigned()),
        ]
        return m


class FabricPair(Pair):
    """Two sums side by side, without a borrow between them, described behaviourally.

    lanes: 1 if the high lane does not exist; its sum is zero then.
    """

    def __init__(self, spacing: int, lanes: int = 2) -> None:
        self._lanes = lanes
        super().__init__(spacing)

    def elaborate(self, platform: Any) -> Module:
        """Build the registers that a DSP slice has."""
        m = Module()
        initial, weight = self._initial(m), self.weight_registered
        for lane in range(self._lanes):
            field = slice(lane * self._spacing, (lane + 1) * self._spacing)
            pixel = Signal(8, name=f"pixel_{lane}", reset_less=True)
            product = Signal(signed(12), name=f"product_{lane}", reset_less=True)
            total = Signal(self._spacing, name=f"total_{lane}", reset_less=True)
            m.d.comb += self.sum[field].eq(total)
            m.d.sync += [
                pixel.eq(self.pixels[8 * lane : 8 * lane + 8]),
                product.eq(pixel * weight),
                total.eq(product + Mux(self.load_registered, initial[field], total)),
            ]
        return m


# A digit as two terms, the coarse one a multiple of four: digit = coarse + fine. Both are a power of
# two times -1, 0 or 1, that is a selection of pixel bits and an inversion.
DIGIT_TERMS = {0: (0, 0), 1: (0, 1), 2: (0, 2), 3: (4, -1), 4: (4, 0), 5: (4, 1), 6: (4, 2), 7: (8, -1)}
DIGIT_TERMS |= {-digit: (-coarse, -fine) for digit, (coarse, fine) in DIGIT_TERMS.items()}
DIGIT_TERMS[-8] = (-8, 0)  # in no stream, but it costs nothing

# Selections for a digit, each valid in the cycle in which it is used: those of the coarse term along with
# the pixels, then those of the fine term, then the carry that completes its inversion.
DIGIT = data.StructLayout(
    {
        "coarse_zero": 1,
        "coarse_eight": 1,
        "coarse_minus": 1,
        "coarse_carry": 1,  # `coarse_minus` a cycle later
        "fine_one": 1,
        "fine_two": 1,
        "fine_minus": 1,
        "fine_carry": 1,  # `fine_minus` a cycle later
    }
)


def digit_selections(m: Module, early_weight: Value) -> data.View[data.StructLayout]:
    """`DIGIT` for the fabric pairs of a PE; `early_weight` is `weight` of a cycle before."""
    digit = Signal(DIGIT, reset_less=True)
    fine = ("fine_one", "fine_two", "fine_minus")
    following = {name: Signal(name=f"following_{name}", reset_less=True) for name in fine}
    m.d.sync += [
        digit.coarse_carry.eq(digit.coarse_minus),
        digit.fine_carry.eq(digit.fine_minus),
        *(digit[name].eq(following[name]) for name in fine),
    ]
    with m.Switch(early_weight):
        for weight, (coarse, part) in DIGIT_TERMS.items():
            with m.Case(weight):
                m.d.sync += [
                    digit.coarse_zero.eq(coarse == 0),
                    digit.coarse_eight.eq(abs(coarse) == 8),
                    digit.coarse_minus.eq(coarse < 0),
                    following["fine_one"].eq(abs(part) == 1),
                    following["fine_two"].eq(abs(part) == 2),
                    following["fine_minus"].eq(part < 0),
                ]
    return digit


class AddedPair(Pair):
    """`FabricPair` from additions of few LUTs, which synthesis keeps out of DSP slices.

    digit: see `DIGIT`; used instead of the weights.
    """

    def __init__(self, spacing: int, lanes: int = 2) -> None:
        self._lanes = lanes
        super().__init__(spacing, {"digit": In(DIGIT)})

    def elaborate(self, platform: Any) -> Module:
        """Build the registers that a DSP slice has, with the coarse term beside the pixel."""
        m = Module()
        initial = self._initial(m)
        for lane in range(self._lanes):
            field = slice(lane * self._spacing, (lane + 1) * self._spacing)
            product = self._product(m, lane)
            total = Signal(self._spacing, name=f"total_{lane}", reset_less=True)
            start = Mux(self.load_registered, initial[field], total)
            m.d.sync += total.eq(add_choice(product, start, self._spacing, self.digit.fine_carry))
            m.d.comb += self.sum[field].eq(total)
        return m

    def _product(self, m: Module, lane: int) -> Signal:
        """Add the product; with a negative fine term it is one less, for the sum to correct."""
        digit, pixel_in = self.digit, self.pixels[8 * lane : 8 * lane + 8]
        pixel = Signal(8, name=f"pixel_{lane}", reset_less=True)
        coarse = Signal(9, name=f"coarse_{lane}", reset_less=True)  # its two zeros left out
        product = Signal(signed(12), name=f"product_{lane}", reset_less=True)
        m.d.sync += [
            pixel.eq(pixel_in),
            coarse.eq(
                Mux(digit.coarse_eight, Cat(Const(0, 1), pixel_in), pixel_in)
                ^ digit.coarse_minus.replicate(9)
            ),
        ]
        with m.If(digit.coarse_zero):
            m.d.sync += coarse.eq(0)
        once = Cat(pixel, Const(0, 2)) & digit.fine_one.replicate(10)
        twice = Cat(Const(0, 1), pixel, Const(0, 1)) & digit.fine_two.replicate(10)
        fine = (once | twice) ^ digit.fine_minus.replicate(10)
        high = add_choice(
            Cat(coarse, digit.coarse_carry).as_signed(), fine[2:].as_signed(), 10, digit.coarse_carry
        )
        m.d.sync += product.eq(Cat(fine[:2], high))
        return product


class DspPair(Pair):
    """`PackedPair` in a DSP slice, the one of its spacing in `DSP_SLICES`.

    All its registers and the choice between P and C lie in the slice.
    """

    def elaborate(self, platform: Any) -> Module:
        """One instance; RSTC clears C, so that only one bit of OPMODE ever changes."""
        m = Module()
        kind = DSP_SLICES[self._spacing]
        total = Signal(SUM_BITS)
        opmode = Signal(OPMODE_BITS[kind])
        pixels = packed_pixels(self.pixels, self._spacing)
        m.d.comb += [opmode.eq(Mux(self.load, OPMODE_C_PLUS_M, OPMODE_P_PLUS_M)), self.sum.eq(total)]
        m.submodules.slice = Instance(
            kind,
            **fixed_arguments(kind),
            i_CLK=ClockSignal(),
            i_A=Cat(pixels, Const(0, A_BITS - len(pixels))),
            i_B=Cat(self.weight, self.weight[-1].replicate(14)),
            i_C=Cat(self.initial, Const(0, SUM_BITS - len(self.initial))),
            i_CEC=self.load,
            i_RSTC=self.clear,
            i_OPMODE=opmode,
            o_P=total,
        )
        return m


def packed_pixels(pixels: Value, spacing: int) -> Value:
    """Nine bits more than `spacing`, never negative: high pixel << spacing | low pixel."""
    return Cat(pixels[:8], Const(0, spacing - 8), pixels[8:16], Const(0, 1))


def make_pair(config: HardwareConfig, dsp_pairs: int, pair: int, primitives: str) -> Pair:
    """Lane pair number `pair` of a PE with `dsp_pairs` pairs in DSP slices, with one of `PRIMITIVES`."""
    vendor, spacing = primitives == "xilinx", config.pair_spacing_bits
    if is_packed(dsp_pairs, pair):
        return DspPair(spacing) if vendor else PackedPair(spacing)
    lanes = pair_lanes(config, pair)
    return AddedPair(spacing, lanes) if vendor else FabricPair(spacing, lanes)


def pair_lanes(config: HardwareConfig, pair: int) -> int:
    """Lanes of a pair: 2, or 1 in the last pair of an odd tile."""
    return min(2, config.lanes_per_pe - 2 * pair)


def pair_bits(config: HardwareConfig, dsp_pairs: int, pair: int) -> int:
    """Bits of a pair's sum that can be other than zero."""
    return config.pair_spacing_bits * (2 if is_packed(dsp_pairs, pair) else pair_lanes(config, pair))
