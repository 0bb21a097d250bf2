"""The core, all that RESET clears: sequencer, loader, DMA walkers, feature memory, branches, pool unit."""

from __future__ import annotations

from typing import Any

from amaranth.hdl import Cat, Module, Mux, Value
from amaranth.lib import stream, wiring
from amaranth.lib.wiring import In, Out, connect

from espalier.arch.config import HardwareConfig
from espalier.arch.program import POOL_BRANCH
from espalier_hw.branch import Branch
from espalier_hw.counters import COUNTER_BITS, LayerCounters
from espalier_hw.csr import counter_address_bits
from espalier_hw.feature_dma import LoadWalker, StoreWalker
from espalier_hw.feature_system import FeatureSystem
from espalier_hw.hierarchy import place
from espalier_hw.interfaces import dma_beat, dma_command, write_trace
from espalier_hw.loader import Loader
from espalier_hw.pool_unit import PoolUnit
from espalier_hw.scoreboard import Scoreboard
from espalier_hw.sequencer import Sequencer


def core_signature(config: HardwareConfig) -> dict[str, wiring.Member]:
    """Ports of the core.

    loader_start, sequencer_start: command pulses, never both at work; *_done, *_error: pulses.
    program_address, program_bytes, input_address, output_address, scratch_address: registers, stable during a
    command.
    read_*, write_*: command and data streams of the AXI engines; write_idle: no write is outstanding.
    counter_*: read port of the layer counters. layer, state: register values; the state holds the sequencer's
    state in bits 3..0 and, from bit 8 on, whether loader, LOAD and STORE are at work.
    observed: writes into the feature memory, for simulation.
    """
    address = config.axi_address_bits
    return {
        "loader_start": In(1),
        "loader_done": Out(1),
        "loader_error": Out(1),
        "sequencer_start": In(1),
        "sequencer_done": Out(1),
        "sequencer_error": Out(1),
        "program_address": In(address),
        "program_bytes": In(32),
        "input_address": In(address),
        "output_address": In(address),
        "scratch_address": In(address),
        "read_command": Out(stream.Signature(dma_command(config))),
        "read_data": In(stream.Signature(dma_beat(config))),
        "write_command": Out(stream.Signature(dma_command(config))),
        "write_data": Out(stream.Signature(dma_beat(config))),
        "write_idle": In(1),
        "counter_address": In(counter_address_bits(config)),
        "counter_data": Out(COUNTER_BITS),
        "layer": Out(8),
        "state": Out(16),
        "observed": Out(write_trace(config)).array(2),
    }


class Core(wiring.Component):
    """See `core_signature`. `primitives` goes to the branches."""

    def __init__(self, config: HardwareConfig, primitives: str) -> None:
        self.config, self.primitives = config, primitives
        super().__init__(core_signature(config))

    def elaborate(self, platform: Any) -> Module:
        """Wires only; every register is in a block."""
        m = Module()
        config = self.config
        m.submodules.sequencer = self.sequencer = Sequencer(config)
        m.submodules.loader = self.loader = Loader(config)
        m.submodules.load = self.load = LoadWalker(config)
        m.submodules.store = self.store = StoreWalker(config)
        m.submodules.counters = self.counters = LayerCounters(config)
        m.submodules.features = self.features = FeatureSystem(config)
        m.submodules.scoreboard = self.scoreboard = Scoreboard(config.branches)
        m.submodules.pool = self.pool = PoolUnit(config)
        self.branches = [Branch(config, index, self.primitives) for index in range(config.branches)]
        for index, branch in enumerate(self.branches):
            place(m, platform, f"branch{index}", f"espalier_branch{branch.kind}", branch)
            self._branch(m, index, branch)
            self._branch_features(m, index, branch)
        self._pool_unit(m)
        self._progress(m)
        self._commands(m)
        if config.streaming:
            self._batches(m)
        self._read_users(m)
        self._write_user(m)
        self._sequence(m)
        self._observe(m)
        return m

    def _commands(self, m: Module) -> None:
        loader, sequencer = self.loader, self.sequencer
        m.d.comb += [
            loader.start.eq(self.loader_start),
            loader.address.eq(self.program_address),
            loader.length.eq(self.program_bytes),
            self.loader_done.eq(loader.done),
            self.loader_error.eq(loader.error),
            sequencer.start.eq(self.sequencer_start),
            self.sequencer_done.eq(sequencer.done),
            self.sequencer_error.eq(sequencer.error),
        ]

    def _batches(self, m: Module) -> None:
        """Let STREAM start the loader during an inference."""
        loader, sequencer, layer = self.loader, self.sequencer, self.sequencer.layer
        m.d.comb += [
            loader.restart.eq(sequencer.restart),
            loader.stream.eq(sequencer.stream_start),
            loader.hold.eq(self.load.busy),
            loader.space.eq(Cat(branch.space for branch in self.branches).all()),
            sequencer.stream_busy.eq(sequencer.stream_start | loader.busy),
        ]
        with m.If(sequencer.stream_start):
            m.d.comb += [
                loader.start.eq(1),
                loader.address.eq(self.program_address + layer.dram_offset),
                loader.length.eq(layer.dram_words << (self.config.axi_bytes.bit_length() - 1)),
            ]
        for branch in self.branches:
            m.d.comb += [branch.loaded.eq(loader.loaded), branch.required.eq(loader.required)]

    def _read_users(self, m: Module) -> None:
        """Loader and LOAD never use the engine at the same time.

        They belong to different commands, or a LOAD waits for the end of a batch.
        """
        loader, load, command, beats = self.loader, self.load, self.read_command, self.read_data
        payloads = [user.command.payload.as_value() for user in (loader, load)]
        loader_reads = loader.reading if self.config.streaming else loader.busy
        load_waits: Value = load.command.valid
        if self.config.streaming:  # its command must not be taken for another one of the loader
            load_waits = load_waits & ~loader_reads
        m.d.comb += [
            command.payload.eq(Mux(loader_reads, *payloads)),
            command.valid.eq(loader.command.valid | load_waits),
            beats.ready.eq(loader.beats.ready | load.beats.ready),
        ]
        for user in (loader, load):
            m.d.comb += [
                user.command.ready.eq(command.ready),
                user.beats.payload.eq(beats.payload),
                user.beats.valid.eq(beats.valid),
            ]
        if self.config.streaming:
            m.d.comb += load.command.ready.eq(command.ready & ~loader_reads)
        m.d.comb += load.base_address.eq(self._base(self.input_address))

    def _base(self, address: Value) -> Value:
        return Mux(self.sequencer.layer.scratch, self.scratch_address, address)

    def _write_user(self, m: Module) -> None:
        store, features = self.store, self.features
        connect(m, store.command, wiring.flipped(self.write_command))
        connect(m, store.beats, wiring.flipped(self.write_data))
        connect(m, store.request, features.store_request)
        m.d.comb += [
            store.base_address.eq(self._base(self.output_address)),
            store.engine_idle.eq(self.write_idle),
            store.tile_valid.eq(features.store_valid),
            store.tile_data.eq(features.tile_data),
        ]

    def _sequence(self, m: Module) -> None:
        sequencer, load, store, counters = self.sequencer, self.load, self.store, self.counters
        units: list[Branch | PoolUnit] = [*self.branches, self.pool]
        m.d.comb += [
            sequencer.program_write.enable.eq(self.loader.program_write.enable),
            sequencer.program_write.address.eq(self.loader.program_write.address),
            sequencer.program_write.data.eq(self.loader.program_write.data),
            sequencer.pending.eq(Cat(unit.pending for unit in units).any()),
            sequencer.all_idle.eq(
                Cat(unit.idle for unit in units).all() & self.scoreboard.idle & self.features.idle
            ),
            load.start.eq(sequencer.load_start),
            load.layer.eq(sequencer.layer),
            load.first_row.eq(sequencer.branch[POOL_BRANCH].tile_y0),
            sequencer.load_busy.eq(load.busy),
            store.start.eq(sequencer.store_start),
            store.layer.eq(sequencer.layer),
            store.first_row.eq(sequencer.branch[POOL_BRANCH].tile_y0),
            sequencer.store_busy.eq(store.busy),
            counters.begin.eq(sequencer.restart),
            counters.end.eq(self.scoreboard.end),
            counters.layer.eq(self.scoreboard.end_layer),
            self.scoreboard.counters_busy.eq(counters.busy),
        ]
        connect(m, load.write, self.features.write[self.config.branches + 1])

    def _layers(self, m: Module, unit: Branch | PoolUnit, fields: int, pool: bool) -> None:
        """Connect what the sequencer says to one that takes layers; `fields`: branch whose fields it gets."""
        sequencer = self.sequencer
        m.d.comb += [
            unit.offer.eq(sequencer.offer_pool if pool else sequencer.offer_branches),
            unit.restart.eq(sequencer.restart),
            unit.layer.eq(sequencer.layer),
            unit.branch.eq(sequencer.branch[fields]),
            unit.bank.eq(sequencer.bank),
            unit.pattern_write.enable.eq(
                sequencer.pattern_write.enable & (sequencer.pattern_for_pool == int(pool))
            ),
            unit.pattern_write.address.eq(sequencer.pattern_write.address),
            unit.pattern_write.data.eq(sequencer.pattern_write.data),
        ]
        for own, shared in zip(unit.progress, self.scoreboard.progress, strict=True):
            m.d.comb += own.eq(shared)

    def _pool_unit(self, m: Module) -> None:
        pool, features, index = self.pool, self.features, self.config.branches
        self._layers(m, pool, POOL_BRANCH, pool=True)
        connect(m, pool.window_request, features.window_request[index])
        connect(m, pool.write, features.write[index])
        m.d.comb += [
            pool.window_valid.eq(features.window_valid[index]),
            pool.window_data.eq(features.window_data),
        ]

    def _progress(self, m: Module) -> None:
        scoreboard, sequencer = self.scoreboard, self.sequencer
        m.d.comb += [
            scoreboard.layer.eq(sequencer.layer),
            scoreboard.pool_taken.eq(self.pool.taken),
            scoreboard.pool_idle.eq(self.pool.idle),
            scoreboard.load_start.eq(sequencer.load_start),
            scoreboard.written.eq(self.features.written),
        ]
        m.d.comb += [scoreboard.written_word[i].eq(word) for i, word in enumerate(self.features.written_word)]
        for index, branch in enumerate(self.branches):
            m.d.comb += [
                scoreboard.rests[index].eq(sequencer.branch[index].tiles == 0),
                scoreboard.windows_past[index].eq(branch.windows_past),
                scoreboard.outputs_wait[index].eq(branch.outputs_wait),
                branch.outputs_take.eq(scoreboard.outputs_take),
            ]

    def _branch(self, m: Module, index: int, branch: Branch) -> None:
        loader = self.loader
        self._layers(m, branch, index, pool=False)
        m.d.comb += [
            branch.stream_write_pe.eq(loader.write_pe),
            branch.stream_write.enable.eq(loader.stream_enable[index]),
            branch.table_write.enable.eq(loader.table_enable[index]),
            self.counters.events[index].eq(branch.events),
        ]
        for port in (branch.stream_write, branch.table_write):
            m.d.comb += [port.address.eq(loader.write_address), port.data.eq(loader.write_data)]

    def _branch_features(self, m: Module, index: int, branch: Branch) -> None:
        features = self.features
        connect(m, branch.window_request, features.window_request[index])
        connect(m, branch.residual_request, features.residual_request[index])
        connect(m, branch.write, features.write[index])
        m.d.comb += [
            branch.window_valid.eq(features.window_valid[index]),
            branch.window_data.eq(features.window_data),
            branch.residual_valid.eq(features.residual_valid[index]),
            branch.residual_data.eq(features.tile_data),
        ]

    def _observe(self, m: Module) -> None:
        m.d.comb += [
            self.counters.address.eq(self.counter_address),
            self.counter_data.eq(self.counters.data),
            self.layer.eq(self.sequencer.layer_index),
            self.state.eq(
                Cat(self.sequencer.state, *[0] * 4, self.loader.busy, self.load.busy, self.store.busy)
            ),
        ]
        for port, trace in enumerate(self.features.trace):
            m.d.comb += self.observed[port].eq(trace)
