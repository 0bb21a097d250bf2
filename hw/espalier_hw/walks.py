"""Counters that walk what a branch works through: its tiles, and the window words of one set."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from amaranth.hdl import Cat, Module, Mux, Signal
from amaranth.lib import memory, wiring
from amaranth.lib.wiring import In, Out

from espalier.arch.program import MAX_PATTERNS
from espalier_hw.interfaces import BRANCH_LAYER, LAYER, PATTERN, PATTERN_ADDRESS_BITS


class TileWalk(wiring.Component):
    """Coordinates of the tile that a branch works on: runs of tiles in raster order, with jumps between.

    load: go to the first tile. step: go to the next, in the layer's order. Both act on the next cycle.
    `layer` and `branch` must have been valid for a cycle before `load`. last: this is the last tile.
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
        run_end = self._count(m)
        plain, wrapped = Signal(9), Signal(range(-256, 512))
        m.d.comb += [
            plain.eq(self.tile_x + Mux(run_end, self.branch.jump_x, 1)),
            wrapped.eq(plain - self.layer.out_tiles_x),
        ]
        with m.If(self.load):
            m.d.sync += [self.tile_y.eq(self.branch.tile_y0), self.tile_x.eq(self.branch.tile_x0)]
        with m.Elif(self.step):
            m.d.sync += [
                self.tile_y.eq(self.tile_y + Mux(run_end, self.branch.jump_y, 0) + (wrapped >= 0)),
                self.tile_x.eq(Mux(wrapped >= 0, wrapped, plain)),
            ]
        return m

    def _count(self, m: Module) -> Signal:
        """Count the tiles of the layer and of the run; high while this is the last of its run."""
        left, run_left = Signal(13), Signal(8)
        run_end, single = Signal(), Signal()
        m.d.sync += single.eq(self.branch.run == 1)
        with m.If(self.load | (self.step & run_end)):
            m.d.sync += [run_left.eq(self.branch.run), run_end.eq(single)]
        with m.Elif(self.step):
            m.d.sync += [run_left.eq(run_left - 1), run_end.eq(run_left == 2)]
        with m.If(self.load):
            m.d.sync += [left.eq(self.branch.tiles), self.last.eq(self.branch.tiles == 1)]
        with m.Elif(self.step):
            m.d.sync += [left.eq(left - 1), self.last.eq(left == 2)]
        return run_end


class SetWalk(wiring.Component):
    """Channels and patterns of one set, patterns fastest; starts over after the last word.

    load: go to the first word of the first channel. step: next word. Both act on the next cycle.
    `layer`, `branch` and `bank` must have been valid for a cycle before `load`. `pattern` is the entry
    that belongs to the word. The patterns are kept in here, at bank * MAX_PATTERNS + index, those of
    their fields that the user wants.
    """

    def __init__(self, fields: Sequence[str]) -> None:
        """`fields`: names of the `PATTERN_FIELDS` in use; the others read as zero."""
        self.fields = fields
        super().__init__(
            {
                "layer": In(LAYER),
                "branch": In(BRANCH_LAYER),
                "bank": In(1),
                "pattern_enable": In(1),
                "pattern_address": In(PATTERN_ADDRESS_BITS),
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
        stored = Signal(PATTERN)
        m.d.comb += stored.as_value().eq(self.pattern_data)
        written = Cat(stored[name] for name in self.fields)
        m.submodules.patterns = patterns = memory.Memory(
            shape=len(written), depth=2 * MAX_PATTERNS, init=[], attrs={"ram_style": "distributed"}
        )
        write_port, read_port = patterns.write_port(), patterns.read_port(domain="comb")
        index = Signal(range(MAX_PATTERNS))
        last_index = Signal(range(MAX_PATTERNS))
        last_channel = Signal(13)
        m.d.comb += [
            write_port.en.eq(self.pattern_enable),
            write_port.addr.eq(self.pattern_address),
            write_port.data.eq(written),
            read_port.addr.eq(Cat(index, self.bank)),
            Cat(self.pattern[name] for name in self.fields).eq(read_port.data),
            self.channel_end.eq(index == last_index),
            self.set_end.eq(self.channel_end & (self.channel == last_channel)),
        ]
        m.d.sync += [
            last_index.eq(self.layer.pattern_count - 1),
            last_channel.eq(self.branch.channels - 1),
        ]
        with m.If(self.load | (self.step & self.set_end)):
            m.d.sync += [index.eq(0), self.channel.eq(0)]
        with m.Elif(self.step):
            m.d.sync += index.eq(index + 1)
            with m.If(self.channel_end):
                m.d.sync += [index.eq(0), self.channel.eq(self.channel + 1)]
        return m
