"""Counters that walk what a branch works through: its tiles, and the window words of one set."""

from __future__ import annotations

from typing import Any

from amaranth.hdl import Module, Signal
from amaranth.lib import memory, wiring
from amaranth.lib.wiring import In, Out

from espalier.arch.program import MAX_PATTERNS
from espalier_hw.interfaces import BRANCH_LAYER, LAYER, PATTERN


class TileWalk(wiring.Component):
    """Coordinates of the tile that a branch works on.

    load: go to the first tile. step: go to the next, in the layer's order. Both act on the next cycle.
    `layer` must have been valid for a cycle before `load`.
    """

    def __init__(self) -> None:
        super().__init__(
            {
                "layer": In(LAYER),
                "branch": In(BRANCH_LAYER),
                "load": In(1),
                "step": In(1),
                "tile_y": Out(8),
                "tile_x": Out(8),
                "last": Out(1),
            }
        )

    def elaborate(self, platform: Any) -> Module:
        """Build the block."""
        m = Module()
        # step_x - out_tiles_x is known for the whole layer: both candidates are then one addition.
        wrap_step = Signal(range(-256, 256))
        plain, wrapped = Signal(9), Signal(range(-256, 512))
        left = Signal(13)
        m.d.sync += wrap_step.eq(self.layer.step_x - self.layer.out_tiles_x)
        m.d.comb += [
            plain.eq(self.tile_x + self.layer.step_x),
            wrapped.eq(self.tile_x + wrap_step),
        ]
        with m.If(self.load):
            m.d.sync += [
                self.tile_y.eq(self.branch.tile_y0),
                self.tile_x.eq(self.branch.tile_x0),
                left.eq(self.branch.tiles),
                self.last.eq(self.branch.tiles == 1),
            ]
        with m.Elif(self.step):
            m.d.sync += [
                self.tile_y.eq(self.tile_y + self.layer.step_y + (wrapped >= 0)),
                self.tile_x.eq(plain),
                left.eq(left - 1),
                self.last.eq(left == 2),
            ]
            with m.If(wrapped >= 0):
                m.d.sync += self.tile_x.eq(wrapped)
        return m


class SetWalk(wiring.Component):
    """Channels and patterns of one set, patterns fastest; starts over after the last word.

    load: go to the first word of the first channel. step: next word. Both act on the next cycle.
    `layer` must have been valid for a cycle before `load`. `pattern` is the entry that belongs to the
    word; the patterns are kept in here.
    """

    def __init__(self) -> None:
        super().__init__(
            {
                "layer": In(LAYER),
                "branch": In(BRANCH_LAYER),
                "pattern_enable": In(1),
                "pattern_address": In(6),
                "pattern_data": In(PATTERN.size),
                "load": In(1),
                "step": In(1),
                "channel": Out(13),
                "pattern": Out(PATTERN),
                "channel_end": Out(1),
                "set_end": Out(1),
            }
        )

    def elaborate(self, platform: Any) -> Module:
        """Build the block."""
        m = Module()
        m.submodules.patterns = patterns = memory.Memory(
            shape=PATTERN.size, depth=MAX_PATTERNS, init=[], attrs={"ram_style": "distributed"}
        )
        write_port, read_port = patterns.write_port(), patterns.read_port(domain="comb")
        index = Signal(range(MAX_PATTERNS))
        last_index = Signal(range(MAX_PATTERNS))
        last_channel = Signal(13)
        m.d.comb += [
            write_port.en.eq(self.pattern_enable),
            write_port.addr.eq(self.pattern_address),
            write_port.data.eq(self.pattern_data),
            read_port.addr.eq(index),
            self.pattern.as_value().eq(read_port.data),
            self.channel_end.eq(index == last_index),
            self.set_end.eq(self.channel_end & (self.channel == last_channel)),
        ]
        m.d.sync += [
            last_index.eq(self.layer.pattern_count - 1),
            last_channel.eq(self.branch.channel0 + self.branch.channels - 1),
        ]
        with m.If(self.load):
            m.d.sync += [index.eq(0), self.channel.eq(self.branch.channel0)]
        with m.Elif(self.step):
            m.d.sync += index.eq(index + 1)
            with m.If(self.channel_end):
                m.d.sync += [index.eq(0), self.channel.eq(self.channel + 1)]
            with m.If(self.set_end):
                m.d.sync += self.channel.eq(self.branch.channel0)
        return m
