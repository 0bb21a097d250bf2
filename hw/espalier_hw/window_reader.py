"""Reads 3x3 neighbourhoods of tiles and cuts windows out of them."""

from __future__ import annotations

import numpy as np
from amaranth.hdl import Cat, Const, Module, Mux, Signal, Value
from amaranth.lib import wiring
from amaranth.lib.wiring import In, Out
from numpy.typing import NDArray

from espalier.arch.config import HardwareConfig
from espalier.arch.feature_layout import BANK_SIDE, BANKS
from espalier_hw.arbitration import delay
from espalier_hw.feature_memory import FeatureBank
from espalier_hw.interfaces import WINDOW_REQUEST, tile_bits, window_bits
from espalier_hw.tile_address import ADDRESS_BITS, TileAddress

# Bank selector of a tile outside the map.
_PAD = BANK_SIDE


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
    """Serves the reads that `ReadArbiter` chooses, one a cycle, in order, each after the same time.

    window_valid (one bit a branch) comes LATENCY cycles after `window`, with `window_data`: byte
    row * window_columns + column; rows outside the region are undefined. residual_valid and store_valid
    come TILE_LATENCY cycles after `residual` and `store`, with the centre tile in `tile_data`.
    `read_*` are the ports of `FeatureMemory`.
    """

    _ADDRESS = TileAddress.LATENCY + 1
    _READ = _ADDRESS + FeatureBank.LATENCY
    TILE_LATENCY = _READ + 2
    LATENCY = TILE_LATENCY + 2

    def __init__(self, config: HardwareConfig) -> None:
        self.config = config
        self.size = config.tile_size
        tile = tile_bits(config)
        super().__init__(
            {
                "request": In(WINDOW_REQUEST),
                "window": In(config.branches),
                "residual": In(config.branches),
                "store": In(1),
                "read_enable": Out(1),
                "read_address": Out(ADDRESS_BITS).array(BANKS),
                "read_data": In(tile).array(BANKS),
                "window_valid": Out(config.branches),
                "window_data": Out(window_bits(config)),
                "residual_valid": Out(config.branches),
                "store_valid": Out(1),
                "tile_data": Out(tile),
            }
        )

    def _addresses(self, m: Module) -> TileAddress:
        """Centre's word, then the nine banks' words."""
        m.submodules.tile_address = position = TileAddress()
        m.d.comb += position.address.eq(self.request.centre)
        row_steps = _neighbour_steps(position.bank_row, position.row_step)
        column_steps = _neighbour_steps(position.bank_column, position.channels)
        for row in range(BANK_SIDE):
            for column in range(BANK_SIDE):
                address = Signal(ADDRESS_BITS, name=f"address_{row}{column}", reset_less=True)
                m.d.sync += address.eq(position.word + row_steps[row] + column_steps[column])
                m.d.comb += self.read_address[row * BANK_SIDE + column].eq(address)
        return position

    def _outside(self, m: Module) -> tuple[list[Value], list[Value]]:
        """Which of the three tile rows and columns lie outside the map, when the rows are rotated."""
        flags: list[list[Value]] = []
        for name, tile, count in (
            ("row", self.request.centre.tile_y, self.request.tiles_y),
            ("column", self.request.centre.tile_x, self.request.tiles_x),
        ):
            outside = Signal(BANK_SIDE, name=f"{name}_outside", reset_less=True)
            m.d.sync += [
                outside[index].eq((tile + (index - 1) < 0) | (tile + (index - 1) >= count))
                for index in range(BANK_SIDE)
            ]
            flags.append(list(delay(m, outside, self._READ - 1, name=f"{name}_outside")))
        return flags[0], flags[1]

    def _region(self, m: Module, position: TileAddress, rotating: Value, padding: Value) -> list[Signal]:
        """Order the nine tiles around the centre: rows in one cycle, columns in the next."""
        bank_row = delay(m, position.bank_row, self._READ - TileAddress.LATENCY, name="bank_row")
        bank_column = delay(m, position.bank_column, self._READ - TileAddress.LATENCY, name="bank_column")
        rows_outside, columns_outside = self._outside(m)
        pad = delay(m, self.request.pad, self._READ + 1, name="pad")
        bits = tile_bits(self.config)
        rotated = [Signal(bits, name=f"rotated_{index}", reset_less=True) for index in range(BANKS)]
        region = [Signal(bits, name=f"region_{index}", reset_less=True) for index in range(BANKS)]
        sources = [Signal(2, name=f"source_{index}", reset_less=True) for index in range(BANKS)]
        with m.If(rotating), m.Switch(bank_row):
            for turn in range(BANK_SIDE):
                with m.Case(turn) if turn < BANK_SIDE - 1 else m.Default():
                    m.d.sync += [
                        rotated[row * BANK_SIDE + column].eq(
                            self.read_data[(row + turn - 1) % BANK_SIDE * BANK_SIDE + column]
                        )
                        for row in range(BANK_SIDE)
                        for column in range(BANK_SIDE)
                    ]
        m.d.sync += [
            source.eq(
                Mux(rows_outside[index // BANK_SIDE] | columns_outside[index % BANK_SIDE], _PAD, bank_column)
            )
            for index, source in enumerate(sources)
        ]
        with m.If(padding):
            for index, (tile, source) in enumerate(zip(region, sources, strict=True)):
                row, column = divmod(index, BANK_SIDE)
                with m.Switch(source):
                    for turn in range(BANK_SIDE):
                        with m.Case(turn):
                            m.d.sync += tile.eq(rotated[row * BANK_SIDE + (column + turn - 1) % BANK_SIDE])
                    with m.Default():
                        m.d.sync += tile.eq(pad.replicate(self.config.lanes_per_pe))
        return region

    def _region_rows(self, region: list[Signal]) -> list[Value]:
        """Rows 2-T..2T-1 of the region, columns 2-T..2T-1."""
        size = self.size
        rows = []
        for row in range(2, 3 * size):
            tiles = region[row // size * BANK_SIDE :][:BANK_SIDE]
            left, centre, right = (tile.word_select(row % size, size * 8) for tile in tiles)
            rows.append(Cat(left[16:], centre, right))
        return rows

    def _shift(self, m: Module, rows: list[Value], coarse: Value, fine: Value) -> Signal:
        """Rows row_offset + stride*r: by fours in one cycle, the rest and the stride in the next."""
        size = self.size
        # Number of rows skipped: 0..T-1, counted from the first offset of the stride's range.
        first = size - 2 - size // 2
        skip, stride_2 = Signal(3), Signal()
        m.d.comb += [
            stride_2.eq(self.request.stride[1]),
            skip.eq(self.request.row_offset + Mux(stride_2, size - 2, size // 2)),
        ]
        skip_fours = delay(m, skip[2], self.TILE_LATENCY, name="skip_fours")
        mode = delay(m, Cat(skip[:2], stride_2), self.TILE_LATENCY + 1, name="mode")

        nothing = Const(0, len(rows[0]))
        shifted = [Signal(len(row), name=f"shifted_{i}", reset_less=True) for i, row in enumerate(rows)]
        with m.If(coarse):
            for target, near, far in zip(shifted, rows, [*rows[4:], *[nothing] * 4], strict=True):
                m.d.sync += target.eq(Mux(skip_fours, far, near) if size > 4 else near)
        window = Signal(window_bits(self.config), reset_less=True)
        padded = [*shifted, *[nothing] * (size + 12)]
        with m.If(fine), m.Switch(mode):
            for skipped in range(4):
                for step, start in ((1, first + skipped), (2, skipped)):
                    with m.Case(skipped + 4 * (step - 1)):
                        m.d.sync += window.eq(Cat(padded[start::step][: self.config.word_rows]))
        return window

    def elaborate(self, platform: object) -> Module:
        """Control bits travel along; the wide registers move only when something arrives."""
        m = Module()
        tile = Cat(self.residual, self.store)
        window = delay(m, self.window, self._ADDRESS, control=True, name="window_a")
        tile = delay(m, tile, self._ADDRESS, control=True, name="tile_a")
        m.d.comb += self.read_enable.eq(window.any() | tile.any())
        active = delay(m, self.read_enable, FeatureBank.LATENCY, control=True, name="active")
        padding = delay(m, active, 1, control=True, name="padding")
        position = self._addresses(m)
        region = self._region(m, position, active, padding)

        window = delay(m, window, FeatureBank.LATENCY + 2, control=True, name="window_b")
        tile = delay(m, tile, FeatureBank.LATENCY + 2, control=True, name="tile_b")
        fine = delay(m, window, 1, control=True, name="window_c")
        m.d.comb += [
            self.tile_data.eq(region[BANKS // 2]),
            self.residual_valid.eq(tile[:-1]),
            self.store_valid.eq(tile[-1]),
            self.window_data.eq(self._shift(m, self._region_rows(region), window.any(), fine.any())),
            self.window_valid.eq(delay(m, fine, 1, control=True, name="window_d")),
        ]
        return m


def _neighbour_steps(remainder: Value, step: Value) -> list[Value]:
    """List what banks 0, 1, 2 of a side add to the centre's word, if the centre lies in bank `remainder`.

    The centre's neighbours lie in the same group of three, except next to bank 0 and bank 2.
    """
    return [Mux(remainder == 2, step, 0), Const(0), Mux(remainder == 0, (~step + 1)[:ADDRESS_BITS], 0)]
