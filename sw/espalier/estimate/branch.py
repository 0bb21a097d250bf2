"""A branch: word writer, PEs and output stage, each of which goes on as far as what it needs is known."""

from __future__ import annotations

from espalier.arch.config import HardwareConfig
from espalier.estimate import latencies
from espalier.estimate.branch_state import BranchState
from espalier.estimate.elements import Elements
from espalier.estimate.loader import Loader
from espalier.estimate.output_stage import OutputStage
from espalier.estimate.walker import WindowWalker
from espalier.estimate.word_writer import WordWriter


class Branch:
    """Branch `index` of a configuration; its queues are in `state`.

    moved: more than words may have come, cleared by whoever has seen to it.
    """

    def __init__(self, index: int, config: HardwareConfig, walker: WindowWalker, loader: Loader) -> None:
        self.index, self.walker = index, walker
        self.state = BranchState(config.branch_pes(index), walker.leaves)
        self.words = self.state.words
        self.moved = True
        self._writer = WordWriter(self.state, config.ring_words).steps()
        self._elements = Elements(index, self.state, config.accumulators, loader).steps()
        self._output_stage = OutputStage(self.state, config.output_beats)
        self._output = self._output_stage.steps()

    def arrive(self, cycle: int) -> None:
        """Note that the next window can leave the buffer from this cycle on."""
        self.state.arrivals.append(cycle)
        self.state.now = cycle - latencies.WINDOW
        blocks = len(self.state.commits)
        next(self._writer)
        if len(self.state.commits) != blocks:
            self.resume()

    def turn(self, cycle: int) -> None:
        """Note that a word had its turn at the write port."""
        self.state.turns.append(cycle)
        self._output_stage.settle()
        if self.state.wants_turn:
            self.now(cycle)

    def tile(self, cycle: int) -> None:
        """Note that a residual tile was read."""
        self.state.tiles_read.append(cycle)
        if self.state.wants_tile:
            self.now(cycle)

    def now(self, cycle: int) -> None:
        """Let the output stage go on, which knows all that happened before `cycle`."""
        self.state.now = max(self.state.now, cycle)
        self.moved = True
        next(self._output)
        if self.state.begun is not None:
            self.resume()

    def resume(self) -> None:
        """Let every stage go on until none can."""
        state = self.state
        self.moved = True
        blocks = drained = -1
        while blocks != len(state.commits) or (state.begun is not None and drained != state.drained):
            blocks, drained = len(state.commits), state.drained
            next(self._elements)
            next(self._output)
            next(self._writer)
