"""Writes the tile words of the pool unit."""

from __future__ import annotations

from typing import Any

from amaranth.hdl import Cat, Const, Module, Mux, Signal
from amaranth.lib import stream, wiring
from amaranth.lib.wiring import In, Out

from espalier.arch.config import HardwareConfig
from espalier_hw.interfaces import BRANCH_LAYER, LAYER, tile_bits, tile_write_layout
from espalier_hw.walks import TileWalk, count_to


class PoolOutput(wiring.Component):
    """Walks tiles and channels with the words that leave, and replaces their lanes outside the map.

    go: pulse, `layer` and `branch` valid since the cycle before. tile_valid, tile, tile_take: words of
    maxima. byte_valid, byte, byte_take: lane 0 of words of layers with `reduce`. A word is taken every
    other cycle at most, so that no path leads from `write.ready` into the unit.
    done: pulse, the last word of the layer has been accepted.
    """

    def __init__(self, config: HardwareConfig) -> None:
        self.config = config
        super().__init__(
            {
                "layer": In(LAYER),
                "branch": In(BRANCH_LAYER),
                "go": In(1),
                "tile_valid": In(1),
                "tile": In(tile_bits(config)),
                "tile_take": Out(1),
                "byte_valid": In(1),
                "byte": In(8),
                "byte_take": Out(1),
                "write": Out(stream.Signature(tile_write_layout(config))),
                "done": Out(1),
            }
        )

    def elaborate(self, platform: Any) -> Module:
        """Build the block."""
        m = Module()
        m.submodules.tiles = tiles = TileWalk()
        layer, write = self.layer, self.write
        channel, last_channel = Signal(13, reset_less=True), Signal()
        load = Signal()
        payload = Signal(tile_write_layout(self.config), reset_less=True)
        inside = self._inside(m, tiles.tile_y, tiles.tile_x)
        m.d.comb += [
            tiles.layer.eq(layer),
            tiles.branch.eq(self.branch),
            tiles.load.eq(self.go),
            tiles.step.eq(load & last_channel),
            load.eq(~write.valid & Mux(layer.reduce, self.byte_valid, self.tile_valid)),
            self.tile_take.eq(~write.valid & self.tile_valid),
            self.byte_take.eq(~write.valid),
            self.done.eq(write.valid & write.ready & write.payload.marks.last),
        ]
        first, moves = self.go | last_channel, self.go | load
        count_to(m, self.branch.channels, last_channel, first=first, moves=moves)
        with m.If(moves):
            m.d.sync += channel.eq(Mux(first, 0, channel + 1))
        with m.If(load):
            m.d.sync += [
                write.valid.eq(1),
                payload.address.tile_y.eq(tiles.tile_y),
                payload.address.tile_x.eq(tiles.tile_x),
                payload.address.channel.eq(channel),
                payload.marks.final_tile.eq(tiles.last),
                payload.marks.last.eq(tiles.last & last_channel),
                payload.data.eq(self._word(inside)),
            ]
        with m.Elif(write.ready):
            m.d.sync += write.valid.eq(0)
        m.d.comb += [
            write.payload.eq(payload),
            write.payload.address.base.eq(layer.out_base),
            write.payload.address.pitch.eq(layer.out_pitch),
            write.payload.address.ring.eq(layer.out_ring),
            write.payload.address.channels.eq(layer.out_channels),
            write.payload.marks.layer.eq(layer.layer),
            write.payload.marks.ordered.eq(layer.ordered),
        ]
        return m

    def _word(self, inside: Signal) -> Cat:
        """Bytes of a word: the pad value where a lane is not inside."""
        lanes = [self.tile.word_select(lane, 8) for lane in range(self.config.lanes_per_pe)]
        lanes[0] = Mux(self.layer.reduce, self.byte, lanes[0])
        return Cat(Mux(inside[lane], value, self.layer.out_pad) for lane, value in enumerate(lanes))

    def _inside(self, m: Module, tile_y: Signal, tile_x: Signal) -> Signal:
        """Lanes inside the map (`reduce`: lane 0 only), one cycle after the tile is known."""
        layer, size = self.layer, self.config.tile_size
        last_y, last_x = Signal(8), Signal(8)
        rows, columns, row_inside, column_inside = (Signal(size) for _ in range(4))
        inside = Signal(self.config.lanes_per_pe, reset_less=True)
        m.d.sync += [last_y.eq(layer.out_tiles_y - 1), last_x.eq(layer.out_tiles_x - 1)]
        for place in range(size):
            only = layer.reduce if place else Const(0, 1)
            m.d.sync += [
                rows[place].eq((place < layer.out_rows_last) & ~only),
                columns[place].eq((place < layer.out_columns_last) & ~only),
            ]
        m.d.comb += [
            row_inside.eq(rows | (tile_y != last_y).replicate(size)),
            column_inside.eq(columns | (tile_x != last_x).replicate(size)),
        ]
        m.d.sync += inside.eq(Cat(row_inside[row].replicate(size) & column_inside for row in range(size)))
        return inside
