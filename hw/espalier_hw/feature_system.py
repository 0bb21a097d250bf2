"""The feature memory with everything that reads and writes it."""

from __future__ import annotations

from amaranth.hdl import Module
from amaranth.lib import stream, wiring
from amaranth.lib.wiring import In, Out

from espalier.arch.config import HardwareConfig
from espalier.arch.feature_layout import BANKS
from espalier_hw.feature_memory import FeatureMemory, small_parts
from espalier_hw.interfaces import (
    TILE_ADDRESS,
    WINDOW_REQUEST,
    WRITTEN,
    tile_bits,
    tile_write_layout,
    window_bits,
)
from espalier_hw.read_arbiter import ReadArbiter
from espalier_hw.tile_address import ADDRESS_BITS
from espalier_hw.tile_reader import TileReader
from espalier_hw.window_reader import WindowReader
from espalier_hw.write_port import WritePort


class FeatureSystem(wiring.Component):
    """Feature memory of one accelerator.

    Clients are the branches, then the pool unit; writers the branches, the pool unit, then the DMA. In a
    cycle start a read of a window, a write of a word, and a read of a word in another bank than the write's.

    window_request: a window goes to all clients of its group in one read, once all of them ask for it.
    window_valid[c]: `window_data` is for client c.
    residual_request, store_request: single tiles, answered on `tile_data` with residual_valid[b] or
    store_valid; residual tiles go first. Answers of any kind come in the order of the requests and are never
    refused: ask only for what there is room for.
    write: tile words. written: one bit a writer, its word `written_word` is being written into its bank:
    whatever is requested from now on sees it. idle: level; low from the cycle after a word is accepted until
    it can be read.
    trace_*: the word written in this cycle and the layer it belongs to (for simulators).
    """

    def __init__(self, config: HardwareConfig) -> None:
        self.config = config
        self.clients = config.branches + 1
        self.writers = config.branches + 2
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
                "written_word": Out(WRITTEN),
                "idle": Out(1),
                "trace_valid": Out(1),
                "trace_layer": Out(8),
                "trace_bank": Out(4),
                "trace_address": Out(ADDRESS_BITS),
                "trace_data": Out(tile),
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

    def _tiles(self, m: Module, memory: FeatureMemory, writer: WritePort) -> None:
        m.submodules.tiles = tiles = TileReader(self.config.branches, small_parts(self.config))
        wiring.connect(m, wiring.flipped(self.store_request), tiles.store_request)
        for index in range(self.config.branches):
            wiring.connect(m, wiring.flipped(self.residual_request[index]), tiles.residual_request[index])
            m.d.comb += self.residual_valid[index].eq(tiles.residual_valid[index])
        m.d.comb += [
            tiles.coming.eq(writer.coming),
            tiles.coming_row.eq(writer.coming_row),
            tiles.coming_column.eq(writer.coming_column),
            memory.tile_enable.eq(tiles.tile_enable),
            memory.tile_address.eq(tiles.tile_address),
            tiles.refused.eq(memory.tile_refused),
            self.store_valid.eq(tiles.store_valid),
            self.tile_data.eq(memory.tile_data),
        ]

    def elaborate(self, platform: object) -> Module:
        """Connect the readers, the write port and the banks."""
        m = Module()
        m.submodules.memory = memory = FeatureMemory(self.config)
        m.submodules.writer = writer = WritePort(self.config, self.writers)
        self._windows(m, memory)
        self._tiles(m, memory, writer)
        for index in range(self.writers):
            wiring.connect(m, wiring.flipped(self.write[index]), writer.write[index])
        m.d.comb += [
            memory.write_enable.eq(writer.enable),
            memory.write_address.eq(writer.address),
            memory.write_data.eq(writer.data),
            self.written.eq(writer.written),
            self.written_word.eq(writer.written_word),
            self.idle.eq(writer.idle),
            self.trace_valid.eq(writer.enable.any()),
            self.trace_layer.eq(writer.written_word.marks.layer),
            self.trace_bank.eq(writer.bank),
            self.trace_address.eq(writer.address),
            self.trace_data.eq(writer.data),
        ]
        return m
