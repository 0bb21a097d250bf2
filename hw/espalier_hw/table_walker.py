"""Walks the requantisation table ahead of the output stage and asks for residual tiles early."""

from __future__ import annotations

from typing import Any

from amaranth.hdl import Cat, Module, Mux, Signal, signed
from amaranth.lib import data, memory, stream, wiring
from amaranth.lib.wiring import In, Out

from espalier.arch.config import HardwareConfig
from espalier.arch.program import ACCUMULATOR_BITS, MULTIPLIER_BITS, TABLE_WORD_BITS
from espalier_hw.interfaces import BRANCH_LAYER, LAYER, TABLE_ENTRY, TILE_ADDRESS, memory_write
from espalier_hw.lutram_fifo import LutramFifo
from espalier_hw.walks import TileWalk, count_to

# Entries, and residual tiles, that may be fetched ahead: bridges the latency of the feature memory.
AHEAD = 16

# A table entry together with the tile it is used for. `lowest_tile`, `rightmost_tile`: the tile lies in the
# map's last row or column of tiles. `final_tile`: it is the branch's last. `end_of_layer`: its last entry.
ENTRY = data.StructLayout(
    {
        "multiplier": MULTIPLIER_BITS,
        "shift": 2,
        "bias": signed(ACCUMULATOR_BITS),
        "channel": 12,
        "pe": 5,
        "first": 1,
        "last": 1,
        "high_digit": 1,
        "end_of_pass": 1,
        "tile_y": 8,
        "tile_x": 8,
        "lowest_tile": 1,
        "rightmost_tile": 1,
        "final_tile": 1,
        "end_of_layer": 1,
    }
)

_FROM_TABLE = ("multiplier", "shift", "bias", "pe", "first", "last", "high_digit", "end_of_pass")


class TableWalker(wiring.Component):
    """The entries of a layer, tile by tile, in a buffer of `AHEAD` entries or a few more.

    go: pulse, `layer` valid since the cycle before. entry, available, take: oldest entry that is not
    yet used. residual_request: the residual tile of every entry with `last` in layers that have one, in
    order of the entries; residual_done: pulse, one of the answers has been used up.
    """

    def __init__(self, config: HardwareConfig) -> None:
        self.config = config
        super().__init__(
            {
                "go": In(1),
                "layer": In(LAYER),
                "branch": In(BRANCH_LAYER),
                "table_write": In(memory_write(14, TABLE_WORD_BITS)),
                "residual_request": Out(stream.Signature(TILE_ADDRESS)),
                "residual_done": In(1),
                "available": Out(1),
                "entry": Out(ENTRY),
                "take": In(1),
            }
        )

    def elaborate(self, platform: Any) -> Module:
        """Build the block."""
        m = Module()
        # `read` follows the address into the memory, `next` holds an entry on its way to the buffer. Neither
        # ever waits: entries are read only while there is room for all that are on their way.
        read = Signal(
            data.StructLayout({"tile_y": 8, "tile_x": 8, "final_tile": 1, "end_of_layer": 1}), reset_less=True
        )
        next_entry = Signal(ENTRY, reset_less=True)
        room, read_valid, next_valid = Signal(), Signal(), Signal()
        word = self._read_table(m, read, room, read_valid)
        last_y, last_x = Signal(8), Signal(8)
        m.d.sync += [last_y.eq(self.layer.out_tiles_y - 1), last_x.eq(self.layer.out_tiles_x - 1)]
        m.d.sync += next_valid.eq(read_valid)
        m.d.sync += [next_entry[name].eq(word[name]) for name in _FROM_TABLE]
        m.d.sync += [next_entry[name].eq(read[name]) for name in read.shape().members]
        m.d.sync += [
            next_entry.channel.eq(word.out_channel),
            next_entry.lowest_tile.eq(read.tile_y == last_y),
            next_entry.rightmost_tile.eq(read.tile_x == last_x),
        ]
        self._buffer(m, next_entry, next_valid, room)
        self._ask(m, next_entry, next_valid)
        return m

    def _read_table(self, m: Module, read: data.View, room: Signal, read_valid: Signal) -> data.View:
        """Count through the entries of all tiles; returns the table word that belongs to `read`."""
        depth = self.config.table_depth_words
        style = "ultra" if self.config.table_in_ultra else "block"
        m.submodules.table = table = memory.Memory(
            shape=TABLE_WORD_BITS, depth=depth, init=[], attrs={"ram_style": style}
        )
        write_port, read_port = table.write_port(), table.read_port()
        m.submodules.tiles = tiles = TileWalk()
        active, step = Signal(), Signal()
        address, tile_end = Signal(14, reset_less=True), Signal()
        moves, first = self.go | step, self.go | tile_end
        count_to(m, self.branch.table_entries, tile_end, first=first, moves=moves)
        m.d.comb += [
            write_port.en.eq(self.table_write.enable),
            write_port.addr.eq(self.table_write.address),
            write_port.data.eq(self.table_write.data),
            read_port.en.eq(step),
            read_port.addr.eq(address),
            tiles.layer.eq(self.layer),
            tiles.branch.eq(self.branch),
            tiles.load.eq(self.go),
            step.eq(active & room),
            tiles.step.eq(step & tile_end),
        ]
        with m.If(moves):
            m.d.sync += address.eq(Mux(first, self.branch.table_base, address + 1))
        with m.If(self.go):
            m.d.sync += active.eq(1)
        with m.Elif(step & tile_end & tiles.last):
            m.d.sync += active.eq(0)
        m.d.sync += read_valid.eq(step)
        with m.If(step):
            m.d.sync += [
                read.tile_y.eq(tiles.tile_y),
                read.tile_x.eq(tiles.tile_x),
                read.final_tile.eq(tiles.last),
                read.end_of_layer.eq(tile_end & tiles.last),
            ]
        return data.View(TABLE_ENTRY, read_port.data)

    def _buffer(self, m: Module, entry: data.View, valid: Signal, room: Signal) -> None:
        """Keep entries in order; the oldest has registers of its own, as much depends on it."""
        m.submodules.entries = entries = LutramFifo(ENTRY.size, 2 * AHEAD)
        m.d.comb += [
            room.eq(entries.level < AHEAD),
            entries.write.eq(valid),
            entries.write_data.eq(entry),
            entries.read.eq(entries.available & ~self.available),
        ]
        with m.If(~self.available):
            m.d.sync += [self.available.eq(entries.available), self.entry.as_value().eq(entries.read_data)]
        with m.Elif(self.take):
            m.d.sync += self.available.eq(0)

    def _ask(self, m: Module, entry: data.View, valid: Signal) -> None:
        """Queue the residual tiles that entries need; ask for one when there is room for it.

        No entry starts before its tile is there, so that the queue holds no more of them than the buffer and
        the stages around it.
        """
        place = Signal(data.StructLayout({"tile_y": 8, "tile_x": 8, "channel": 12}))
        m.submodules.wanted = wanted = LutramFifo(place.shape().size, 2 * AHEAD)
        layer, request = self.layer, self.residual_request
        credits = Signal(range(AHEAD + 1), init=AHEAD)
        m.d.comb += [
            wanted.write.eq(valid & layer.residual & entry.last),
            wanted.write_data.eq(Cat(entry.tile_y, entry.tile_x, entry.channel)),
            wanted.read.eq(wanted.available & (credits != 0) & (~request.valid | request.ready)),
            place.as_value().eq(wanted.read_data),
            request.payload.base.eq(layer.residual_base),
            request.payload.pitch.eq(layer.residual_pitch),
            request.payload.ring.eq(layer.residual_ring),
            request.payload.channels.eq(layer.out_channels),
        ]
        m.d.sync += credits.eq(credits - wanted.read + self.residual_done)
        with m.If(~request.valid | request.ready):
            m.d.sync += request.valid.eq(wanted.read)
        with m.If(wanted.read):
            m.d.sync += [request.payload[name].eq(place[name]) for name in place.shape().members]
