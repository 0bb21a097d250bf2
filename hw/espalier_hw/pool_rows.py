"""First half of max-pooling: the maximum of rows, over all columns of a window."""

from __future__ import annotations

from typing import Any

from amaranth.hdl import Array, Cat, Module, Mux, Signal, Value
from amaranth.lib import wiring
from amaranth.lib.wiring import In, Out

from espalier.arch.config import HardwareConfig
from espalier.arch.operators import WORD_TAPS
from espalier_hw.interfaces import window_bits
from espalier_hw.pool_steps import ROW_STEP, half_rows


def strip_bits(config: HardwareConfig) -> int:
    """Bits of T rows of a window."""
    return config.tile_size * config.window_columns * 8


class PoolRows(wiring.Component):
    """Cuts T rows out of a window, one step a cycle, and keeps the maximum of a group's steps.

    step_valid, step, step_end, step_take: row steps. window_available, window, window_read: the oldest
    window. group_valid, group, group_take: the maximum of a whole group, byte row * (3T-2) + column; the
    next group is worked on meanwhile. In layers with `reduce` half of the centre tile goes out instead, byte
    row * T + column: pixels are valid with pixels_valid, pixels_end is the channel's last, and they
    leave with pixels_take. Rows that belong to both halves are zero in the second.
    """

    def __init__(self, config: HardwareConfig) -> None:
        self.config = config
        super().__init__(
            {
                "reduce": In(1),
                "step_valid": In(1),
                "step": In(ROW_STEP),
                "step_end": In(1),
                "step_take": Out(1),
                "window_available": In(1),
                "window": In(window_bits(config)),
                "window_read": Out(1),
                "pixels_valid": Out(1),
                "pixels": Out(half_rows(config) * config.tile_size * 8),
                "pixels_end": Out(1),
                "pixels_take": In(1),
                "group_valid": Out(1),
                "group": Out(strip_bits(config)),
                "group_take": In(1),
            }
        )

    def elaborate(self, platform: Any) -> Module:
        """Build the block."""
        m = Module()
        size, columns = self.config.tile_size, self.config.window_columns
        bits = strip_bits(self.config)
        strip = Signal(bits, reset_less=True)  # the rows of one step
        valid, leaves, group_end = Signal(), Signal(), Signal()
        complete, moves = Signal(), Signal()  # the maximum is that of a whole group; it moves into `group`
        m.d.comb += [
            self.step_take.eq(self.step_valid & self.window_available & (~valid | leaves)),
            self.window_read.eq(self.step_take & self.step.window_end),
            moves.eq(complete & (~self.group_valid | self.group_take)),
            leaves.eq(valid & Mux(self.reduce, self.pixels_take, ~complete | moves)),
            self.pixels_valid.eq(valid & self.reduce),
            self.pixels.eq(Cat(strip[8 * (row * columns + size - 2) :][: 8 * size] for row in range(size))),
        ]
        with m.If(self.step_take):
            m.d.sync += [
                strip.eq(Cat(self._row(row) for row in range(size))),
                group_end.eq(self.step.group_end),
                self.pixels_end.eq(self.step_end),
            ]
            with m.If(self.reduce & self.step.window_end):
                m.d.sync += strip[: 8 * columns * (2 * half_rows(self.config) - size)].eq(0)
        with m.If(self.step_take | leaves):
            m.d.sync += valid.eq(self.step_take)
        with m.If(leaves | moves):
            m.d.sync += complete.eq(leaves & group_end & ~self.reduce)
        with m.If(moves | self.group_take):
            m.d.sync += self.group_valid.eq(moves)
        maximum = running_maximum(m, strip, leaves, group_end)
        group = Signal(bits, reset_less=True)
        m.d.comb += self.group.eq(group)
        with m.If(moves):
            m.d.sync += group.eq(maximum)
        return m

    def _row(self, row: int) -> Value:
        """Row `tap` + `row` of the window."""
        bits = self.config.window_columns * 8
        flip = (row >> 1 & 1) | (row & 1) << 1  # which bits of the tap are taken inverted
        select = Cat((self.step.inverted if flip >> bit & 1 else self.step.tap)[bit] for bit in (0, 1))
        return Array(self.window.word_select(row + (tap ^ flip), bits) for tap in range(WORD_TAPS))[select]


def running_maximum(m: Module, values: Signal, take: Signal, end: Signal) -> Signal:
    """Maximum of each byte of `values` over all `take` up to one with `end`, in the cycle after it.

    The first value replaces the maximum of before; pixels are not negative, so that is the same as from 0.
    """
    fresh = Signal(init=1)
    maxima = []
    with m.If(take):
        m.d.sync += fresh.eq(end)
    for number in range(len(values) // 8):
        value = values.word_select(number, 8)
        maximum = Signal(8, name=f"maximum_{number}", reset_less=True)
        with m.If(take & (fresh | (value > maximum))):
            m.d.sync += maximum.eq(value)
        maxima.append(maximum)
    result = Signal(len(values))
    m.d.comb += result.eq(Cat(maxima))
    return result
