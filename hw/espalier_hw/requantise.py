"""From sums of parts to bytes: the arithmetic of the output stage."""

from __future__ import annotations

from typing import Any

import numpy as np
import numpy.typing as npt
from amaranth.hdl import Array, Cat, Const, Module, Mux, Signal, Value, signed
from amaranth.lib import memory, wiring
from amaranth.lib.wiring import In, Out

from espalier.arch.config import HardwareConfig
from espalier.arch.operators import DIGIT_BITS, PACKED_FIELD_BITS
from espalier.arch.program import (
    ACCUMULATOR_BITS,
    FIXED_POINT_BITS,
    FRACTION_BITS,
    MULTIPLIER_BITS,
    MULTIPLIER_SHIFTS,
)
from espalier_hw.carry import add_choice
from espalier_hw.drain import beat_layout, choose_beat
from espalier_hw.interfaces import LAYER
from espalier_hw.lanes import is_packed
from espalier_hw.pool import LANE_BITS
from espalier_hw.residual import ROUNDING, TERM_BITS, saturate

_PRODUCT_BITS = ACCUMULATOR_BITS + MULTIPLIER_BITS


class Requantiser(wiring.Component):
    """Beats of sums in, beats of bytes out, six cycles of `advance` later, for entries with `last`.

    Stage 1 (the input's registers): packed sums; 2: lanes; 3: bias and all parts; 4, 5: times the multiplier;
    6: shifted; 7: saturated, with `terms`. Clamping and masking are behind stage 7. The bias is that of the
    first part. terms: belong to the beat in stage 6, that is five cycles of `advance` after it was at the
    input. slot, final, bytes, tile_y, tile_x, channel: the output.
    end_of_layer: pulse, the last beat of the layer's last entry has been added up. busy: a beat is in
    the stages behind that.
    """

    def __init__(self, config: HardwareConfig) -> None:
        self.config = config
        self.lanes = 2 * config.output_pairs
        beat = beat_layout(config)
        super().__init__(
            {
                "layer": In(LAYER),
                "advance": In(1),
                "beat_valid": In(1),
                "beat": In(beat),
                "terms": In(self.lanes * TERM_BITS),
                "valid": Out(1),
                "slot": Out(range(config.output_beats)),
                "final": Out(1),
                "bytes": Out(self.lanes * 8),
                "tile_y": Out(8),
                "tile_x": Out(8),
                "channel": Out(13),
                "end_of_layer": Out(1),
                "busy": Out(1),
            }
        )

    def elaborate(self, platform: Any) -> Module:
        """Build the block."""
        m = Module()
        entry = self.beat.entry
        arrived = self._delay(m, "arrived", self.beat_valid, 1, 2, reset_less=False)[2]
        last = self._delay(m, "last", entry.last, 1, 2)[2]
        end = self._delay(m, "end", entry.end_of_layer, 1, 2)[2]
        index = self._delay(m, "index", self.beat.index, 1, 7)
        final = self._delay(m, "final", self.beat.final, 1, 7)
        valid = self._delay(m, "valid", arrived & last, 2, 7, reset_less=False)
        m.d.comb += [
            self.end_of_layer.eq(self.advance & arrived & final[2] & end),
            self.busy.eq(Cat(valid[stage] for stage in range(3, 8)).any()),
            self.valid.eq(valid[7]),
            self.final.eq(final[7]),
            self.slot.eq(self._slot(index[7])),
            self.tile_y.eq(self._delay(m, "tile_y", entry.tile_y, 1, 7)[7]),
            self.tile_x.eq(self._delay(m, "tile_x", entry.tile_x, 1, 7)[7]),
            self.channel.eq(self._delay(m, "channel", entry.channel, 1, 7)[7]),
        ]
        lanes, carries = self._unpack(m)
        lanes[0] = Mux(self.layer.reduce, self._add_lanes(m, index[3]), lanes[0]).as_signed()
        numbers = self._scale(m, self._add_parts(m, lanes, carries, arrived, index[2]))
        inside = self._inside(m, index[6])
        m.d.comb += self.bytes.eq(
            Cat(
                Mux(inside[lane], _clamp(number[FRACTION_BITS:]), self.layer.out_pad)
                for lane, number in enumerate(numbers)
            )
        )
        return m

    def _slot(self, index: Value) -> Value:
        """Place of a beat in its word: the sum over all lanes, which comes last, belongs into lane 0."""
        return Mux(index >= self.config.output_beats, 0, index)

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

    def _unpack(self, m: Module) -> tuple[list[Value], list[Value]]:
        """Lanes of stage 2, times 16 for high digits, and what the adder behind has to add to them.

        Of two sums in one DSP slice, a negative low one has borrowed from the high one. The borrow goes back
        through the carry of the next adder: sixteen times it is four ones below the lane.
        """
        config, half = self.config, PACKED_FIELD_BITS
        high_digit = self.beat.entry.high_digit
        lanes: list[Value] = []
        carries: list[Value] = []
        for pair in range(config.output_pairs):
            packed = [
                is_packed(config, beat * config.output_pairs + pair) for beat in range(config.output_beats)
            ]
            sums = self.beat.pairs.word_select(pair, 2 * half)
            value = sums | self.beat.pool.word_select(pair, 2 * LANE_BITS)
            borrowed = Signal(name=f"borrowed_{pair}")
            m.d.comb += borrowed.eq(
                sums[half - 1]
                & choose_beat(Cat(Const(flag, 1) for flag in packed), 1, config.output_beats, self.beat.index)
            )
            for number, lane, carry in (
                (2 * pair, value[:half], Const(0, 1)),
                (2 * pair + 1, value[half:], borrowed),
            ):
                scaled = Cat(carry.replicate(DIGIT_BITS), lane).as_signed()
                chosen = Mux(high_digit, scaled, lane.as_signed())
                lanes.append(self._register(m, f"lane_{number}", chosen, half + DIGIT_BITS))
                carries.append(self._register(m, f"carry_{number}", carry, 1))
        return lanes, carries

    def _add_parts(
        self, m: Module, lanes: list[Value], carries: list[Value], arrived: Value, index: Value
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
            m.d.comb += total.eq(add_choice(lane, Mux(first, bias, stored), ACCUMULATOR_BITS, carry[0]))
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

    def _add_lanes(self, m: Module, index: Value) -> Value:
        """Sum of all lanes of the tile, in layers with `reduce`: complete two cycles after the last lane.

        index: that of stage 3. The beats behind the tile's last one are zero.
        """
        pooled = [self.beat.pool.word_select(lane, LANE_BITS) for lane in range(self.lanes)]
        quarters = [
            self._register(m, f"quarter_{k}", _tree(pooled[k::4]), ACCUMULATOR_BITS) for k in range(4)
        ]
        beat = self._register(m, "beat_sum", _tree(quarters), ACCUMULATOR_BITS)
        total = Signal(signed(ACCUMULATOR_BITS), name="lane_sum", reset_less=True)
        with m.If(self.advance):
            m.d.sync += total.eq(Mux(index == 0, 0, total) + beat)
        return total

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
            windows = Array(product[s : s + bits] for s in MULTIPLIER_SHIFTS)
            tops = [product[s + bits - 1 :] for s in MULTIPLIER_SHIFTS]
            fits = Array(~top.any() | top.all() for top in tops)
            shifted = self._register(m, f"shifted_{lane}", windows[shift], bits)
            fitting = self._register(m, f"fitting_{lane}", fits[shift], 1)[0]
            sign = self._register(m, f"sign_{lane}", product[-1], 1)[0]
            limit = Cat((~sign).replicate(bits - 1), sign)
            term = self.terms.word_select(lane, TERM_BITS).as_signed()
            limited = Mux(fitting, shifted, limit.as_signed())
            number = add_choice(term, limited, TERM_BITS + 1).as_signed()
            numbers.append(self._register(m, f"number_{lane}", number, TERM_BITS + 1))
        return numbers

    def _inside(self, m: Module, index: Value) -> Signal:
        """Find the lanes inside the map (`reduce`: lane 0 only), from the index of stage 6, for stage 7."""
        layer, size = self.layer, self.config.tile_size
        tile_y = self._delay(m, "mask_tile_y", self.beat.entry.tile_y, 1, 6)[6]
        tile_x = self._delay(m, "mask_tile_x", self.beat.entry.tile_x, 1, 6)[6]
        last_y, last_x = Signal(8), Signal(8)
        rows, columns, row_inside, column_inside = (Signal(size) for _ in range(4))
        tile = Signal(size * size)
        inside = Signal(self.lanes, reset_less=True)
        m.d.sync += [
            last_y.eq(layer.out_tiles_y - 1),
            last_x.eq(layer.out_tiles_x - 1),
        ]
        for place in range(size):
            only = layer.reduce if place else Const(0, 1)
            m.d.sync += [
                rows[place].eq((place < layer.out_rows_last) & ~only),
                columns[place].eq((place < layer.out_columns_last) & ~only),
            ]
        m.d.comb += [
            row_inside.eq(rows | (tile_y != last_y).replicate(size)),
            column_inside.eq(columns | (tile_x != last_x).replicate(size)),
            tile.eq(Cat(row_inside[row].replicate(size) & column_inside for row in range(size))),
        ]
        with m.If(self.advance):
            m.d.sync += inside.eq(choose_beat(tile, self.lanes, self.config.output_beats, self._slot(index)))
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


def _tree(values: list[Value]) -> Value:
    """Sum as a balanced tree."""
    if len(values) == 1:
        return values[0]
    half = len(values) // 2
    return _tree(values[:half]) + _tree(values[half:])


def _clamp(number: Value) -> Value:
    """Signed number to 0..255."""
    return Mux(number[-1], Const(0, 8), number[:8] | number[8:-1].any().replicate(8))
