"""Reads 3x3 neighbourhoods of tiles and cuts windows out of them."""

from __future__ import annotations

import numpy as np
from amaranth.hdl import Cat, Const, Module, Mux, Signal, Value
from amaranth.lib import wiring
from amaranth.lib.wiring import In, Out
from numpy.typing import NDArray

from espalier.arch.config import HardwareConfig
from espalier.arch.feature_layout import BANK_SIDE, BANKS
from espalier_hw.arbitration import delay, look_up
from espalier_hw.feature_memory import FeatureMemory
from espalier_hw.interfaces import WINDOW_REQUEST, tile_bits, window_bits
from espalier_hw.tile_address import ADDRESS_BITS, TileAddress, sum_tree
from espalier_hw.window_rows import START_BITS, WindowRows

# Bank selector of a tile outside the map.
_PAD = BANK_SIDE
# Stride and row offset by the bits of both in a request: four of the offset, signed, then one of the stride.
_OFFSETS = [(stride, offset) for stride in (1, 2) for offset in (*range(8), *range(-8, 0))]


def window_model(
    words: NDArray[np.uint8], centre: tuple[int, int, int], row_offset: int, stride: int, pad: int
) -> tuple[NDArray[np.uint8], NDArray[np.bool_]]:
    """Compute the reference of one window.

    `words`: the tensor, uint8[tiles_y, tiles_x, C, T*T]. `centre`: tile row, tile column, channel; the tile
    may lie outside the map. Returns the window, uint8[T+3, 3T-2], and which of its rows are defined.
    """
    tiles_y, tiles_x, _, lanes = words.shape
    size = round(lanes**0.5)
    tile_y, tile_x, channel = centre
    region = np.full((3, size, 3, size), pad, np.uint8)
    for dy in range(3):
        for dx in range(3):
            y, x = tile_y + dy - 1, tile_x + dx - 1
            if 0 <= y < tiles_y and 0 <= x < tiles_x:
                region[dy, :, dx, :] = words[y, x, channel].reshape(size, size)
    rows = row_offset + stride * np.arange(size + 3)
    defined = (rows >= -size) & (rows < 2 * size)
    window = region.reshape(3 * size, 3 * size)[np.clip(rows + size, 0, 3 * size - 1), 2:]
    return window, defined


class WindowReader(wiring.Component):
    """Reads the windows that `ReadArbiter` chooses, one a cycle, in order, each after the same time.

    window: clients (branches, then the pool unit) that `request` is for, zero if there is none. window_valid
    comes LATENCY cycles later, with `window_data`: byte row * window_columns + column; rows outside the
    region are undefined. `read_*` are the ports of `FeatureMemory`.

    The rows of the window are chosen first, see `WindowRows`; its columns, and padding, come last: that takes
    the fewest multiplexers.
    """

    _ADDRESS = TileAddress.LATENCY + 1
    _READ = _ADDRESS + FeatureMemory.LATENCY
    _ROWS = _READ + WindowRows.LATENCY
    LATENCY = _ROWS + 1

    def __init__(self, config: HardwareConfig) -> None:
        self.config = config
        self.size = config.tile_size
        clients = config.branches + 1
        super().__init__(
            {
                "request": In(WINDOW_REQUEST),
                "window": In(clients),
                "read_enable": Out(1),
                "read_address": Out(ADDRESS_BITS).array(BANKS),
                "read_data": In(tile_bits(config)).array(BANKS),
                "window_valid": Out(clients),
                "window_data": Out(window_bits(config)),
            }
        )

    def _addresses(self, m: Module) -> TileAddress:
        """Centre's word, then the nine banks' words."""
        m.submodules.tile_address = position = TileAddress(bool(self.config.feature_rings))
        m.d.comb += position.address.eq(self.request.centre)
        row_steps = _neighbour_steps(position.bank_row, position.row_step, position.row_back)
        column_steps = _neighbour_steps(position.bank_column, position.channels, position.channels_back)
        for row in range(BANK_SIDE):
            for column in range(BANK_SIDE):
                address = Signal(ADDRESS_BITS, name=f"address_{row}{column}", reset_less=True)
                total = sum_tree([position.word, row_steps[row], column_steps[column]], ADDRESS_BITS)
                if self.config.feature_rings:  # the neighbour may be on the other side of the ring's end
                    total = (total & ~position.fixed) | (position.word & position.fixed)
                m.d.sync += address.eq(total)
                m.d.comb += self.read_address[row * BANK_SIDE + column].eq(address)
        return position

    def _start(self, m: Module, bank_row: Value) -> Signal:
        """`WindowRows.start`, one cycle after `bank_row`."""
        offset = delay(m, self._offset(), TileAddress.LATENCY, name="offset")
        ring = BANK_SIDE * self.size
        table = [
            ((bank - 1) * self.size + first + self.size) % ring + (stride - 1 << START_BITS - 1)
            for bank in range(BANK_SIDE)
            for stride, first in _OFFSETS
        ]
        start = Signal(START_BITS, reset_less=True)
        m.d.sync += start.eq(look_up(Cat(offset, bank_row), table, START_BITS))
        return start

    def _offset(self) -> Value:
        """Index in _OFFSETS."""
        return Cat(self.request.row_offset, self.request.stride[1])

    def _row_pads(self, m: Module) -> tuple[Signal, int]:
        """Which rows of the window lie in tiles outside the map, and how many cycles late that is."""
        centre = self.request.centre
        outside = delay(m, _outside(m, "rows", centre.tile_y, self.request.tiles_y), 1, name="outside")
        offset = delay(m, self._offset(), 1, name="pads_offset")
        pads = Signal(self.config.word_rows, name="row_pads", reset_less=True)
        for row in range(self.config.word_rows):
            # Tile row 0..2 of the region in which the row lies; rows beyond it are never used.
            places = [(first + stride * row + self.size) // self.size for stride, first in _OFFSETS]
            tile_row = Signal(2, name=f"tile_row_{row}", reset_less=True)
            m.d.sync += tile_row.eq(look_up(offset, [min(max(p, 0), BANK_SIDE - 1) for p in places], 2))
            m.d.sync += pads[row].eq(Mux(tile_row[1], outside[2], Mux(tile_row[0], outside[1], outside[0])))
        return pads, 3

    def _columns(self, m: Module, rows: list[Value], bank_column: Value, moving: Value) -> Value:
        """Order the tile columns around the centre, and pad: the window."""
        row_pads, late = self._row_pads(m)
        columns = _outside(m, "columns", self.request.centre.tile_x, self.request.tiles_x)
        time = self._ROWS - 1  # when sources are decoded
        row_pads = delay(m, row_pads, time - late, name="row_pads")
        columns = delay(m, columns, time - 1, name="columns")
        turn = delay(m, bank_column, time - TileAddress.LATENCY, name="bank_column")
        pad = delay(m, self.request.pad, self._ROWS, name="pad")
        tiles = []
        for number, row in enumerate(rows):
            for column in range(BANK_SIDE):
                # The window has no room for the first two columns of the region.
                first = 16 if column == 0 else 0
                bank_tiles = [row.word_select(bank, self.size * 8)[first:] for bank in range(BANK_SIDE)]
                source = Signal(2, name=f"source_{number}_{column}", reset_less=True)
                m.d.sync += source.eq(Mux(row_pads[number] | columns[column], _PAD, turn))
                tile = Signal(len(bank_tiles[0]), name=f"tile_{number}_{column}", reset_less=True)
                with m.If(moving), m.Switch(source):
                    for bank in range(BANK_SIDE):
                        with m.Case(bank):
                            m.d.sync += tile.eq(bank_tiles[(bank + column - 1) % BANK_SIDE])
                    with m.Default():
                        m.d.sync += tile.eq(pad.replicate(len(tile) // 8))
                tiles.append(tile)
        return Cat(tiles)

    def elaborate(self, platform: object) -> Module:
        """Control bits travel along; the wide registers move only when something arrives."""
        m = Module()
        position = self._addresses(m)
        window = delay(m, self.window, self._ADDRESS, control=True, name="window_a")
        reading = window.any()
        moving = delay(m, reading, FeatureMemory.LATENCY, control=True, name="moving")
        m.submodules.rows = rows = WindowRows(self.size, BANK_SIDE * self.size * 8)
        start = self._start(m, position.bank_row)
        m.d.comb += [
            self.read_enable.eq(reading),
            rows.moving.eq(moving),
            rows.start.eq(delay(m, start, FeatureMemory.LATENCY - 1, name="start")),
        ]
        for bank_row in range(BANK_SIDE):
            tiles = self.read_data[bank_row * BANK_SIDE :][:BANK_SIDE]
            for row in range(self.size):
                pixels = Cat(tile.word_select(row, self.size * 8) for tile in tiles)
                m.d.comb += rows.ring[bank_row * self.size + row].eq(pixels)
        stepped = delay(m, moving, WindowRows.LATENCY, control=True, name="stepped")
        m.d.comb += [
            self.window_data.eq(self._columns(m, list(rows.rows), position.bank_column, stepped)),
            self.window_valid.eq(
                delay(m, window, self.LATENCY - self._ADDRESS, control=True, name="window_b")
            ),
        ]
        return m


def _outside(m: Module, name: str, tile: Value, count: Value) -> Signal:
    """Which of a tile and its two neighbours lie outside the map, one cycle late."""
    outside = Signal(BANK_SIDE, name=f"{name}_outside", reset_less=True)
    m.d.sync += [
        outside[index].eq((tile + (index - 1) < 0) | (tile + (index - 1) >= count))
        for index in range(BANK_SIDE)
    ]
    return outside


def _neighbour_steps(remainder: Value, step: Value, back: Value) -> list[Value]:
    """List what banks 0, 1, 2 of a side add to the centre's word, if the centre lies in bank `remainder`.

    The centre's neighbours lie in the same group of three, except next to bank 0 and bank 2.
    """
    return [Mux(remainder == 2, step, 0), Const(0), Mux(remainder == 0, back, 0)]
