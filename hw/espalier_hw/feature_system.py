"""The feature memory with everything that reads and writes it."""

from __future__ import annotations

from amaranth.hdl import Cat, Module
from amaranth.lib import stream, wiring
from amaranth.lib.wiring import In, Out

from espalier.arch.config import HardwareConfig
from espalier.arch.feature_banks import small_parts
from espalier.arch.feature_layout import BANKS
from espalier_hw.feature_memory import FeatureMemory
from espalier_hw.interfaces import (
    TILE_ADDRESS,
    WINDOW_REQUEST,
    WRITTEN,
    tile_bits,
    tile_write_layout,
    window_bits,
    write_trace,
    writers,
)
from espalier_hw.read_arbiter import ReadArbiter
from espalier_hw.tile_reader import TileReader
from espalier_hw.window_reader import WindowReader
from espalier_hw.write_port import WritePort


class FeatureSystem(wiring.Component):
    """Feature memory of one accelerator.

    Clients are the branches, then the pool unit; writers the branches, the pool unit, then the DMA. In a
    cycle start a read of a window, writes of a word of a branch and of a word of another writer, and a read
    of a single word, these three in different banks.

    window_request: a window goes to all clients of its group in one read, once all of them ask for it.
    window_valid[c]: `window_data` is for client c.
    residual_request, store_request: single tiles, answered on `tile_data` with residual_valid[b] or
    store_valid; residual tiles go first. Answers of any kind come in the order of the requests and are never
    refused: ask only for what there is room for.
    write: tile words. written: one bit a writer, its word is being written into its bank: whatever is
    requested from now on sees it; written_word: the word, of a branch, and of another writer. idle: level;
    low from the cycle after a word is accepted until it can be read.
    trace: the words written in this cycle, of a branch and of another writer (for simulators).
    """

    def __init__(self, config: HardwareConfig) -> None:
        self.config = config
        self.clients = config.branches + 1
        self.writers = writers(config)
        tile = tile_bits(config)
        super().__init__(
            {
                "window_request": In(stream.Signature(WINDOW_REQUEST)).array(self.clients),
                "window_valid": Out(1).array(self.clients),
                "window_data": Out(window_bits(config)),
                "residual_request": In(stream.Signature(TILE_ADDRESS)).array(config.branches),
                "residual_valid": Out(1).array(config.branches),
                "store_request": In(stream.Signature(TILE_ADDRESS)),
                "store_valid": Out(1),
                "tile_data": Out(tile),
                "write": In(stream.Signature(tile_write_layout(config))).array(self.writers),
                "written": Out(self.writers),
                "written_word": Out(WRITTEN).array(2),
                "idle": Out(1),
                "trace": Out(write_trace(config)).array(2),
            }
        )

    def _windows(self, m: Module, memory: FeatureMemory) -> None:
        m.submodules.arbiter = arbiter = ReadArbiter(self.clients)
        m.submodules.reader = reader = WindowReader(self.config)
        for index in range(self.clients):
            wiring.connect(m, wiring.flipped(self.window_request[index]), arbiter.window_request[index])
            m.d.comb += self.window_valid[index].eq(reader.window_valid[index])
        m.d.comb += [
            reader.request.eq(arbiter.request),
            reader.window.eq(arbiter.window),
            memory.read_enable.eq(reader.read_enable),
            self.window_data.eq(reader.window_data),
        ]
        for index in range(BANKS):
            m.d.comb += [
                memory.read_address[index].eq(reader.read_address[index]),
                reader.read_data[index].eq(memory.read_data[index]),
            ]

    def _tiles(self, m: Module, memory: FeatureMemory, ports: list[WritePort]) -> None:
        m.submodules.tiles = tiles = TileReader(
            self.config.branches, small_parts(self.config), bool(self.config.feature_rings)
        )
        wiring.connect(m, wiring.flipped(self.store_request), tiles.store_request)
        for index in range(self.config.branches):
            wiring.connect(m, wiring.flipped(self.residual_request[index]), tiles.residual_request[index])
            m.d.comb += self.residual_valid[index].eq(tiles.residual_valid[index])
        m.d.comb += [
            memory.tile_enable.eq(tiles.tile_enable),
            memory.tile_address.eq(tiles.tile_address),
            tiles.refused.eq(memory.tile_refused),
            self.store_valid.eq(tiles.store_valid),
            self.tile_data.eq(memory.tile_data),
        ]

        for index, port in enumerate(ports):
            m.d.comb += [
                tiles.coming[index].eq(port.coming),
                tiles.coming_row[index].eq(port.coming_row),
                tiles.coming_column[index].eq(port.coming_column),
            ]

    def elaborate(self, platform: object) -> Module:
        """Connect the readers, the write port and the banks."""
        m = Module()
        m.submodules.memory = memory = FeatureMemory(self.config)
        branches = self.config.branches
        # Two ports: branches and pool unit together write more than a word a cycle while both are at work.
        m.submodules.writer = first = WritePort(self.config, branches)
        m.submodules.other_writer = second = WritePort(self.config, self.writers - branches, yields=True)
        self._windows(m, memory)
        self._tiles(m, memory, [first, second])
        for index in range(self.writers):
            port, number = (first, index) if index < branches else (second, index - branches)
            wiring.connect(m, wiring.flipped(self.write[index]), port.write[number])
        m.d.comb += [
            second.other_coming.eq(first.coming),
            second.other_row.eq(first.coming_row),
            second.other_column.eq(first.coming_column),
            self.written.eq(Cat(first.written, second.written)),
            self.idle.eq(first.idle & second.idle),
        ]
        for index, port in enumerate((first, second)):
            m.d.comb += [
                memory.write_enable[index].eq(port.enable),
                memory.write_address[index].eq(port.address),
                memory.write_data[index].eq(port.data),
                self.written_word[index].eq(port.written_word),
                self.trace[index].valid.eq(port.enable.any()),
                self.trace[index].layer.eq(port.written_word.marks.layer),
                self.trace[index].bank.eq(port.bank),
                self.trace[index].address.eq(port.address),
                self.trace[index].data.eq(port.data),
            ]
        return m
