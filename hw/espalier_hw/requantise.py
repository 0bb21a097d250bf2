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
from espalier_hw.drain import beat_layout, choose_beat
from espalier_hw.interfaces import LAYER
from espalier_hw.lanes import is_packed
from espalier_hw.pool import LANE_BITS
from espalier_hw.residual import ROUNDING, TERM_BITS, saturate

_PRODUCT_BITS = ACCUMULATOR_BITS + MULTIPLIER_BITS


class Requantiser(wiring.Component):
    """Beats of sums in, beats of bytes out, `STAGES` cycles of `advance` later, for entries with `last`.

    Stage 1 (the input's registers): packed sums; 2: lanes; 3: sums of all parts; 4: with bias; 5, 6:
    times the multiplier; 7: shifted; 8: saturated; 9: plus term. Clamping and masking are behind stage 9.
    residual_index, residual_final, residual_valid: the beat in stage 3; its pixels have to come back as
    `terms` five cycles of `advance` later. slot, final, bytes, tile_y, tile_x, channel: the output.
    end_of_layer: pulse, the last beat of the layer's last entry has been added up. busy: a beat is in
    the stages behind that.
    """

    STAGES = 8

    def __init__(self, config: HardwareConfig) -> None:
        self.config = config
        self.lanes = 2 * config.output_pairs
        beat = beat_layout(config)
        index = beat["index"].shape
        super().__init__(
            {
                "layer": In(LAYER),
                "advance": In(1),
                "beat_valid": In(1),
                "beat": In(beat),
                "residual_valid": Out(1),
                "residual_index": Out(index),
                "residual_final": Out(1),
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
        index = self._delay(m, "index", self.beat.index, 1, 9)
        final = self._delay(m, "final", self.beat.final, 1, 9)
        valid = self._delay(m, "valid", arrived & last, 2, 9, reset_less=False)
        m.d.comb += [
            self.end_of_layer.eq(self.advance & arrived & final[2] & end),
            self.busy.eq(Cat(valid[stage] for stage in range(3, 10)).any()),
            self.residual_valid.eq(valid[3]),
            self.residual_index.eq(index[3]),
            self.residual_final.eq(final[3]),
            self.valid.eq(valid[9]),
            self.final.eq(final[9]),
            self.slot.eq(self._slot(index[9])),
            self.tile_y.eq(self._delay(m, "tile_y", entry.tile_y, 1, 9)[9]),
            self.tile_x.eq(self._delay(m, "tile_x", entry.tile_x, 1, 9)[9]),
            self.channel.eq(self._delay(m, "channel", entry.channel, 1, 9)[9]),
        ]
        sums = self._add_parts(m, self._unpack(m), arrived, index[2])
        sums[0] = Mux(self.layer.reduce, self._add_lanes(m, index[3]), sums[0])
        numbers = self._scale(m, sums)
        inside = self._inside(m, index[8])
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

    def _unpack(self, m: Module) -> list[Value]:
        """Lanes of stage 2. Of two sums in one DSP slice, a negative low one has borrowed from the high."""
        config, half = self.config, PACKED_FIELD_BITS
        lanes: list[Value] = []
        for pair in range(config.output_pairs):
            packed = [
                is_packed(config, beat * config.output_pairs + pair) for beat in range(config.output_beats)
            ]
            value = self.beat.pairs.word_select(pair, 2 * half)
            pooled = self.beat.pool.word_select(pair, 2 * LANE_BITS)
            low = value[:half] | pooled[:half]
            borrowed = value[half - 1] & choose_beat(
                Cat(Const(flag, 1) for flag in packed), 1, config.output_beats, self.beat.index
            )
            high = (value[half:] | pooled[half:]) + borrowed
            lanes.append(self._register(m, f"lane_{2 * pair}", low[:half].as_signed(), half))
            lanes.append(self._register(m, f"lane_{2 * pair + 1}", high[:half].as_signed(), half))
        return lanes

    def _add_parts(self, m: Module, lanes: list[Value], arrived: Value, index: Value) -> list[Value]:
        """Sum of all parts so far, kept per beat; behind stage 2."""
        entry = self.beat.entry
        first = self._delay(m, "first", entry.first, 1, 2)[2]
        high_digit = self._delay(m, "high_digit", entry.high_digit, 1, 2)[2]
        m.submodules.parts = parts = memory.Memory(
            shape=self.lanes * ACCUMULATOR_BITS,
            depth=1 << len(index),
            init=[],
            attrs={"ram_style": "distributed"},
        )
        write_port, read_port = parts.write_port(), parts.read_port(domain="comb")
        sums: list[Value] = []
        for number, lane in enumerate(lanes):
            total = Signal(signed(ACCUMULATOR_BITS), name=f"sum_{number}")
            stored = read_port.data.word_select(number, ACCUMULATOR_BITS)
            m.d.comb += total.eq(Mux(first, 0, stored) + Mux(high_digit, lane << DIGIT_BITS, lane))
            sums.append(total)
        m.d.comb += [
            read_port.addr.eq(index),
            write_port.addr.eq(index),
            write_port.en.eq(self.advance & arrived),
            write_port.data.eq(Cat(sums)),
        ]
        return sums

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
        """Stages 3 to 9: bias, multiplier, shift, saturation, residual."""
        entry = self.beat.entry
        bias = self._delay(m, "bias", entry.bias, 1, 3)[3]
        multiplier = self._delay(m, "multiplier", entry.multiplier, 1, 4)[4]
        shift = self._delay(m, "shift", entry.shift, 1, 6)[6]
        numbers = []
        for lane, value in enumerate(sums):
            total = self._register(m, f"total_{lane}", value, ACCUMULATOR_BITS)
            biased = self._register(m, f"biased_{lane}", total + bias, ACCUMULATOR_BITS)
            early = self._register(m, f"early_{lane}", biased * multiplier, _PRODUCT_BITS)
            product = self._register(m, f"product_{lane}", early, _PRODUCT_BITS)
            shifted = self._register(
                m,
                f"shifted_{lane}",
                Array(product[s : s + FIXED_POINT_BITS] for s in MULTIPLIER_SHIFTS)[shift],
                FIXED_POINT_BITS,
            )
            sign = self._register(m, f"sign_{lane}", product[-1], 1)[0]
            tops = [product[s + FIXED_POINT_BITS - 1 :] for s in MULTIPLIER_SHIFTS]
            fits = self._register(m, f"fits_{lane}", Array(~top.any() | top.all() for top in tops)[shift], 1)
            limit = Cat((~sign).replicate(FIXED_POINT_BITS - 1), sign)
            limited = self._register(m, f"limited_{lane}", Mux(fits[0], shifted, limit), FIXED_POINT_BITS)
            term = self.terms.word_select(lane, TERM_BITS).as_signed()
            numbers.append(self._register(m, f"number_{lane}", limited + term, TERM_BITS + 1))
        return numbers

    def _inside(self, m: Module, index: Value) -> Signal:
        """Find the lanes inside the map (`reduce`: lane 0 only), from the index of stage 8, for stage 9."""
        layer, size = self.layer, self.config.tile_size
        tile_y = self._delay(m, "mask_tile_y", self.beat.entry.tile_y, 1, 8)[8]
        tile_x = self._delay(m, "mask_tile_x", self.beat.entry.tile_x, 1, 8)[8]
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
