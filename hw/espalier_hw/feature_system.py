"""The feature memory with everything that reads and writes it."""

from __future__ import annotations

from amaranth.hdl import Module
from amaranth.lib import stream, wiring
from amaranth.lib.wiring import In, Out

from espalier.arch.config import HardwareConfig
from espalier.arch.feature_layout import BANKS
from espalier_hw.feature_memory import FeatureMemory
from espalier_hw.interfaces import TILE_ADDRESS, WINDOW_REQUEST, tile_bits, tile_write_layout, window_bits
from espalier_hw.read_arbiter import ReadArbiter
from espalier_hw.tile_address import ADDRESS_BITS
from espalier_hw.window_reader import WindowReader
from espalier_hw.write_port import WritePort


class FeatureSystem(wiring.Component):
    """Feature memory of one accelerator: one read of a neighbourhood and one write of a word a cycle.

    window_request, group_mask: a window goes to all branches of the group in one read, once all of them
    ask for it. window_valid[b]: `window_data` is for branch b.
    residual_request, store_request: single tiles, answered on `tile_data` with residual_valid[b] or
    store_valid. Answers come in the order of the requests and are never refused: ask only for what there is
    room for. Order of precedence: residual, store, windows.
    write: tile words, one stream a branch, the last one from the DMA.
    idle: level; low from the cycle after a word is accepted until it can be read.
    trace_*: the word written in this cycle (for simulators).
    """

    def __init__(self, config: HardwareConfig) -> None:
        self.config = config
        branches, tile = config.branches, tile_bits(config)
        super().__init__(
            {
                "window_request": In(stream.Signature(WINDOW_REQUEST)).array(branches),
                "group_mask": In(8).array(branches),
                "window_valid": Out(1).array(branches),
                "window_data": Out(window_bits(config)),
                "residual_request": In(stream.Signature(TILE_ADDRESS)).array(branches),
                "residual_valid": Out(1).array(branches),
                "store_request": In(stream.Signature(TILE_ADDRESS)),
                "store_valid": Out(1),
                "tile_data": Out(tile),
                "write": In(stream.Signature(tile_write_layout(config))).array(branches + 1),
                "idle": Out(1),
                "trace_valid": Out(1),
                "trace_bank": Out(4),
                "trace_address": Out(ADDRESS_BITS),
                "trace_data": Out(tile),
            }
        )

    def _connect_reads(self, m: Module, reader: WindowReader, memory: FeatureMemory) -> None:
        m.submodules.arbiter = arbiter = ReadArbiter(self.config.branches)
        wiring.connect(m, wiring.flipped(self.store_request), arbiter.store_request)
        for index in range(self.config.branches):
            wiring.connect(m, wiring.flipped(self.window_request[index]), arbiter.window_request[index])
            wiring.connect(m, wiring.flipped(self.residual_request[index]), arbiter.residual_request[index])
            m.d.comb += [
                arbiter.group_mask[index].eq(self.group_mask[index]),
                self.window_valid[index].eq(reader.window_valid[index]),
                self.residual_valid[index].eq(reader.residual_valid[index]),
            ]
        m.d.comb += [
            reader.request.eq(arbiter.request),
            reader.window.eq(arbiter.window),
            reader.residual.eq(arbiter.residual),
            reader.store.eq(arbiter.store),
            memory.read_enable.eq(reader.read_enable),
            self.window_data.eq(reader.window_data),
            self.store_valid.eq(reader.store_valid),
            self.tile_data.eq(reader.tile_data),
        ]
        for index in range(BANKS):
            m.d.comb += [
                memory.read_address[index].eq(reader.read_address[index]),
                reader.read_data[index].eq(memory.read_data[index]),
            ]

    def elaborate(self, platform: object) -> Module:
        """Connect arbiter, window reader, write port and banks."""
        m = Module()
        m.submodules.memory = memory = FeatureMemory(self.config)
        m.submodules.reader = reader = WindowReader(self.config)
        self._connect_reads(m, reader, memory)
        m.submodules.writer = writer = WritePort(self.config, self.config.branches + 1)
        for index in range(self.config.branches + 1):
            wiring.connect(m, wiring.flipped(self.write[index]), writer.write[index])
        m.d.comb += [
            memory.write_enable.eq(writer.enable),
            memory.write_address.eq(writer.address),
            memory.write_data.eq(writer.data),
            self.idle.eq(writer.idle),
            self.trace_valid.eq(writer.enable.any()),
            self.trace_bank.eq(writer.bank),
            self.trace_address.eq(writer.address),
            self.trace_data.eq(writer.data),
        ]
        return m
