"""Second half of max-pooling: the maximum of columns, of what the rows have left."""

from __future__ import annotations

from typing import Any

from amaranth.hdl import Module, Signal
from amaranth.lib import wiring
from amaranth.lib.wiring import In, Out

from espalier.arch.config import HardwareConfig
from espalier_hw.extractor import Extractor
from espalier_hw.interfaces import tile_bits
from espalier_hw.pool_rows import running_maximum, strip_bits
from espalier_hw.pool_steps import COLUMN_STEP


class PoolColumns(wiring.Component):
    """Cuts T columns out of a group's maximum, one step a cycle, and keeps the maximum of a channel's steps.

    step_valid, step, step_end, step_take: column steps. group_valid, group, group_take: see `PoolRows`.
    tile_valid, tile, tile_take: the maximum of a channel, byte row * T + column; the first columns of the
    next channel are cut meanwhile.
    """

    def __init__(self, config: HardwareConfig) -> None:
        self.config = config
        super().__init__(
            {
                "step_valid": In(1),
                "step": In(COLUMN_STEP),
                "step_end": In(1),
                "step_take": Out(1),
                "group_valid": In(1),
                "group": In(strip_bits(config)),
                "group_take": Out(1),
                "tile_valid": Out(1),
                "tile": Out(tile_bits(config)),
                "tile_take": In(1),
            }
        )

    def elaborate(self, platform: Any) -> Module:
        """Build the block."""
        m = Module()
        m.submodules.extractor = extractor = Extractor(self.config, self.config.tile_size)
        valid, leaves, channel_end = Signal(), Signal(), Signal()
        m.d.comb += [
            self.step_take.eq(self.step_valid & self.group_valid & (~valid | leaves)),
            self.group_take.eq(self.step_take & self.step.group_end),
            leaves.eq(valid & (~self.tile_valid | self.tile_take)),
            extractor.window.eq(self.group),
            extractor.select.eq(self.step.select),
            extractor.enable.eq(self.step_take),
        ]
        with m.If(self.step_take):
            m.d.sync += channel_end.eq(self.step_end)
        with m.If(self.step_take | leaves):
            m.d.sync += valid.eq(self.step_take)
        with m.If(leaves | self.tile_take):
            m.d.sync += self.tile_valid.eq(leaves & channel_end)
        m.d.comb += self.tile.eq(running_maximum(m, extractor.word, leaves, channel_end))
        return m
