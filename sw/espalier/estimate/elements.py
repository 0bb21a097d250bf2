"""The PEs of a branch, all at once: block by block, a run of operators each."""

from __future__ import annotations

from collections.abc import Iterator

import numpy as np

from espalier.estimate import latencies
from espalier.estimate.branch_state import Block, BranchJob, BranchState
from espalier.estimate.work import BranchWork, IntArray


class Elements:
    """Go on as far as blocks are committed and accumulators are free."""

    def __init__(self, state: BranchState, accumulators: int) -> None:
        self.state = state
        self._accumulators = accumulators
        self._finish = np.zeros(state.pes, np.int64)  # end of the latest operators
        self._wanted = np.zeros(state.pes, np.int64)  # accumulators of all sets begun

    def steps(self) -> Iterator[None]:
        """Yield whenever something is missing."""
        index, block = 0, 0
        commits, released, blocks = self.state.commits, self.state.released, self.state.blocks
        while True:
            while len(self.state.jobs) <= index:
                yield
            own = self.state.jobs[index]
            index += 1
            if own.work is None:
                continue
            while len(commits) <= block:
                yield
            self._begin(own, commits[block])
            empty, full = np.zeros(self.state.pes, np.int64), np.zeros(self.state.pes, np.int64)
            loop = own.work.operators.reshape(-1, self.state.pes)
            offsets = (loop.cumsum(axis=0) - loop).tolist()
            for _ in range(len(own.work.tile_y)):
                for which, operators in enumerate(own.work.operators):
                    self._wanted += own.work.filters
                    while (free := self._accumulators_free()) is None:
                        self.state.short = True
                        yield
                    self.state.short = False
                    finish = self._finish
                    for number, cycles in enumerate(operators):
                        while len(commits) <= block:
                            yield
                        ready = np.maximum(finish, commits[block])
                        block += 1
                        empty += ready
                        empty -= finish
                        if number == 0:
                            full += np.maximum(free - ready, 0)
                            ready = np.maximum(ready, free)
                        finish = ready + cycles
                        released.append(int(finish.max()) + latencies.RELEASE)
                        offset = offsets[which * len(operators) + number]
                        blocks.append(Block(own.work, ready.tolist(), finish.tolist(), offset, number == 0))
                    self._finish = finish
                    self.state.sets.append(finish)
            _count(own, own.work, empty, full)

    def _begin(self, own: BranchJob, first: int) -> None:
        """Wait for a layer's first block, which does not count as an empty ring."""
        begun = np.maximum(self._finish + latencies.LAYER, first)
        own.count.idle = int((begun - self._finish).sum())
        self._finish = begun

    def _accumulators_free(self) -> IntArray | None:
        """Cycle from which each PE has accumulators for its set, int64[PEs]; None if not known yet."""
        free = np.zeros(self.state.pes, np.int64)
        for pe, needed in enumerate((self._wanted - self._accumulators).tolist()):
            if needed > 0:
                freed = self.state.freed[pe]
                if len(freed) < needed:
                    return None
                free[pe] = freed[needed - 1]
        return free


def _count(own: BranchJob, work: BranchWork, empty: IntArray, full: IntArray) -> None:
    tiles = len(work.tile_y)
    own.count.operators = int(work.operators.sum() - work.nulls.sum()) * tiles
    own.count.nulls = int(work.nulls.sum()) * tiles
    own.count.ring_empty, own.count.accumulators_full = int(empty.sum()), int(full.sum())
