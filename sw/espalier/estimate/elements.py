"""The PEs of a branch, all at once: block by block, a run of operators each."""

from __future__ import annotations

from collections import deque
from collections.abc import Iterator
from operator import add, sub

from espalier.estimate import latencies
from espalier.estimate.branch_state import BegunSet, Block, BranchJob, BranchState
from espalier.estimate.loader import Loader
from espalier.estimate.work import BranchWork


class Elements:
    """Go on as far as blocks are committed, accumulators are free and streams are there."""

    def __init__(self, number: int, state: BranchState, accumulators: int, loader: Loader) -> None:
        """Be those of branch `number`."""
        self.number, self.state, self.loader = number, state, loader
        self._accumulators = accumulators
        self._finish = [0] * state.pes  # end of the latest operators
        self._wanted = [0] * state.pes  # accumulators of all sets begun

    def steps(self) -> Iterator[None]:
        """Yield whenever something is missing."""
        index, block, loaded = 0, 0, self.loader.loaded
        commits, released, blocks = self.state.commits, self.state.released, self.state.blocks
        while True:
            while len(self.state.jobs) <= index:
                yield
            own = self.state.jobs[index]
            index += 1
            batches = own.job.work.batches
            if own.work is None:
                for batch in batches if not own.job.work.keeps else ():
                    while len(loaded) <= batch:
                        yield
                    self.loader.leave(self.number, max(loaded[batch] + latencies.HEADER, *self._finish))
                continue
            while len(commits) <= block:
                yield
            while batches and len(loaded) <= batches.start:
                yield
            self._begin(own, commits[block], loaded[batches.start] if batches else 0)
            first_block, cuts, batch = block, deque(own.work.cuts), batches.start
            empty = full = 0
            filters = own.work.filters.tolist()
            loop = own.work.operators.reshape(-1, self.state.pes)
            offsets = (loop.cumsum(axis=0) - loop).tolist()
            sets = own.work.operators.tolist()
            for _ in range(len(own.work.tile_y)):
                for which, operators in enumerate(sets):
                    self._wanted = [wanted + more for wanted, more in zip(self._wanted, filters, strict=True)]
                    needed = [wanted - self._accumulators for wanted in self._wanted]
                    while (free := self._accumulators_free(needed)) is None:
                        if self.state.begun is None:
                            first = which * len(operators)
                            offset = offsets[first : first + len(operators)]
                            self.state.begun = BegunSet(
                                own.work, block, operators, offset, self._finish, needed
                            )
                        yield
                    self.state.begun = None
                    finish = self._finish
                    for number, cycles in enumerate(operators):
                        while len(commits) <= block:
                            yield
                        commit = commits[block]
                        block += 1
                        ready = [end if end > commit else commit for end in finish]
                        empty += sum(ready) - sum(finish)
                        if number == 0:
                            late = list(map(max, ready, free))
                            full += sum(late) - sum(ready)
                            ready = late
                        offset = offsets[which * len(operators) + number]
                        start, done = ready, [0] * self.state.pes
                        while cuts and cuts[0][0] == block - 1 - first_block:
                            before = cuts.popleft()[1]
                            reached = list(map(add, start, map(sub, before, done)))
                            batch += 1
                            self._leave(batch, max(reached))
                            while len(loaded) <= batch:
                                yield
                            begun = list(map(add, offset, done))
                            blocks.append(Block(own.work, start, reached, begun, number == 0))
                            begin = loaded[batch] + latencies.LOADED
                            start, done = [max(at, begin) for at in reached], before
                        finish = list(map(add, start, map(sub, cycles, done)))
                        released.append(max(finish) + latencies.RELEASE)
                        begun = list(map(add, offset, done))
                        blocks.append(Block(own.work, start, finish, begun, number == 0))
                    self._finish = finish
                    self.state.sets.append(finish)
            if batches and not own.job.work.keeps:
                if own.job.work.fields["more"]:
                    self._leave(batches.stop, max(self._finish))
                else:
                    self.loader.leave(self.number, max(self._finish))
            _count(own, own.work, empty, full)

    def _leave(self, following: int, end: int) -> None:
        """Leave a part that is read once, whose last words end so; the next part comes with `following`."""
        loaded = self.loader.loaded
        there = len(loaded) > following and loaded[following] < end - latencies.READ_AHEAD
        self.loader.leave(self.number, end - (latencies.READ_AHEAD if there else latencies.READ_LAST))

    def _begin(self, own: BranchJob, first: int, loaded: int) -> None:
        """Wait for a layer's first block and its streams, which does not count as an empty ring."""
        start = max(first, loaded + latencies.LOADED) if loaded else first
        begun = [max(end + latencies.LAYER, start) for end in self._finish]
        own.count.idle = sum(begun) - sum(self._finish)
        self._finish = begun

    def _accumulators_free(self, needed: list[int]) -> list[int] | None:
        """Cycle from which each PE has accumulators for its set; None if not known yet."""
        free = [0] * self.state.pes
        for pe, number in enumerate(needed):
            if number > 0:
                freed = self.state.freed[pe]
                if len(freed) < number:
                    return None
                free[pe] = freed[number - 1]
        return free


def _count(own: BranchJob, work: BranchWork, empty: int, full: int) -> None:
    tiles = len(work.tile_y)
    own.count.operators = int(work.operators.sum() - work.nulls.sum()) * tiles
    own.count.nulls = int(work.nulls.sum()) * tiles
    own.count.ring_empty, own.count.accumulators_full = empty, full
