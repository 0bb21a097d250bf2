"""Cuts the columns of a window word out of a window."""

from __future__ import annotations

from typing import Any

import numpy as np
import numpy.typing as npt
from amaranth.hdl import Array, Cat, Const, Module, Mux, Signal, Value
from amaranth.lib import data, wiring
from amaranth.lib.wiring import In, Out

from espalier.arch.config import HardwareConfig

# Column offset of a word as the extractor's two multiplexers want it, see there. The fine shift is there
# twice, straight and inverted, and neighbouring columns use different ones: a single one would be merged
# into a barrel shifter of two-input multiplexers, which takes a third more LUTs.
SELECT = data.StructLayout({"coarse": 2, "fine": 2, "inverted": 2})


def select_columns(m: Module, config: HardwareConfig, column_offset: Value, stride2: Value) -> data.View:
    """Decode a pattern's column offset, combinationally. stride2: one bit, the stride is 2 and not 1."""
    select = Signal(SELECT)
    shift = Signal(range(2 * config.tile_size))
    m.d.comb += [
        shift.eq(column_offset + Mux(stride2, config.tile_size - 2, config.tile_size // 2)),
        select.coarse.eq(Cat(Mux(stride2, shift[0], shift[2]), stride2)),
        select.fine.eq(Mux(stride2, shift[1:3], shift[0:2])),
        select.inverted.eq(~Mux(stride2, shift[1:3], shift[0:2])),
    ]
    return select


class Extractor(wiring.Component):
    """Column x of the word = window column T-2 + column_offset + stride*x, of all rows, one cycle later.

    rows: of window and word, all of them unless given.
    Offsets: stride 1: -(T div 2)..T-1-(T div 2); stride 2: 2-T..1. The word changes only with `enable`.

    Two multiplexers of four inputs, a LUT a bit each: the first chooses even or odd columns (stride 2), or
    all columns from one of two starts four columns apart (stride 1); the second shifts that by 0..3.
    """

    def __init__(self, config: HardwareConfig, rows: int | None = None) -> None:
        self.config = config
        self.rows = config.word_rows if rows is None else rows
        super().__init__(
            {
                "window": In(self.rows * config.window_columns * 8),
                "select": In(SELECT),
                "enable": In(1),
                "word": Out(self.rows * config.tile_size * 8),
            }
        )

    def elaborate(self, platform: Any) -> Module:
        """Build the block."""
        m = Module()
        size, rows = self.config.tile_size, self.rows
        columns = size + 3  # of the first multiplexer: the word's, wherever the second finds them
        start = size - 2 - size // 2
        # `keep`: synthesis tools must not look for LUTs across the boundary of the two multiplexers.
        near = Signal(8 * columns * rows, attrs={"keep": 1})
        choices = [
            self._columns(columns, start, 1),
            self._columns(columns, start + 4, 1),
            self._columns(columns, 0, 2),
            self._columns(columns, 1, 2),
        ]
        m.d.comb += near.eq(Array(choices)[self.select.coarse])
        word = Signal(len(self.word), reset_less=True)
        with m.If(self.enable):
            m.d.sync += word.eq(
                Cat(self._shift(near, row * columns + x, x) for row in range(rows) for x in range(size))
            )
        m.d.comb += self.word.eq(word)
        return m

    def _columns(self, count: int, start: int, stride: int) -> Value:
        """Every `stride`-th window column from `start` on, of all rows; zero beyond the last column."""
        columns = self.config.window_columns
        wanted = [start + stride * index for index in range(count)]
        return Cat(
            self.window.word_select(row * columns + column, 8) if column < columns else Const(0, 8)
            for row in range(self.rows)
            for column in wanted
        )

    def _shift(self, near: Value, first: int, x: int) -> Value:
        """Byte `first` + 0..3 of `near`, for column x of the word."""
        flip = (x >> 1 & 1) | (x & 1) << 1  # which bits of the shift are taken inverted
        select = Cat((self.select.inverted if flip >> bit & 1 else self.select.fine)[bit] for bit in (0, 1))
        return Array(near.word_select(first + (index ^ flip), 8) for index in range(4))[select]

    @staticmethod
    def model(
        config: HardwareConfig, window: npt.NDArray[np.uint8], column_offset: int, stride: int
    ) -> npt.NDArray[np.uint8]:
        """Word uint8[rows, T] of a window uint8[rows, 3T-2]."""
        first = config.tile_size - 2 + column_offset
        return window[:, first : first + stride * (config.tile_size - 1) + 1 : stride]
