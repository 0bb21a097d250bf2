"""From sums of parts to bytes: the arithmetic of the output stage."""

from __future__ import annotations

from itertools import pairwise
from typing import Any

import numpy as np
import numpy.typing as npt
from amaranth.hdl import Cat, Const, Module, Mux, Signal, Value, signed
from amaranth.lib import memory, wiring
from amaranth.lib.wiring import In, Out

from espalier.arch.config import HardwareConfig
from espalier.arch.operators import DIGIT_BITS
from espalier.arch.program import (
    ACCUMULATOR_BITS,
    FIXED_POINT_BITS,
    FRACTION_BITS,
    MULTIPLIER_BITS,
    MULTIPLIER_SHIFTS,
)
from espalier_hw import luts
from espalier_hw.beats import beat_slots, choose_beat, select
from espalier_hw.carry import add_choice
from espalier_hw.drain import beat_layout
from espalier_hw.interfaces import LAYER
from espalier_hw.lanes import is_packed
from espalier_hw.residual import ROUNDING, TERM_BITS, saturate
from espalier_hw.table_walker import ENTRY

# Fields of an entry that go with a word to the feature memory.
_PLACE = ("tile_y", "tile_x", "channel", "final_tile", "end_of_layer")
_PRODUCT_BITS = ACCUMULATOR_BITS + MULTIPLIER_BITS


class Requantiser(wiring.Component):
    """Beats of sums in, beats of bytes out, six cycles of `advance` later, for entries with `last`.

    Stage 1 (the input's registers): packed sums; 2: lanes; 3: bias and all parts; 4, 5: times the multiplier;
    6: shifted; 7: saturated, with `terms`. Clamping and masking are behind stage 7. The bias is that of the
    first part. terms: belong to the beat in stage 6; residual_valid, residual_index, residual_final: the beat
    in stage 3, for which terms will be needed three cycles of `advance` later. dsp_pairs: lane pairs of a PE
    in DSP slices. primitives: with "xilinx", LUTs are filled by hand. valid, slot, final, bytes, and some
    fields of the entry: the output.
    """

    def __init__(self, config: HardwareConfig, dsp_pairs: int, primitives: str = "behavioural") -> None:
        self.config = config
        self._by_hand = primitives == "xilinx"
        self._dsp_pairs = dsp_pairs
        self._slots = beat_slots(config)
        self.lanes = len(self._slots)
        beat = beat_layout(config)
        super().__init__(
            {
                "layer": In(LAYER),
                "advance": In(1),
                "beat_valid": In(1),
                "beat": In(beat),
                "terms": In(self.lanes * TERM_BITS),
                "residual_valid": Out(1),
                "residual_index": Out(range(config.output_beats)),
                "residual_final": Out(1),
                "valid": Out(1),
                "slot": Out(range(config.output_beats)),
                "final": Out(1),
                "bytes": Out(self.lanes * 8),
                **{name: Out(ENTRY[name].shape) for name in _PLACE},
            }
        )

    def elaborate(self, platform: Any) -> Module:
        """Build the block."""
        m = Module()
        entry = self.beat.entry
        arrived = self._delay(m, "arrived", self.beat_valid, 1, 2, reset_less=False)[2]
        last = self._delay(m, "last", entry.last, 1, 2)[2]
        index = self._delay(m, "index", self.beat.index, 1, 7)
        final = self._delay(m, "final", self.beat.final, 1, 7)
        valid = self._delay(m, "valid", arrived & last, 2, 7, reset_less=False)
        m.d.comb += [
            self.residual_valid.eq(valid[3]),
            self.residual_index.eq(index[3]),
            self.residual_final.eq(final[3]),
        ]
        m.d.comb += [self.valid.eq(valid[7]), self.final.eq(final[7]), self.slot.eq(index[7])]
        m.d.comb += [getattr(self, name).eq(self._delay(m, name, entry[name], 1, 7)[7]) for name in _PLACE]
        lanes, carries = self._unpack(m)
        numbers = self._scale(m, self._add_parts(m, lanes, carries, arrived, index[2]))
        inside = self._inside(m, index[6])
        m.d.comb += self.bytes.eq(
            Cat(
                Mux(inside[lane], _clamp(number[FRACTION_BITS:]), self.layer.out_pad)
                for lane, number in enumerate(numbers)
            )
        )
        return m

    def _register(self, m: Module, name: str, value: Value, bits: int) -> Signal:
        """Signed pipeline register."""
        register = Signal(signed(bits), name=name, reset_less=True)
        with m.If(self.advance):
            m.d.sync += register.eq(value)
        return register

    def _delay(
        self, m: Module, name: str, value: Value, first: int, last: int, reset_less: bool = True
    ) -> dict[int, Value]:
        """Copy a value of stage `first` to all stages up to `last`."""
        stages: dict[int, Value] = {first: value}
        for stage in range(first + 1, last + 1):
            stages[stage] = Signal(value.shape(), name=f"{name}_{stage}", reset_less=reset_less)
            with m.If(self.advance):
                m.d.sync += stages[stage].eq(stages[stage - 1])
        return stages

    def _unpack(self, m: Module) -> tuple[list[tuple[Value, Value]], list[Value]]:
        """Lanes of stage 2: as they are, times 16, and what the adder behind has to add to them.

        Those of low digits are zero in entries of high digits and the other way round: clearing a register
        takes no LUT. Of two sums in one DSP slice, a negative low one has borrowed from the high one. The
        borrow goes back through the carry of the next adder: sixteen times it is four ones below the lane.
        """
        half = self.config.pair_spacing_bits
        low: Value = Const(0, half)
        high_digit = self.beat.entry.high_digit
        lanes: list[tuple[Value, Value]] = []
        carries: list[Value] = []
        for slot, row in enumerate(self._slots):
            lane = self.beat.sums.word_select(slot, half)
            carry: Value = Const(0, 1)
            if slot % 2:
                packed = [Const(is_packed(self._dsp_pairs, number // 2), 1) for number in row]
                carry = Signal(name=f"borrowed_{slot}")
                m.d.comb += carry.eq(low[-1] & select(packed, self.beat.index))
            scaled = Cat(carry.replicate(DIGIT_BITS), lane).as_signed()
            plain = Mux(high_digit, 0, lane.as_signed())
            lanes.append(
                (
                    self._register(m, f"lane_{slot}", plain, half),
                    self._register(m, f"high_{slot}", Mux(high_digit, scaled, 0), half + DIGIT_BITS),
                )
            )
            carries.append(self._register(m, f"carry_{slot}", carry, 1))
            low = lane
        return lanes, carries

    def _add_parts(
        self,
        m: Module,
        lanes: list[tuple[Value, Value]],
        carries: list[Value],
        arrived: Value,
        index: Value,
    ) -> list[Value]:
        """Add parts to the bias, in the registers of stage 3 and in a memory that keeps the sums per beat."""
        entry = self.beat.entry
        first = self._delay(m, "first", entry.first, 1, 2)[2]
        bias = self._delay(m, "bias", entry.bias, 1, 2)[2]
        m.submodules.parts = parts = memory.Memory(
            shape=self.lanes * ACCUMULATOR_BITS,
            depth=1 << len(index),
            init=[],
            attrs={"ram_style": "distributed"},
        )
        write_port, read_port = parts.write_port(), parts.read_port(domain="comb")
        totals = []
        for number, (lane, carry) in enumerate(zip(lanes, carries, strict=True)):
            total = Signal(ACCUMULATOR_BITS, name=f"total_{number}")
            stored = read_port.data.word_select(number, ACCUMULATOR_BITS)
            m.d.comb += total.eq(self._add(m, *lane, carry[0], first, bias, stored))
            totals.append(total)
        m.d.comb += [
            read_port.addr.eq(index),
            write_port.addr.eq(index),
            write_port.en.eq(self.advance & arrived),
            write_port.data.eq(Cat(totals)),
        ]
        return [
            self._register(m, f"sum_{number}", total, ACCUMULATOR_BITS) for number, total in enumerate(totals)
        ]

    def _add(
        self, m: Module, plain: Value, high: Value, carry: Value, first: Value, bias: Value, stored: Value
    ) -> Value:
        """(plain | high) + (bias if first, else stored) + carry, where plain or high is zero."""
        if not self._by_hand:
            return add_choice(plain | high, Mux(first, bias, stored), ACCUMULATOR_BITS, carry)
        operands = [
            (plain[min(bit, len(plain) - 1)], high[min(bit, len(high) - 1)], first, bias[bit], stored[bit])
            for bit in range(ACCUMULATOR_BITS)
        ]
        return luts.add(m, _either, _bias_or_stored, operands, carry)

    def _scale(self, m: Module, sums: list[Value]) -> list[Signal]:
        """Stages 4 to 7: multiplier, shift, saturation, residual."""
        entry = self.beat.entry
        multiplier = self._delay(m, "multiplier", entry.multiplier, 1, 3)[3]
        shift = self._delay(m, "shift", entry.shift, 1, 5)[5]
        bits = FIXED_POINT_BITS
        numbers = []
        for lane, value in enumerate(sums):
            early = self._register(m, f"early_{lane}", value * multiplier, _PRODUCT_BITS)
            product = self._register(m, f"product_{lane}", early, _PRODUCT_BITS)
            shifted = self._register(m, f"shifted_{lane}", self._window(m, product, shift), bits)
            fitting = self._register(m, f"fitting_{lane}", self._fits(m, product, shift), 1)[0]
            sign = self._register(m, f"sign_{lane}", product[-1], 1)[0]
            limit = Cat((~sign).replicate(bits - 1), sign)
            term = self.terms.word_select(lane, TERM_BITS).as_signed()
            limited = Mux(fitting, shifted, limit.as_signed())
            number = add_choice(term, limited, TERM_BITS + 1).as_signed()
            numbers.append(self._register(m, f"number_{lane}", number, TERM_BITS + 1))
        return numbers

    def _window(self, m: Module, product: Value, shift: Value) -> Value:
        """FIXED_POINT_BITS bits of the product from the chosen shift on."""
        windows = [product[s : s + FIXED_POINT_BITS] for s in MULTIPLIER_SHIFTS]
        return luts.choose(m, windows, shift) if self._by_hand else select(windows, shift)

    def _fits(self, m: Module, product: Value, shift: Value) -> Value:
        """Whether the bits above the window that `shift` selects are all equal to the sign.

        The bits between the ends of two windows count for all shifts up to that of the lower one.
        """
        sign = product[-1]
        ends = [s + FIXED_POINT_BITS - 1 for s in MULTIPLIER_SHIFTS] + [len(product) - 1]
        if self._by_hand:
            return luts.fits(m, [product[low:high] for low, high in pairwise(ends)], sign, shift)
        excess: Value = Const(0, 1)
        for number, (low, high) in enumerate(pairwise(ends)):
            differs = (product[low:high] ^ sign.replicate(high - low)).any()
            excess = excess | (differs & (shift <= number))
        return ~excess

    def _inside(self, m: Module, index: Value) -> Signal:
        """Find the lanes inside the map, from the index of stage 6, for stage 7."""
        layer, entry, size = self.layer, self.beat.entry, self.config.tile_size
        lowest = self._delay(m, "lowest_tile", entry.lowest_tile, 1, 6)[6]
        rightmost = self._delay(m, "rightmost_tile", entry.rightmost_tile, 1, 6)[6]
        rows, columns = Signal(size), Signal(size)
        tile = Signal(size * size)
        inside = Signal(self.lanes, reset_less=True)
        for place in range(size):
            m.d.sync += [
                rows[place].eq(place < layer.out_rows_last),
                columns[place].eq(place < layer.out_columns_last),
            ]
        row_inside, column_inside = rows | (~lowest).replicate(size), columns | (~rightmost).replicate(size)
        m.d.comb += tile.eq(Cat(row_inside[row].replicate(size) & column_inside for row in range(size)))
        with m.If(self.advance):
            m.d.sync += inside.eq(choose_beat(tile, 1, self._slots, index))
        return inside

    @staticmethod
    def model(
        sums: npt.NDArray[np.int64],
        bias: int,
        multiplier: int,
        shift: int,
        scaled: npt.NDArray[np.int64],
        zero: int,
    ) -> npt.NDArray[np.uint8]:
        """Bytes uint8[n] of sums of all parts int64[n]; scaled: v of the residual, zero: of the output."""
        fixed = saturate(((sums + bias) * multiplier) >> MULTIPLIER_SHIFTS[shift])
        rounded = ((fixed + scaled + ROUNDING) >> FRACTION_BITS) + zero
        return np.clip(rounded, 0, 255).astype(np.uint8)


def _either(plain: int, high: int, *_: int) -> int:
    return plain | high


def _bias_or_stored(_plain: int, _high: int, first: int, bias: int, stored: int) -> int:
    return bias if first else stored


def _clamp(number: Value) -> Value:
    """Signed number to 0..255."""
    return Mux(number[-1], Const(0, 8), number[:8] | number[8:-1].any().replicate(8))
