"""Counters that walk what a branch works through: its tiles, and the window words of one set."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from amaranth.hdl import Cat, Module, Mux, Signal, Value
from amaranth.lib import memory, wiring
from amaranth.lib.wiring import In, Out

from espalier.arch.program import MAX_PATTERNS
from espalier_hw.carry import add_choice
from espalier_hw.interfaces import BRANCH_LAYER, LAYER, PATTERN, PATTERN_ADDRESS_BITS


def count_to(m: Module, total: Value, last: Signal, *, first: Value, moves: Value) -> Value:
    """Count `total` elements, at least one, known for a cycle; keeps `last`, and returns its next value.

    moves: go to the next element, which is the first of all if `first` is high too, in the next cycle.
    last: this is the last element. The counter is two ahead of the element: what it is compared with says of
    the next element whether it is the last, so that `last` is a register.
    """
    ahead = Signal(len(total), name=f"{last.name}_ahead", reset_less=True)
    next_last = Signal(name=f"{last.name}_next")
    m.d.comb += next_last.eq(Mux(first, 1, ahead) == total)
    with m.If(moves):
        m.d.sync += [ahead.eq(Mux(first, 2, ahead + 1)), last.eq(next_last)]
    return next_last


class TileWalk(wiring.Component):
    """Coordinates of the tile that a branch works on: runs of tiles in raster order, with jumps between.

    load: go to the first tile; only at the very beginning, or after a step from the last tile. step: go to
    the next, in the layer's order. Both act on the next cycle. `layer` and `branch` must have been valid for
    a cycle before `load`. last: this is the last tile.
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
        # The run before the first one ends with the step from the last tile.
        moves, run_end = Signal(), Signal(init=1)
        count_to(m, self.branch.tiles, self.last, first=self.load, moves=moves)
        next_run_end = count_to(m, self.branch.run, run_end, first=run_end, moves=moves)
        # What the next step adds to the column, and the first column from which it then goes on in the next
        # row, as many columns back: known with the tile, so that a step is a comparison and a sum.
        ahead, edge = Signal(8, reset_less=True), Signal(8, reset_less=True)
        wraps = Signal()
        m.d.comb += [moves.eq(self.load | self.step), wraps.eq((self.tile_x >= edge) & ~self.load)]
        with m.If(moves):
            jump = Mux(next_run_end, self.branch.jump_x, 1)
            m.d.sync += [ahead.eq(jump), edge.eq(self.layer.out_tiles_x - jump)]
        # The first tile is added like a jump, to the zeros that the last tile has left.
        with m.If(self.step & self.last):
            m.d.sync += [run_end.eq(1), self.tile_y.eq(0), self.tile_x.eq(0)]
        with m.Elif(moves):
            down = Mux(self.load, self.branch.tile_y0, Mux(run_end, self.branch.jump_y, 0))
            right = Mux(self.load, self.branch.tile_x0, Mux(wraps, ~edge, ahead))
            m.d.sync += [
                self.tile_y.eq(add_choice(self.tile_y, down, 8, wraps)),
                self.tile_x.eq(add_choice(self.tile_x, right, 8, wraps)),
            ]
        return m


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
        index = Signal(range(MAX_PATTERNS), reset_less=True)
        channel, last_channel = Signal(13, reset_less=True), Signal()
        m.d.comb += [
            write_port.en.eq(self.pattern_enable),
            write_port.addr.eq(self.pattern_address),
            write_port.data.eq(written),
            read_port.addr.eq(Cat(index, self.bank)),
            Cat(self.pattern[name] for name in self.fields).eq(read_port.data),
            self.channel.eq(channel),
            self.set_end.eq(self.channel_end & last_channel),
        ]
        moves, channel_moves = self.load | self.step, self.load | (self.step & self.channel_end)
        count_to(
            m, self.layer.pattern_count, self.channel_end, first=self.load | self.channel_end, moves=moves
        )
        count_to(m, self.branch.channels, last_channel, first=self.load | last_channel, moves=channel_moves)
        with m.If(channel_moves):
            m.d.sync += [index.eq(0), channel.eq(Mux(self.load | last_channel, 0, channel + 1))]
        with m.Elif(self.step):
            m.d.sync += index.eq(index + 1)
        return m
