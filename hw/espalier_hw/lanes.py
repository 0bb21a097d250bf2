"""Multiply-accumulate lanes in pairs: two products in one DSP slice, or two fabric adders.

All pairs keep the same time, that of a DSP slice: `pixels` and `weight` of cycle 0 are registered (cycle 1),
multiplied (2) and added (3, when `sum` holds the result). `load`, `clear` and `initial` belong to
the operands of the cycle before: with `load` the sum starts from `initial`, or from zero if `clear` is high.
A weight of zero changes nothing, so that idle cycles need no enable.
"""

from __future__ import annotations

from typing import Any

import numpy as np
import numpy.typing as npt
from amaranth.hdl import Cat, ClockSignal, Const, Instance, Module, Mux, Signal, Value, signed
from amaranth.lib import data, wiring
from amaranth.lib.wiring import In, Out

from espalier.arch.config import HardwareConfig
from espalier.arch.operators import PACKED_FIELD_BITS
from espalier_hw.carry import add_choice
from espalier_hw.interfaces import PAIR_BITS

PRIMITIVES = ("behavioural", "xilinx")

# DSP48E2 (UG579). OPMODE = W | Z | Y | X: W zero, X and Y together the product, Z either P or C.
OPMODE_P_PLUS_M = 0b00_010_01_01
OPMODE_C_PLUS_M = 0b00_011_01_01
DSP_ATTRIBUTES: dict[str, int | str] = {
    "USE_MULT": "MULTIPLY",
    "USE_SIMD": "ONE48",
    "A_INPUT": "DIRECT",
    "B_INPUT": "DIRECT",
    "AMULTSEL": "A",
    "BMULTSEL": "B",
    "AREG": 1,
    "ACASCREG": 1,
    "BREG": 1,
    "BCASCREG": 1,
    "CREG": 1,
    "DREG": 0,
    "ADREG": 0,
    "MREG": 1,
    "PREG": 1,
    "OPMODEREG": 1,
    "ALUMODEREG": 0,
    "INMODEREG": 0,
    "CARRYINREG": 0,
    "CARRYINSELREG": 0,
}
# With one register each, A2 and B2 are the ones in use.
DSP_ENABLES = ("CEA2", "CEB2", "CEM", "CEP", "CECTRL")
DSP_TIED_LOW = {
    "CEA1": 1,
    "CEB1": 1,
    "CED": 1,
    "CEAD": 1,
    "CEALUMODE": 1,
    "CEINMODE": 1,
    "CECARRYIN": 1,
    "RSTA": 1,
    "RSTB": 1,
    "RSTD": 1,
    "RSTM": 1,
    "RSTP": 1,
    "RSTCTRL": 1,
    "RSTALUMODE": 1,
    "RSTINMODE": 1,
    "RSTALLCARRYIN": 1,
    "ACIN": 30,
    "BCIN": 18,
    "PCIN": 48,
    "D": 27,
    "ALUMODE": 4,
    "INMODE": 5,
    "CARRYIN": 1,
    "CARRYINSEL": 3,
    "CARRYCASCIN": 1,
    "MULTSIGNIN": 1,
}


def unpack_pair_value(value: Value, packed: bool) -> tuple[Value, Value]:
    """Two signed 18-bit lane sums (low, high) of a 36-bit accumulator.

    packed: the pair sat in one DSP slice, where a negative low sum has borrowed one from the high field.
    """
    low, high = value[:PACKED_FIELD_BITS], value[PACKED_FIELD_BITS:PAIR_BITS]
    if packed:
        high = (high + low[-1])[:PACKED_FIELD_BITS]
    return low.as_signed(), high.as_signed()


def unpack_pair_model(
    value: npt.ArrayLike, packed: bool
) -> tuple[npt.NDArray[np.int64], npt.NDArray[np.int64]]:
    """`unpack_pair_value` on integers of 36 bits (any shape): int64 arrays (low, high) of the same shape."""
    raw = np.asarray(value, dtype=np.int64)
    half = 1 << (PACKED_FIELD_BITS - 1)
    low = ((raw & (2 * half - 1)) ^ half) - half
    high = (raw >> PACKED_FIELD_BITS) + ((low < 0) if packed else 0)
    return low, ((high & (2 * half - 1)) ^ half) - half


def pack_pair_model(low: int, high: int, packed: bool) -> int:
    """Inverse of `unpack_pair_model`: the 36-bit accumulator that holds two lane sums."""
    if not packed:
        low &= (1 << PACKED_FIELD_BITS) - 1
    return ((high << PACKED_FIELD_BITS) + low) & ((1 << PAIR_BITS) - 1)


def is_packed(dsp_pairs: int, pair: int) -> bool:
    """Whether a pair shares a DSP slice; a PE has `dsp_pairs` of those, and the fabric pairs after them."""
    return pair < dsp_pairs


class Pair(wiring.Component):
    """Ports of a lane pair, times as in the module text. pixels: low lane in bits 7..0, high in 15..8.

    weight_registered, load_registered: `weight` and `load` a cycle later. A DSP slice has registers of its
    own for them; all other pairs of a PE share one.
    """

    def __init__(self, more: dict[str, wiring.Member] | None = None) -> None:
        super().__init__(
            {
                "pixels": In(16),
                "weight": In(signed(4)),
                "weight_registered": In(signed(4)),
                "load": In(1),
                "load_registered": In(1),
                "clear": In(1),
                "initial": In(PAIR_BITS),
                "sum": Out(PAIR_BITS),
                **(more or {}),
            }
        )

    def _initial(self, m: Module) -> Signal:
        """Add register C, in step with the product."""
        initial = Signal(PAIR_BITS, reset_less=True)
        with m.If(self.load):
            m.d.sync += initial.eq(self.initial)
        with m.If(self.clear):
            m.d.sync += initial.eq(0)
        return initial


class PackedPair(Pair):
    """sum = 36 bits of sum((high pixel << 18 + low pixel) * weight), described behaviourally."""

    def elaborate(self, platform: Any) -> Module:
        """Build registers A, B, C, M and P of a DSP slice."""
        m = Module()
        initial = self._initial(m)
        # Widths and signs are those that compiled simulators handle fastest: a product of 32 bits, no sign in
        # the sum, which only its low 36 bits matter to.
        wide = Signal(28, reset_less=True)
        product = Signal(signed(32), reset_less=True)
        addend = Signal(signed(PAIR_BITS))
        total = Signal(PAIR_BITS, reset_less=True)
        m.d.comb += [self.sum.eq(total), addend.eq(product)]
        m.d.sync += [
            wide.eq(packed_pixels(self.pixels)),
            product.eq(wide * self.weight_registered),
            total.eq(Mux(self.load_registered, initial, total) + addend.as_unsigned()),
        ]
        return m


class FabricPair(Pair):
    """Two 18-bit sums side by side, without a borrow between them, described behaviourally.

    lanes: 1 if the high lane does not exist; its sum is zero then.
    """

    def __init__(self, lanes: int = 2) -> None:
        self._lanes = lanes
        super().__init__()

    def elaborate(self, platform: Any) -> Module:
        """Build the registers that a DSP slice has."""
        m = Module()
        initial, weight = self._initial(m), self.weight_registered
        for lane in range(self._lanes):
            field = slice(lane * PACKED_FIELD_BITS, (lane + 1) * PACKED_FIELD_BITS)
            pixel = Signal(8, name=f"pixel_{lane}", reset_less=True)
            product = Signal(signed(12), name=f"product_{lane}", reset_less=True)
            total = Signal(PACKED_FIELD_BITS, name=f"total_{lane}", reset_less=True)
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

    def __init__(self, lanes: int = 2) -> None:
        self._lanes = lanes
        super().__init__({"digit": In(DIGIT)})

    def elaborate(self, platform: Any) -> Module:
        """Build the registers that a DSP slice has, with the coarse term beside the pixel."""
        m = Module()
        initial = self._initial(m)
        for lane in range(self._lanes):
            field = slice(lane * PACKED_FIELD_BITS, (lane + 1) * PACKED_FIELD_BITS)
            product = self._product(m, lane)
            total = Signal(PACKED_FIELD_BITS, name=f"total_{lane}", reset_less=True)
            start = Mux(self.load_registered, initial[field], total)
            m.d.sync += total.eq(add_choice(product, start, PACKED_FIELD_BITS, self.digit.fine_carry))
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
    """`PackedPair` in a DSP48E2: all its registers and the choice between P and C lie in the slice."""

    def elaborate(self, platform: Any) -> Module:
        """One instance; RSTC clears C, so that only one bit of OPMODE ever changes."""
        m = Module()
        total = Signal(48)
        opmode = Signal(9)
        m.d.comb += [opmode.eq(Mux(self.load, OPMODE_C_PLUS_M, OPMODE_P_PLUS_M)), self.sum.eq(total)]
        ports: dict[str, Any] = {f"i_{name}": 1 for name in DSP_ENABLES}
        ports |= {f"i_{name}": Const(0, width) for name, width in DSP_TIED_LOW.items()}
        m.submodules.slice = Instance(
            "DSP48E2",
            **{f"p_{name}": value for name, value in DSP_ATTRIBUTES.items()},
            **ports,
            i_CLK=ClockSignal(),
            i_A=Cat(packed_pixels(self.pixels), Const(0, 3)),
            i_B=Cat(self.weight, self.weight[-1].replicate(14)),
            i_C=Cat(self.initial, Const(0, 48 - PAIR_BITS)),
            i_CEC=self.load,
            i_RSTC=self.clear,
            i_OPMODE=opmode,
            o_P=total,
        )
        return m


def packed_pixels(pixels: Value) -> Value:
    """27 bits, never negative: high pixel << 18 | low pixel."""
    return Cat(pixels[:8], Const(0, PACKED_FIELD_BITS - 8), pixels[8:16], Const(0, 1))


def make_pair(config: HardwareConfig, dsp_pairs: int, pair: int, primitives: str) -> Pair:
    """Lane pair number `pair` of a PE with `dsp_pairs` pairs in DSP slices, with one of `PRIMITIVES`."""
    vendor = primitives == "xilinx"
    if is_packed(dsp_pairs, pair):
        return DspPair() if vendor else PackedPair()
    lanes = pair_lanes(config, pair)
    return AddedPair(lanes) if vendor else FabricPair(lanes)


def pair_lanes(config: HardwareConfig, pair: int) -> int:
    """Lanes of a pair: 2, or 1 in the last pair of an odd tile."""
    return min(2, config.lanes_per_pe - 2 * pair)


def pair_bits(config: HardwareConfig, dsp_pairs: int, pair: int) -> int:
    """Bits of a pair's sum that can be other than zero."""
    return PAIR_BITS if is_packed(dsp_pairs, pair) else PACKED_FIELD_BITS * pair_lanes(config, pair)
