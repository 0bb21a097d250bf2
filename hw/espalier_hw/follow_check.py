"""Tells whether a window may be asked for while the layer that writes it is still at work."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from amaranth.hdl import Cat, Const, Module, Signal, Value
from amaranth.lib import data, wiring
from amaranth.lib.wiring import In, Out

from espalier.arch.config import HardwareConfig
from espalier.arch.program import Follows
from espalier_hw.interfaces import LAYER, PROGRESS, writers


class FollowCheck(wiring.Component):
    """Compares a waiting window with the progress of all writers.

    layer: only `follows` and `follows_layer` count; valid for a cycle before the first window.
    progress: of all writers. need_y, need_x: last tile of the window's
    neighbourhood that lies in the map. channel: of the window. hold: the same window will wait in the
    next cycle too. passed: registered; at once if no writer is at work on `follows_layer`, otherwise one
    cycle after the writers have passed the window.
    """

    def __init__(self, config: HardwareConfig) -> None:
        self.writers = writers(config)
        super().__init__(
            {
                "layer": In(LAYER),
                "progress": In(PROGRESS).array(self.writers),
                "need_y": In(8),
                "need_x": In(8),
                "channel": In(13),
                "hold": In(1),
                "passed": Out(1),
            }
        )

    def elaborate(self, platform: Any) -> Module:
        """Build the block."""
        m = Module()
        clear = Signal(self.writers)
        for index in range(self.writers):
            writer = self.progress[index]
            kind = {self.writers - 2: Follows.POOL, self.writers - 1: Follows.LOAD}.get(
                index, Follows.BRANCHES
            )
            ended = (
                (self.layer.follows != kind) | (writer.layer != self.layer.follows_layer) | writer.complete
            )
            m.d.comb += clear[index].eq(ended | (self.hold & self._through(writer)))
        m.d.sync += self.passed.eq(clear.all())
        return m

    def _through(self, writer: data.View) -> Value:
        """Whether a writer that is at work has written all words of the window."""
        # One comparison of (tile, channel), which a writer without order never passes on the same tile.
        written = Cat(writer.channel, writer.ordered, writer.tile_x, writer.tile_y)
        needed = Cat(self.channel, Const(1, 1), self.need_x, self.need_y)
        ending = writer.final_tile & writer.ordered & (writer.channel >= self.channel)
        return writer.written & ((written >= needed) | ending)

    @staticmethod
    def model(
        follows: int,
        follows_layer: int,
        progress: Sequence[Mapping[str, int]],
        need: tuple[int, int],
        channel: int,
    ) -> bool:
        """Whether all writers have passed; `progress` as mappings of the fields of `PROGRESS`."""
        concerned = {
            Follows.BRANCHES: progress[:-2],
            Follows.POOL: progress[-2:-1],
            Follows.LOAD: progress[-1:],
        }
        for writer in concerned.get(Follows(follows), ()):
            tile = (writer["tile_y"], writer["tile_x"])
            same = tile == need or writer["final_tile"]
            through = tile > need or (writer["ordered"] and writer["channel"] >= channel and same)
            at_work = writer["layer"] == follows_layer and not writer["complete"]
            if at_work and not (writer["written"] and through):
                return False
        return True
