"""The pool unit: maximum over a window, or global average, beside the branches."""

from __future__ import annotations

from typing import Any

from amaranth.hdl import Module, Signal
from amaranth.lib import wiring
from amaranth.lib.wiring import connect, flipped

from espalier.arch.config import HardwareConfig
from espalier_hw.interfaces import pool_signature, window_bits
from espalier_hw.layer_stage import LayerStage
from espalier_hw.lutram_fifo import LutramFifo
from espalier_hw.pool_average import PoolAverage
from espalier_hw.pool_columns import PoolColumns
from espalier_hw.pool_fetches import PoolFetches
from espalier_hw.pool_output import PoolOutput
from espalier_hw.pool_rows import PoolRows
from espalier_hw.pool_steps import PoolSteps
from espalier_hw.window_walker import WindowWalker


class PoolUnit(wiring.Component):
    """Works on one layer after the other; takes the next one when the last word of a layer is in the memory.

    Ports: see `interfaces.pool_signature`; `offer` only for POOL layers. `write` offers a word every other
    cycle at most.
    """

    def __init__(self, config: HardwareConfig) -> None:
        self.config = config
        super().__init__(pool_signature(config))

    def elaborate(self, platform: Any) -> Module:
        """Build the block."""
        m = Module()
        m.submodules.stage = stage = LayerStage()
        m.submodules.walker = walker = WindowWalker(self.config)
        m.submodules.output = output = PoolOutput(self.config)
        working, unwritten = Signal(), Signal()
        m.d.comb += [
            stage.offer.eq(self.offer),
            stage.layer.eq(self.layer),
            stage.branch.eq(self.branch),
            stage.bank.eq(self.bank),
            stage.busy.eq(working | walker.busy),
            stage.allow.eq(~unwritten),
            self.pending.eq(stage.pending),
            self.taken.eq(stage.taken),
            self.idle.eq(stage.idle),
            output.go.eq(stage.go),
            output.layer.eq(stage.current),
            output.branch.eq(stage.current_branch),
        ]
        # Before the scoreboard has seen the last word, it would take that for one of the next layer.
        with m.If(stage.go):
            m.d.sync += unwritten.eq(1)
        with m.Elif(self.progress[self.config.branches].complete):
            m.d.sync += unwritten.eq(0)
        self._walk(m, stage, walker)
        connect(m, walker.request, flipped(self.window_request))
        connect(m, output.write, flipped(self.write))
        with m.If(stage.go):
            m.d.sync += working.eq(1)
        with m.Elif(output.done):
            m.d.sync += working.eq(0)
        self._datapath(m, stage, walker, output)
        return m

    def _walk(self, m: Module, stage: LayerStage, walker: WindowWalker) -> None:
        """Give the walker the layer, but of its patterns only those that need a window."""
        m.submodules.fetches = fetches = PoolFetches()
        connect(m, flipped(self.pattern_write), fetches.pattern_write)
        connect(m, fetches.fetch_write, walker.pattern_write)
        m.d.comb += [
            fetches.bank.eq(stage.current_bank),
            walker.go.eq(stage.go),
            walker.layer.eq(stage.current),
            walker.layer.pattern_count.eq(fetches.pattern_count),
            walker.branch.eq(stage.current_branch),
            walker.bank.eq(stage.current_bank),
        ]
        for mine, walkers in zip(self.progress, walker.progress, strict=True):
            m.d.comb += walkers.eq(mine)

    def _datapath(self, m: Module, stage: LayerStage, walker: WindowWalker, output: PoolOutput) -> None:
        """From the windows that arrive to words."""
        m.submodules.windows = windows = LutramFifo(window_bits(self.config), self.config.window_fifo_depth)
        m.submodules.steps = steps = PoolSteps(self.config)
        m.submodules.rows = rows = PoolRows(self.config)
        m.submodules.columns = columns = PoolColumns(self.config)
        m.submodules.average = average = PoolAverage(self.config)
        layer = stage.current
        connect(m, flipped(self.pattern_write), steps.pattern_write)
        m.d.comb += [
            windows.write.eq(self.window_valid),
            windows.write_data.eq(self.window_data),
            windows.read.eq(rows.window_read),
            walker.taken.eq(rows.window_read),
            steps.go.eq(stage.go),
            steps.bank.eq(stage.current_bank),
            steps.pattern_count.eq(layer.pattern_count),
            steps.stride.eq(layer.stride),
            steps.reduce.eq(layer.reduce),
            rows.reduce.eq(layer.reduce),
            rows.step_valid.eq(steps.row_valid),
            rows.step.eq(steps.row),
            rows.step_end.eq(steps.row_end),
            steps.row_take.eq(rows.step_take),
            rows.window_available.eq(windows.available),
            rows.window.eq(windows.read_data),
            average.layer.eq(layer),
            average.pixels_valid.eq(rows.pixels_valid),
            average.pixels.eq(rows.pixels),
            average.pixels_end.eq(rows.pixels_end),
            rows.pixels_take.eq(average.take),
            columns.step_valid.eq(steps.column_valid),
            columns.step.eq(steps.column),
            columns.step_end.eq(steps.column_end),
            steps.column_take.eq(columns.step_take),
            columns.group_valid.eq(rows.group_valid),
            columns.group.eq(rows.group),
            rows.group_take.eq(columns.group_take),
            output.tile_valid.eq(columns.tile_valid),
            output.tile.eq(columns.tile),
            columns.tile_take.eq(output.tile_take),
            output.byte_valid.eq(average.byte_valid),
            output.byte.eq(average.byte),
            average.byte_take.eq(output.byte_take),
        ]
