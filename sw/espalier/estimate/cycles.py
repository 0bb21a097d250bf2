"""Cycle model: what a layer takes, at the granularity of blocks of window words."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
import numpy.typing as npt

from espalier.arch.config import HardwareConfig
from espalier.estimate.overheads import DEFAULT_OVERHEADS, Overheads

IntArray = npt.NDArray[np.int64]
FloatArray = npt.NDArray[np.float64]

# Blocks and tiles that are simulated one by one; the steady state of the rest follows from the last of them.
_BLOCKS_SIMULATED, _TILES_SIMULATED = 400, 4


@dataclass(frozen=True)
class ConvLoad:
    """What the branches of one tile group have to do for one tile.

    operators: int64[passes, blocks, PEs]; words: int64[blocks]; filters: int64[PEs], accumulators a set
    needs; drains: for every pass and branch, the PEs (numbered over the group) of the table entries in order.
    windows, residuals: reads of the feature memory per tile by one tile group.
    tile_rows: int64[tiles], row in the output of each tile that the busiest group takes.
    """

    operators: IntArray
    words: IntArray
    filters: IntArray
    drains: list[list[IntArray]]
    windows: int
    residuals: int
    tile_groups: int
    tile_rows: IntArray
    block_words: int


def conv_cycles(
    load: ConvLoad,
    config: HardwareConfig,
    rows_ready: FloatArray | None = None,
    overheads: Overheads = DEFAULT_OVERHEADS,
) -> int:
    """Cycles of a convolution.

    rows_ready: float64[tile rows of the output], cycle in which the windows of a tile row have arrived, when
    the layer runs while its input is being loaded.
    """
    state = _State(load, config, overheads)
    tiles = len(load.tile_rows)
    enough = max(_TILES_SIMULATED, _BLOCKS_SIMULATED // (load.operators.shape[0] * load.operators.shape[1]))
    simulated = tiles if rows_ready is not None else min(tiles, enough)
    halfway = 0.0
    for tile in range(simulated):
        if rows_ready is not None:
            state.arrival = max(state.arrival, float(rows_ready[load.tile_rows[tile]]))
        state.tile()
        if tile == simulated // 2 - 1:
            halfway = float(state.drained.max())
    finish = float(state.drained.max())
    if simulated < tiles:
        finish += (tiles - simulated) * (finish - halfway) / (simulated - simulated // 2)
    return int(np.ceil(finish)) + overheads.layer_end


class _State:
    """Clocks of a tile group (window arrival, PEs, output stages) in cycles since the layer's start."""

    def __init__(self, load: ConvLoad, config: HardwareConfig, overheads: Overheads) -> None:
        self.load, self.overheads = load, overheads
        self.beats = config.output_beats
        self.depth = config.ring_words // load.block_words
        passes = load.operators.shape[0]
        reads = load.tile_groups * (load.windows + load.residuals) / passes
        interval = max(1.0, reads / float(load.words.sum()))
        self.word_cycles = load.words * interval
        self.arrival = float(overheads.first_word)
        self.released: list[float] = []
        self.finish = np.zeros(len(load.filters))
        self.sets_held = config.accumulators // load.filters
        self.drained_sets: list[FloatArray] = []
        self.drained = np.zeros(len(load.drains[0]))  # per branch, end of the last entry

    def tile(self) -> None:
        """Run all sets of one tile."""
        for which in range(self.load.operators.shape[0]):
            self._wait_for_accumulators()
            self._blocks(self.load.operators[which])
            self._drain(self.load.drains[which])

    def _wait_for_accumulators(self) -> None:
        """Hold back PEs whose accumulators are not free: the set some sets ago must have been drained."""
        index = len(self.drained_sets)
        for held in np.unique(self.sets_held):
            if index >= held:
                free = self.drained_sets[index - int(held)]
                self.finish = np.where(self.sets_held == held, np.maximum(self.finish, free), self.finish)

    def _blocks(self, operators: IntArray) -> None:
        released, finish, arrival = self.released, self.finish, self.arrival
        for block, cycles in enumerate(self.word_cycles):
            if len(released) >= self.depth:
                arrival = max(arrival, released[-self.depth])
            arrival += cycles
            finish = np.maximum(finish, arrival + self.overheads.block_commit) + operators[block]
            released.append(float(finish.max()))
        self.finish, self.arrival = finish, arrival

    def _drain(self, drains: list[IntArray]) -> None:
        done = self.finish + self.overheads.set_done
        free = np.zeros_like(done)
        for branch, pes in enumerate(drains):
            index = np.arange(len(pes))
            ready = np.maximum(done[pes], self.drained[branch])
            ends = np.maximum.accumulate(ready - index * self.beats) + (index + 1) * self.beats
            np.maximum.at(free, pes, ends)
            self.drained[branch] = ends[-1] if len(ends) else self.drained[branch]
        self.drained_sets.append(free)


def pool_cycles(
    tiles: int,
    channels: int,
    patterns: int,
    taps: int,
    windows_of_all: int,
    config: HardwareConfig,
    overheads: Overheads = DEFAULT_OVERHEADS,
) -> int:
    """Cycles of a pooling layer.

    tiles, channels: of the busiest branch; patterns, taps: per channel; windows_of_all: window reads of all
    branches.
    """
    per_channel = max(patterns, taps * overheads.pool_tap, config.output_beats)
    work = max(tiles * channels * per_channel, windows_of_all)
    return work + overheads.first_word + config.output_beats + overheads.layer_end


def transfer_cycles(beats: int, config: HardwareConfig, overheads: Overheads = DEFAULT_OVERHEADS) -> int:
    """Cycles of a DMA transfer of so many beats."""
    bursts = -(-beats // config.burst_beats)
    return overheads.dma_latency + beats + bursts * overheads.dma_burst_gap


def descriptor_cycles(patterns: int, overheads: Overheads = DEFAULT_OVERHEADS) -> int:
    """Cycles from one descriptor to the start of its layer."""
    return overheads.descriptor + -(-patterns // overheads.patterns_per_cycle)
