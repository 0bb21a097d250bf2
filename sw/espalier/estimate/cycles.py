"""Cycle model: what a layer takes, at the granularity of blocks of window words."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
import numpy.typing as npt

from espalier.arch.config import HardwareConfig
from espalier.estimate.overheads import DEFAULT_OVERHEADS, Overheads

IntArray = npt.NDArray[np.int64]
FloatArray = npt.NDArray[np.float64]

# Blocks and tiles that are simulated one by one unless all are asked for; the steady state of the rest
# follows from the last of them.
_BLOCKS_SIMULATED, _TILES_SIMULATED = 150, 3


@dataclass(frozen=True)
class ConvLoad:
    """What the branches of one tile group have to do for one tile.

    operators: int64[passes, blocks, branches, PEs]; words: int64[blocks]; filters: int64[branches, PEs],
    accumulators a set needs; drains: for every pass and branch, the PEs of the table entries in order.
    windows, residuals: reads of the feature memory per tile by this tile group. sharing: tiles that all
    groups together take while this one takes one. tile_rows: int64[tiles], row in the output of each of its
    tiles.
    """

    operators: IntArray
    words: IntArray
    filters: IntArray
    drains: list[list[IntArray]]
    windows: int
    residuals: int
    sharing: float
    tile_rows: IntArray
    block_words: int


def conv_cycles(
    load: ConvLoad,
    config: HardwareConfig,
    rows_ready: FloatArray | None = None,
    overheads: Overheads = DEFAULT_OVERHEADS,
    exact: bool = False,
) -> int:
    """Predict the cycles of a convolution; `exact`: simulate every tile.

    rows_ready: float64[tile rows of the output], cycle in which the windows of a tile row have arrived, when
    the layer runs while its input is being loaded.
    """
    state = _State(load, config, overheads)
    tiles = len(load.tile_rows)
    enough = max(_TILES_SIMULATED, _BLOCKS_SIMULATED // (load.operators.shape[0] * load.operators.shape[1]))
    simulated = tiles if exact or rows_ready is not None else min(tiles, enough)
    halfway = 0.0
    for tile in range(simulated):
        if rows_ready is not None:
            state.fetched = max(state.fetched, float(rows_ready[load.tile_rows[tile]]))
        state.tile()
        if tile == simulated // 2 - 1:
            halfway = float(state.drained.max())
    finish = float(state.drained.max())
    if simulated < tiles:
        finish += (tiles - simulated) * (finish - halfway) / (simulated - simulated // 2)
    latency = overheads.layer_end + (overheads.residual if load.residuals else 0)
    return int(np.ceil(finish)) + latency


class _State:
    """Clocks of a tile group (windows, words, PEs, output stages) in cycles since the layer's start.

    Windows are read for all branches of the group at once and wait in each branch's buffer, so that branches
    may drift apart by its depth; PEs of a branch may drift apart by the depth of their rings.
    """

    def __init__(self, load: ConvLoad, config: HardwareConfig, overheads: Overheads) -> None:
        self.load, self.overheads = load, overheads
        self.beats = config.output_beats
        self.depth = config.ring_words // load.block_words
        passes, _, branches, _ = load.operators.shape
        words = float(load.words.sum())
        shared = load.sharing * (load.windows + load.residuals)
        own = load.windows * overheads.window_latency / config.window_fifo_depth
        self.read_cycles = load.words * (max(shared, own) / passes / words)
        buffered = config.window_fifo_depth * words * passes / load.windows
        self.slack = max(1, int(buffered // load.block_words))
        self.fetched = float(overheads.first_word)
        self.arrival = np.full(branches, float(overheads.first_word))
        self.finish = np.zeros(load.filters.shape)
        self.arrivals: list[float] = []
        self.released: list[FloatArray] = []
        self.accumulators = config.accumulators
        self.filter_counts = [int(value) for value in np.unique(load.filters)]
        self.slots = [[_turns(pes) for pes in drains] for drains in load.drains]
        self.drained_sets: list[FloatArray] = []  # per set, float64[branches, PEs, accumulators]
        self.drained = np.zeros(branches)  # end of the last entry

    def tile(self) -> None:
        """Run all sets of one tile."""
        for which in range(self.load.operators.shape[0]):
            self._wait_for_accumulators()
            self._blocks(self.load.operators[which])
            self._drain(self.load.drains[which], self.slots[which])

    def _wait_for_accumulators(self) -> None:
        """Hold back PEs until enough of their accumulators have been drained for the next set."""
        for filters in self.filter_counts:
            needed = (len(self.drained_sets) + 1) * filters - self.accumulators
            if needed > 0:
                index, slot = divmod(needed - 1, filters)
                free = np.maximum(self.finish, self.drained_sets[index][:, :, slot])
                self.finish = np.where(self.load.filters == filters, free, self.finish)

    def _blocks(self, operators: IntArray) -> None:
        commit, release = self.overheads.block_commit, self.overheads.block_release
        for words, reads, cycles in zip(self.load.words, self.read_cycles, operators, strict=True):
            if len(self.arrivals) >= self.slack:
                self.fetched = max(self.fetched, self.arrivals[-self.slack])
            self.arrival = np.maximum(self.arrival, self.fetched) + words
            self.fetched += reads
            self.arrival = np.maximum(self.arrival, self.fetched)
            if len(self.released) >= self.depth:
                self.arrival = np.maximum(self.arrival, self.released[-self.depth] + words)
            self.finish = np.maximum(self.finish, self.arrival[:, None] + commit) + cycles
            self.arrivals.append(float(self.arrival.max()))
            self.released.append(self.finish.max(axis=1) + release)

    def _drain(self, drains: list[IntArray], slots: list[IntArray]) -> None:
        done = self.finish + self.overheads.set_done
        free = np.zeros((*done.shape, self.accumulators))
        for branch, (pes, slot) in enumerate(zip(drains, slots, strict=True)):
            index = np.arange(len(pes))
            ready = np.maximum(done[branch, pes], self.drained[branch])
            ends = np.maximum.accumulate(ready - index * self.beats) + (index + 1) * self.beats
            free[branch, pes, slot] = ends
            self.drained[branch] = ends[-1]
        self.drained_sets.append(free)


def _turns(pes: IntArray) -> IntArray:
    """Count the earlier entries of the same PE, for every entry."""
    order = np.argsort(pes, kind="stable")
    ranked = np.arange(len(pes)) - np.searchsorted(pes[order], pes[order])
    turns = np.empty_like(ranked)
    turns[order] = ranked
    return turns


def pool_cycles(
    words: int, taps: int, steps: int, fetches: int, overheads: Overheads = DEFAULT_OVERHEADS
) -> int:
    """Predict the cycles of a pooling layer that has its input.

    words: tile words written; taps, steps, fetches: row steps, column steps and window reads for each.
    """
    return words * max(taps, steps, fetches, 1) + overheads.first_word + overheads.pool + overheads.layer_end


def load_cycles(beats: int, config: HardwareConfig, overheads: Overheads = DEFAULT_OVERHEADS) -> int:
    """Predict the cycles until so many beats of the input have arrived."""
    bursts = -(-beats // config.burst_beats)
    return overheads.load_latency + beats + bursts * overheads.burst_gap


def store_cycles(words: int, beats: int, overheads: Overheads = DEFAULT_OVERHEADS) -> int:
    """Predict the cycles of a STORE of so many tile words of `beats` AXI beats each."""
    return overheads.store_latency + words * max(beats, overheads.store_word)
