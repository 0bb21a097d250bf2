"""Cuts the columns of a window word out of a window."""

from __future__ import annotations

from typing import Any

import numpy as np
import numpy.typing as npt
from amaranth.hdl import Array, Cat, Const, Module, Mux, Signal, Value
from amaranth.lib import data, wiring
from amaranth.lib.wiring import In, Out

from espalier.arch.config import HardwareConfig
from espalier_hw.interfaces import window_bits, word_bits

# Column offset of a word as the extractor's two multiplexers want it: by 0..3, then by 0 or 4 columns.
# The fine shift is there twice, straight for columns 4n and 4n+1, inverted for the others: a single one would
# be merged into a barrel shifter of two-input multiplexers, which takes half as many LUTs again.
SELECT = data.StructLayout({"fine": 2, "inverted": 2, "coarse": 1, "stride2": 1})


def select_columns(m: Module, config: HardwareConfig, column_offset: Value, stride: Value) -> data.View:
    """Decode a pattern's column offset, combinationally."""
    select = Signal(SELECT)
    shift = Signal(range(2 * config.tile_size))
    first = Mux(stride == 2, config.tile_size - 2, config.tile_size // 2)
    m.d.comb += [
        shift.eq(column_offset + first),
        select.fine.eq(shift),
        select.inverted.eq(~shift),
        select.coarse.eq(shift >> 2),
        select.stride2.eq(stride == 2),
    ]
    return select


class Extractor(wiring.Component):
    """Column x of the word = window column T-2 + column_offset + stride*x, one cycle later.

    Offsets: stride 1: -(T div 2)..T-1-(T div 2); stride 2: 2-T..1. The word changes only with `enable`.
    """

    def __init__(self, config: HardwareConfig) -> None:
        self.config = config
        super().__init__(
            {
                "window": In(window_bits(config)),
                "select": In(SELECT),
                "enable": In(1),
                "word": Out(word_bits(config)),
            }
        )

    def elaborate(self, platform: Any) -> Module:
        """Build the block."""
        m = Module()
        size = self.config.tile_size
        first = size - 2 - size // 2
        word = Signal(word_bits(self.config), reset_less=True)
        # All rows shift as one vector: what spills over from the next row is never selected.
        choices = [self.window >> 8 * fine for fine in range(4)]
        shifted = [Signal(window_bits(self.config), name=f"shifted_{half}") for half in (0, 1)]
        m.d.comb += [
            shifted[0].eq(Array(choices)[self.select.fine]),
            shifted[1].eq(Array(reversed(choices))[self.select.inverted]),
        ]
        m.d.comb += self.word.eq(word)
        with m.If(self.enable):
            m.d.sync += word.eq(
                Mux(
                    self.select.stride2,
                    Mux(self.select.coarse, self._columns(shifted, 4, 2), self._columns(shifted, 0, 2)),
                    Mux(
                        self.select.coarse,
                        self._columns(shifted, first + 4, 1),
                        self._columns(shifted, first, 1),
                    ),
                )
            )
        return m

    def _columns(self, shifted: list[Signal], start: int, stride: int) -> Value:
        """T columns from `start` on, of all rows; zero where the window has no such column."""
        columns = self.config.window_columns
        wanted = [start + stride * x for x in range(self.config.tile_size)]
        return Cat(
            shifted[column // 2 % 2].word_select(row * columns + column, 8)
            if column < columns
            else Const(0, 8)
            for row in range(self.config.word_rows)
            for column in wanted
        )

    @staticmethod
    def model(
        config: HardwareConfig, window: npt.NDArray[np.uint8], column_offset: int, stride: int
    ) -> npt.NDArray[np.uint8]:
        """Word uint8[T+3, T] of a window uint8[T+3, 3T-2]."""
        first = config.tile_size - 2 + column_offset
        return window[:, first : first + stride * (config.tile_size - 1) + 1 : stride]
