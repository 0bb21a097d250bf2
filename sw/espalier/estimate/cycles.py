"""Cycle model for the compiler's choices: what a layer costs between others, by blocks of window words."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
import numpy.typing as npt

from espalier.arch.config import HardwareConfig
from espalier.estimate.overheads import DEFAULT_OVERHEADS, Overheads

IntArray = npt.NDArray[np.int64]
FloatArray = npt.NDArray[np.float64]

# Blocks that are simulated one by one; what further sets take follows from the second half of these.
_BLOCKS_SIMULATED = 120
_DRAIN_WEIGHT = 0.01  # of entries that need no time of their own


@dataclass(frozen=True)
class ConvLoad:
    """What the branches of one tile group have to do for one tile.

    operators: int64[passes, blocks, branches, PEs]; words: int64[blocks]; filters: int64[branches, PEs],
    accumulators a set needs, each of which is an entry of the table. windows: reads of the feature memory per
    tile by this tile group. sharing: tiles that all groups together take while this one takes one. tiles: of
    this group. block_words: of a full block.
    """

    operators: IntArray
    words: IntArray
    filters: IntArray
    windows: int
    sharing: float
    tiles: int
    block_words: int


def conv_cycles(
    loads: Sequence[ConvLoad], config: HardwareConfig, overheads: Overheads = DEFAULT_OVERHEADS
) -> FloatArray:
    """Predict what convolutions take between others, from the first words to the last operators: float64[N].

    Fill and drain are not counted, because the layers before and behind work at that time. All at once, which
    is much faster than one by one; the loads have the same words.
    """
    return _Batch(loads, config, overheads).run()


def least_cycles(load: ConvLoad, config: HardwareConfig) -> float:
    """Cycles that a convolution takes at least, however well its operators are spread over the PEs."""
    passes = len(load.operators)
    drain = float(load.filters.sum(axis=1).max()) * passes * config.output_beats
    held = load.filters.max() * passes * load.tiles <= config.accumulators
    needs = (
        float(load.operators.sum()) / np.count_nonzero(load.filters),
        float(load.words.sum()) * passes,
        load.windows * load.sharing,
        0.0 if held else drain,
    )
    return load.tiles * max(needs)


class _Batch:
    """Clocks of windows, words, PEs and output stages of many loads, in cycles: [PEs, loads, branches].

    Windows are read for all branches of a group at once and wait in each branch's buffer, so that branches
    may drift apart by its depth; PEs of a branch may drift apart by the depth of their rings.
    """

    def __init__(self, loads: Sequence[ConvLoad], config: HardwareConfig, overheads: Overheads) -> None:
        self.config, self.overheads = config, overheads
        self.words = loads[0].words
        self.blocks = len(self.words)
        self.depth = config.ring_words // loads[0].block_words
        self.passes = np.array([len(load.operators) for load in loads])
        self.sets = self.passes * np.array([load.tiles for load in loads])
        branches = max(load.operators.shape[2] for load in loads)
        pes = max(load.operators.shape[3] for load in loads)
        shape = (pes, len(loads), branches)
        self.operators = [np.zeros((len(load.operators), self.blocks, pes, branches)) for load in loads]
        self.filters = np.zeros(shape)
        for index, load in enumerate(loads):
            own = load.operators
            self.operators[index][:, :, : own.shape[3], : own.shape[2]] = own.swapaxes(2, 3)
            self.filters[: own.shape[3], index, : own.shape[2]] = load.filters.T
        words = float(self.words.sum())
        windows = np.array([load.windows / len(load.operators) for load in loads])  # of a set
        shared = windows * np.array([load.sharing for load in loads])
        own_pace = windows * overheads.window_latency / config.window_fifo_depth
        self.read = np.maximum(shared, own_pace) / words  # cycles per word
        buffered = config.window_fifo_depth * words / windows
        self.slack = np.maximum(1, buffered // loads[0].block_words).astype(np.int64)
        self.enough = np.maximum(2 * self.passes, -(-_BLOCKS_SIMULATED // self.blocks))

    def run(self) -> FloatArray:
        """Simulate, and extrapolate to all sets."""
        count = int(np.minimum(self.sets, self.enough).max())
        ends = self._simulate(count)  # [sets, loads]
        result = np.zeros(len(self.passes))
        for index, (sets, passes) in enumerate(zip(self.sets.tolist(), self.passes.tolist(), strict=True)):
            last = min(count // passes * passes, sets)
            half = last // 2 // passes * passes
            end = ends[last - 1, index]
            if sets > last:
                begin = ends[half - 1, index] if half else 0.0
                end += (sets - last) * (end - begin) / (last - half)
            result[index] = end
        # What accumulators can hold is drained while other layers compute.
        held = (self.filters.max(axis=(0, 2)) * self.sets) <= self.config.accumulators
        drain = self.filters.sum(axis=0).max(axis=1) * self.sets * self.config.output_beats
        needed: FloatArray = np.maximum(result, np.where(held, 0.0, drain)) + _DRAIN_WEIGHT * drain
        return needed

    def _simulate(self, count: int) -> FloatArray:
        """End of the operators of every set: float64[sets, loads]."""
        _, loads, branches = self.filters.shape
        commit, release = self.overheads.block_commit, self.overheads.block_release
        steps = count * self.blocks
        every = np.arange(loads)
        arrived = np.zeros((steps + 1, loads))  # by number of the block, 0: before the first
        released = np.zeros((steps + self.depth, loads, branches))
        fetched, arrival, read = np.zeros((loads, 1)), np.zeros((loads, branches)), self.read[:, None]
        finish = np.zeros(self.filters.shape)
        exists = self.filters > 0
        starts, stops = np.zeros((count, loads, branches)), np.zeros((count, loads, branches))
        entries = self.filters.sum(axis=0) * self.config.output_beats
        drained = np.zeros((loads, branches))
        ends = np.zeros((count, loads))
        for number in range(count):
            self._wait(number, finish, starts, stops)
            operators = np.stack([own[number % len(own)] for own in self.operators], axis=2)
            for block in range(self.blocks):
                step = number * self.blocks + block
                words = float(self.words[block])
                buffered = arrived[np.maximum(step - self.slack + 1, 0), every]
                np.maximum(fetched, buffered[:, None], out=fetched)
                np.maximum(arrival, fetched, out=arrival)
                np.maximum(arrival, released[step], out=arrival)
                arrival += words
                fetched += read * words
                np.maximum(arrival, fetched, out=arrival)
                np.maximum(finish, arrival + commit, out=finish)
                finish += operators[block]
                np.maximum.reduce(arrival, axis=1, out=arrived[step + 1])
                latest = np.maximum.reduce(finish, axis=0, out=released[step + self.depth])
                latest += release
            done = np.where(exists, finish, 0).max(axis=0)
            ends[number] = done.max(axis=1)
            starts[number] = np.maximum(done + self.overheads.set_done, drained)
            drained = stops[number] = starts[number] + entries
        return ends

    def _wait(self, number: int, finish: FloatArray, starts: FloatArray, stops: FloatArray) -> None:
        """Hold back PEs until enough of their accumulators have been drained for the next set."""
        needed = (number + 1) * self.filters - self.config.accumulators
        if needed.max() <= 0:
            return
        filters = np.maximum(self.filters, 1)
        which = np.maximum(np.ceil(needed / filters).astype(np.int64) - 1, 0)
        share = needed / filters - which
        load, branch = np.indices(finish.shape)[1:]
        start, stop = starts[which, load, branch], stops[which, load, branch]
        np.maximum(finish, np.where(needed > 0, start + share * (stop - start), 0), out=finish)
