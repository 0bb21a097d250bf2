"""Turns the patterns of a pooling layer into the steps of the pool unit's two halves."""

from __future__ import annotations

from typing import Any

from amaranth.hdl import Cat, Module, Mux, Signal
from amaranth.lib import data, memory, wiring
from amaranth.lib.wiring import In, Out

from espalier.arch.config import HardwareConfig
from espalier.arch.operators import WORD_TAPS
from espalier.arch.program import MAX_PATTERNS
from espalier_hw.extractor import SELECT, select_columns
from espalier_hw.interfaces import PATTERN, PATTERN_ADDRESS_BITS, memory_write

# Rows from `tap` on of the oldest window go into the maximum; `window_end` releases the window, `group_end`
# completes the maximum. `inverted` is ~tap, and neighbouring rows use different ones, for the reason given at
# `extractor.SELECT`.
ROW_STEP = data.StructLayout({"tap": 2, "inverted": 2, "window_end": 1, "group_end": 1})
# Columns of the oldest completed maximum go into the tile; `group_end` releases the maximum.
COLUMN_STEP = data.StructLayout({"select": SELECT, "group_end": 1})


def half_rows(config: HardwareConfig) -> int:
    """Rows of a tile that an average adds up in one step; two steps reach all of them."""
    return max(config.tile_size + 1 - WORD_TAPS, (config.tile_size + 1) // 2)


_KEPT = data.StructLayout({"taps": WORD_TAPS, "column_offset": 4, "fetch": 1})


class StepList(wiring.Component):
    """Steps of one channel, read over and over.

    clear: pulse, forget all steps. write: append `write_data`. complete: level, all steps are there, at least
    one. valid, step, end: the step that is due, and whether it is a channel's last; take: go to the next,
    which is there one cycle later.
    """

    def __init__(self, layout: data.Layout, depth: int) -> None:
        self.layout = layout
        self.depth = depth
        super().__init__(
            {
                "clear": In(1),
                "write": In(1),
                "write_data": In(layout),
                "complete": In(1),
                "valid": Out(1),
                "step": Out(layout),
                "end": Out(1),
                "take": In(1),
            }
        )

    def elaborate(self, platform: Any) -> Module:
        """Build the block."""
        m = Module()
        m.submodules.steps = steps = memory.Memory(
            shape=self.layout.size, depth=self.depth, init=[], attrs={"ram_style": "distributed"}
        )
        write_port, read_port = steps.write_port(), steps.read_port(domain="comb")
        count, last, index = (Signal(range(self.depth)) for _ in range(3))
        at_end = Signal()
        m.d.comb += [
            write_port.en.eq(self.write),
            write_port.addr.eq(count),
            write_port.data.eq(self.write_data),
            read_port.addr.eq(index),
            at_end.eq(index == last),
        ]
        with m.If(self.clear):
            m.d.sync += [count.eq(0), index.eq(0), self.valid.eq(0)]
        with m.Elif(self.write):
            m.d.sync += [count.eq(count + 1), last.eq(count)]
        with m.Elif(self.complete & (~self.valid | self.take)):
            m.d.sync += [
                self.step.eq(read_port.data),
                self.end.eq(at_end),
                self.valid.eq(1),
                index.eq(Mux(at_end, 0, index + 1)),
            ]
        return m


class PoolSteps(wiring.Component):
    """Keeps the patterns, and reads those of a layer once, before its first window is there.

    A pattern becomes one row step for every tap, or one column step; in layers with `reduce` two row steps,
    which begin with the first and the last `half_rows` rows of the tile. go: pulse; bank, pattern_count,
    stride and reduce have been valid since the cycle before and stay. row, column: see `StepList`.
    """

    def __init__(self, config: HardwareConfig) -> None:
        self.config = config
        super().__init__(
            {
                "pattern_write": In(memory_write(PATTERN_ADDRESS_BITS, PATTERN.size)),
                "go": In(1),
                "bank": In(1),
                "pattern_count": In(7),
                "stride": In(2),
                "reduce": In(1),
                "row_valid": Out(1),
                "row": Out(ROW_STEP),
                "row_end": Out(1),
                "row_take": In(1),
                "column_valid": Out(1),
                "column": Out(COLUMN_STEP),
                "column_end": Out(1),
                "column_take": In(1),
            }
        )

    def elaborate(self, platform: Any) -> Module:
        """Build the block."""
        m = Module()
        m.submodules.rows = rows = StepList(ROW_STEP, WORD_TAPS * MAX_PATTERNS)
        m.submodules.columns = columns = StepList(COLUMN_STEP, MAX_PATTERNS)
        # `index`: of the pattern after `pattern`; `more`: there is one.
        index, last_index, more = Signal(range(MAX_PATTERNS)), Signal(range(MAX_PATTERNS)), Signal()
        pattern, valid = Signal(_KEPT, reset_less=True), Signal()
        reading, complete, done = Signal(), Signal(), Signal()
        following = self._patterns(m, index)
        rest = Signal(WORD_TAPS)
        m.d.comb += [
            rest.eq(Cat(pattern.taps[tap] & pattern.taps[:tap].any() for tap in range(WORD_TAPS))),
            done.eq(~pattern.fetch | (rest == 0)),
            rows.write.eq(valid & pattern.fetch),
            rows.write_data.inverted.eq(~rows.write_data.tap),
            rows.write_data.window_end.eq(done),
            rows.write_data.group_end.eq(done & ~(more & following.fetch)),
            columns.write.eq(valid & ~pattern.fetch),
            columns.write_data.select.eq(
                select_columns(m, self.config, pattern.column_offset.as_signed(), self.stride == 2)
            ),
            columns.write_data.group_end.eq(~more | following.fetch),
        ]
        for tap in reversed(range(WORD_TAPS)):
            with m.If(pattern.taps[tap]):
                m.d.comb += rows.write_data.tap.eq(tap)
        m.d.sync += last_index.eq(self.pattern_count - 1)
        with m.If(self.go):
            m.d.sync += [reading.eq(1), complete.eq(0), valid.eq(0), index.eq(0), more.eq(1)]
        with m.Elif(valid & ~done):
            m.d.sync += pattern.taps.eq(rest)
        with m.Elif(reading):
            m.d.sync += [
                pattern.eq(following),
                valid.eq(more),
                index.eq(index + 1),
                more.eq(more & (index != last_index)),
            ]
            with m.If(self.reduce):
                m.d.sync += pattern.taps.eq(1 | 1 << self.config.tile_size - half_rows(self.config))
            with m.If(~more):
                m.d.sync += [reading.eq(0), complete.eq(1)]
        for steps in (rows, columns):
            m.d.comb += [steps.clear.eq(self.go), steps.complete.eq(complete)]
        m.d.comb += [
            self.row_valid.eq(rows.valid),
            self.row.eq(rows.step),
            self.row_end.eq(rows.end),
            rows.take.eq(self.row_take),
            self.column_valid.eq(columns.valid),
            self.column.eq(columns.step),
            self.column_end.eq(columns.end),
            columns.take.eq(self.column_take),
        ]
        return m

    def _patterns(self, m: Module, index: Signal) -> data.View:
        """Memory with what matters here of all patterns; returns pattern `index` of the layer's bank."""
        m.submodules.patterns = patterns = memory.Memory(
            shape=_KEPT, depth=1 << PATTERN_ADDRESS_BITS, init=[], attrs={"ram_style": "distributed"}
        )
        write_port, read_port = patterns.write_port(), patterns.read_port(domain="comb")
        written = PATTERN(self.pattern_write.data)
        m.d.comb += [
            write_port.en.eq(self.pattern_write.enable),
            write_port.addr.eq(self.pattern_write.address),
            write_port.data.taps.eq(written.taps),
            write_port.data.column_offset.eq(written.column_offset),
            write_port.data.fetch.eq(written.fetch),
            read_port.addr.eq(Cat(index, self.bank)),
        ]
        return read_port.data
