"""Keeps how far every writer has come, and lets the output stages go on to the next layer together."""

from __future__ import annotations

from typing import Any

from amaranth.hdl import Cat, Module, Signal
from amaranth.lib import wiring
from amaranth.lib.wiring import In, Out

from espalier_hw.interfaces import LAYER, PROGRESS, WRITTEN

# Cycles that all conditions for a change of layer must hold together. A window that its walker has asked for
# is read within fewer cycles than pass from there to the first write of the next layer.
SETTLE_CYCLES = 8


class Scoreboard(wiring.Component):
    """See docs/architecture.md, section 8.

    layer: the offered one. rests: per branch, it has no tiles in it. windows_past, outputs_wait: of all
    branches; outputs_take: pulse to all of them. pool_taken, pool_idle: of the pool unit.
    written: one bit a writer, it has a word in the memory now; written_word: which one, of a branch, and
    of the pool unit or LOAD.
    load_start: pulse, a LOAD begins; `layer` is its descriptor.
    progress: per branch, of the pool unit, of LOAD. idle: level, all words of all layers that output stages
    and pool unit have taken are in the memory.
    end: pulse, all words of all strips of layer `end_layer` are in the memory; not while `counters_busy` is
    high.
    """

    def __init__(self, branches: int) -> None:
        self.branches = branches
        super().__init__(
            {
                "layer": In(LAYER),
                "rests": In(branches),
                "windows_past": In(branches),
                "outputs_wait": In(branches),
                "outputs_take": Out(1),
                "pool_taken": In(1),
                "pool_idle": In(1),
                "load_start": In(1),
                "written": In(branches + 2),
                "written_word": In(WRITTEN).array(2),
                "progress": Out(PROGRESS).array(branches + 2),
                "idle": Out(1),
                "end": Out(1),
                "end_layer": Out(8),
                "counters_busy": In(1),
            }
        )

    def elaborate(self, platform: Any) -> Module:
        """One record a writer, and the conditions to go on."""
        m = Module()
        for writer, progress in enumerate(self.progress):
            self._record(m, writer, progress)
        branches_end = self._end(
            m, "branches", self.outputs_take, Cat(p.complete for p in self.progress[:-2]).all()
        )
        pool_end = self._end(m, "pool", self.pool_taken, self.progress[self.branches].complete)
        m.d.sync += self.idle.eq(~(branches_end.any() | pool_end.any()))
        self._report(m, branches_end[1], pool_end[1])
        settled = Signal(range(SETTLE_CYCLES + 1))
        ready = Signal()
        m.d.sync += ready.eq(
            self.windows_past.all()
            & self.outputs_wait.all()
            & ~branches_end.any()
            & (~self.layer.wait_pool | (self.pool_idle & ~pool_end.any()))
            & ~self.outputs_take
        )
        m.d.sync += [
            settled.eq(0),
            self.outputs_take.eq((settled == SETTLE_CYCLES) & ready),
        ]
        with m.If(ready & ~self.outputs_take & (settled != SETTLE_CYCLES)):
            m.d.sync += settled.eq(settled + 1)
        return m

    def _record(self, m: Module, writer: int, progress: Any) -> None:
        """Keep what is known of one writer: nothing at first, then its latest word."""
        word = self.written_word[int(writer >= self.branches)]
        begins = {self.branches: self.pool_taken, self.branches + 1: self.load_start}
        with m.If(self.written[writer]):
            m.d.sync += [
                progress.written.eq(1),
                progress.complete.eq(word.marks.last),
                progress.ordered.eq(word.marks.ordered),
                progress.final_tile.eq(word.marks.final_tile),
                progress.tile_y.eq(word.tile_y),
                progress.tile_x.eq(word.tile_x),
                progress.channel.eq(word.channel),
            ]
        with m.If(begins.get(writer, self.outputs_take)):
            m.d.sync += [
                progress.layer.eq(self.layer.layer),
                progress.written.eq(0),
                progress.complete.eq(0 if writer in begins else self.rests[writer]),
            ]

    def _end(self, m: Module, name: str, taken: Any, complete: Any) -> Signal:
        """Bit 0: a layer is being written, bit 1: it has ended, and that must still be reported."""
        state = Signal(2, name=f"{name}_state")
        started = Signal(name=f"{name}_started")
        counts = Signal(name=f"{name}_counts")  # it is not a strip with others behind
        m.d.sync += started.eq(taken)  # `complete` belongs to the new layer from here on
        with m.If(taken):
            m.d.sync += [state[0].eq(1), counts.eq(~self.layer.more)]
        with m.Elif(state[0] & complete & ~started):
            m.d.sync += [state[0].eq(0), state[1].eq(counts)]
        return state

    def _report(self, m: Module, branches_ended: Any, pool_ended: Any) -> None:
        """One end at a time, the branches' first."""
        m.d.sync += self.end.eq(0)
        with m.If(~self.counters_busy & ~self.end):
            with m.If(branches_ended):
                m.d.sync += [
                    self.end.eq(1),
                    self.end_layer.eq(self.progress[0].layer),
                    branches_ended.eq(0),
                ]
            with m.Elif(pool_ended):
                m.d.sync += [
                    self.end.eq(1),
                    self.end_layer.eq(self.progress[self.branches].layer),
                    pool_ended.eq(0),
                ]
