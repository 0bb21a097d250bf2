"""A branch: window words, PEs and output stage as recurrences over windows, blocks and table entries."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, field, replace

import numpy as np
import numpy.typing as npt

from espalier.arch.config import HardwareConfig
from espalier.estimate import latencies
from espalier.estimate.jobs import Job, Walk, Word
from espalier.estimate.walker import WindowWalker
from espalier.estimate.work import BranchWork, IntArray

_UNIT = 8  # window words; room in the rings is counted in these


@dataclass
class BranchLayer:
    """Where the cycles of a branch's PEs (summed) and of its word writer went in one layer.

    idle: from a PE's last operator of the layer before to the first block of this one.
    """

    operators: int = 0
    nulls: int = 0
    ring_empty: int = 0
    accumulators_full: int = 0
    idle: int = 0
    ring_full: int = 0
    window_wait: int = 0


@dataclass(frozen=True)
class BranchJob:
    """A layer as branch `number` sees it; `work` None: it rests."""

    number: int
    job: Job
    walk: Walk
    work: BranchWork | None
    count: BranchLayer = field(default_factory=BranchLayer)


class Branch:
    """Word writer, PEs and output stage.

    arrivals: cycle at which each window can leave the buffer, in order of the requests. words: for the write
    port, in order. Stages go on as far as what they need is known.
    """

    def __init__(self, index: int, config: HardwareConfig, walker: WindowWalker) -> None:
        self.index, self.config, self.walker = index, config, walker
        self.jobs: list[BranchJob] = []
        self.arrivals: list[int] = []
        self.words: list[Word] = []
        self.commits: list[int] = []  # per block
        self.units: list[int] = [0]  # running sum of the blocks' units of ring space
        self.released: list[int] = []  # per block, its room can be used
        self.sets: list[IntArray] = []  # per set, int64[PEs] end of the last operator
        self.freed: list[list[int]] = [[] for _ in range(config.branch_pes(index))]
        self._oldest = 0  # blocks that must have been released before the newest
        self._step = max(config.output_beats, latencies.START)  # cycles from entry to entry
        self._stages = (self._write(), self._compute(), self._drain())

    def arrive(self, cycle: int) -> None:
        """Note that the next window can leave the buffer from this cycle on."""
        self.arrivals.append(cycle)
        blocks = len(self.commits)
        next(self._stages[0])
        if len(self.commits) != blocks:
            self.resume()

    def resume(self) -> None:
        """Let every stage go on until none can."""
        state = None
        while state != (state := self._state()):
            for stage in self._stages:
                next(stage)

    def _state(self) -> tuple[int, ...]:
        taken = sum(len(own.job.taken) for own in self.jobs[-2:])
        return len(self.walker.leaves), len(self.commits), len(self.released), len(self.sets), taken

    def _write(self) -> Iterator[None]:
        """Word writer: a word a cycle, as windows and ring space allow."""
        index, window, free, time, begun = 0, 0, 0, 0, 0
        leaves, arrivals, released = self.walker.leaves, self.arrivals, self.released
        while True:
            while len(self.jobs) <= index:
                yield
            own = self.jobs[index]
            index += 1
            taken = max(own.job.offer + latencies.PENDING, free)
            own.job.taken.append(taken)
            free = taken + 1
            if own.work is None:
                continue
            time = max(time, taken + latencies.GO + latencies.WRITE - 1)
            block_words = own.job.work.fields["block_words"]
            segments = _segments(own.walk.plan.sizes, own.walk.channels, block_words)
            count = own.count
            before = time
            for _ in range(len(own.work.tile_y) * own.walk.passes):
                for window_segments in segments:
                    while len(arrivals) <= window:
                        yield
                    arrival = arrivals[window]
                    window += 1
                    for words, units, ends, first in window_segments:
                        before = time
                        time += 1
                        if first and arrival > time:
                            count.window_wait += arrival - time
                            time = arrival
                        if units:
                            self.units.append(self.units[-1] + units)
                            needed = self._needed()
                            while len(released) < needed:
                                yield
                            room = max(released[needed - 1], begun) if needed else begun
                            if room > time:
                                count.ring_full += room - time
                                time = room
                            begun = time + latencies.BLOCK_GAP
                        if first:
                            leaves.append(time + latencies.TAKEN)
                        if words > 1:
                            time += words - 1
                            before = time - 1
                        if ends:
                            self.commits.append(time + latencies.COMMIT)
            # The walk is over when the last word comes up to wait, which is when the one before leaves.
            free = before + 1

    def _needed(self) -> int:
        """Blocks that must have been released so that the newest one has room in the rings."""
        limit = self.units[-1] - self.config.ring_words // _UNIT
        while self.units[self._oldest] < limit:
            self._oldest += 1
        return self._oldest

    def _compute(self) -> Iterator[None]:
        """PEs: block by block, all of the branch at once."""
        finish = np.zeros(len(self.freed), np.int64)
        wanted = np.zeros(len(self.freed), np.int64)
        index, block = 0, 0
        commits, released = self.commits, self.released
        while True:
            while len(self.jobs) <= index:
                yield
            own = self.jobs[index]
            index += 1
            if own.work is None:
                continue
            count, work = own.count, own.work
            empty, full = np.zeros_like(finish), 0
            while len(commits) <= block:
                yield
            # Waiting for the layer's first block does not count as waiting for the ring.
            begun = np.maximum(finish + latencies.LAYER, commits[block])
            count.idle = int((begun - finish).sum())
            finish = begun
            for _ in range(len(work.tile_y)):
                for operators in work.operators:
                    wanted += work.filters
                    while (free := self._accumulators_free(wanted)) is None:
                        yield
                    while len(commits) <= block:
                        yield
                    ready = np.maximum(finish, commits[block])
                    full += int(np.maximum(free - ready, 0).sum())
                    empty += ready - finish
                    finish = np.maximum(ready, free) + operators[0]
                    released.append(int(finish.max()) + latencies.RELEASE)
                    block += 1
                    for cycles in operators[1:]:
                        while len(commits) <= block:
                            yield
                        ready = np.maximum(finish, commits[block])
                        empty += ready
                        empty -= finish
                        finish = ready + cycles
                        released.append(int(finish.max()) + latencies.RELEASE)
                        block += 1
                    self.sets.append(finish)
            tiles = len(work.tile_y)
            count.operators = int(work.operators.sum() - work.nulls.sum()) * tiles
            count.nulls = int(work.nulls.sum()) * tiles
            count.ring_empty, count.accumulators_full = int(empty.sum()), full

    def _accumulators_free(self, wanted: IntArray) -> IntArray | None:
        """Cycle from which each PE has accumulators for a set, int64[PEs]; None if that is not known yet.

        wanted: int64[PEs], accumulators of this and all sets before.
        """
        free = np.zeros_like(wanted)
        for pe, needed in enumerate((wanted - self.config.accumulators).tolist()):
            if needed > 0:
                if len(self.freed[pe]) < needed:
                    return None
                free[pe] = self.freed[pe][needed - 1]
        return free

    def _drain(self) -> Iterator[None]:
        """Output stage: entry by entry, all of a set at once."""
        index, which, free = 0, 0, 0
        while True:
            while len(self.jobs) <= index:
                yield
            own = self.jobs[index]
            job = own.job
            index += 1
            job.outputs_wait.append(max(job.offer + latencies.PENDING, free))
            while job.outputs_take is None:
                yield
            job.taken.append(job.outputs_take)
            free = job.outputs_take + 1
            if own.work is None:
                continue
            go = job.outputs_take + latencies.GO
            work = own.work
            residual = bool(job.work.fields["residual"])
            # An entry can be taken from `free` on, its beats start from `start` on.
            free, start = go + latencies.TABLE, go + (latencies.RESIDUAL if residual else 0)
            plans = [_DrainPlan.of(work, entries, self._step, len(self.freed)) for entries in work.passes]
            tiles = list(zip(work.tile_y.tolist(), work.tile_x.tolist(), strict=True))
            for number, tile in enumerate(tiles):
                for plan in plans:
                    while len(self.sets) <= which:
                        yield
                    done = self.sets[which]
                    which += 1
                    last = number == len(tiles) - 1 and plan is plans[-1]
                    free = self._drain_set(
                        job, plan, done, free, start, (tile, number == len(tiles) - 1, last)
                    )
                    start = free + self._step
            free = self.words[-1].ready + latencies.LAST_WORD

    def _drain_set(
        self,
        job: Job,
        plan: _DrainPlan,
        done: IntArray,
        free: int,
        start: int,
        place: tuple[tuple[int, int], bool, bool],
    ) -> int:
        """Drain one set; returns the start of its last entry's beats.

        free: cycle from which its first entry can be taken; start: from which its beats can start. place: tile,
        whether it is the branch's last, whether the set is.
        """
        finished = done[plan.pe] + latencies.SET_DONE
        starts = np.maximum(finished, free) + latencies.START
        starts[0] = max(int(starts[0]), start)
        starts = np.maximum.accumulate(starts - plan.offset) + plan.offset
        # The next entry is taken as soon as the one before has begun to go out.
        taken = np.maximum(finished, np.append(free, starts[:-1]))
        times = (taken[plan.by_pe] + latencies.ASK + latencies.FREED).tolist()
        for freed, (first, stop) in zip(self.freed, plan.of_pe, strict=True):
            freed.extend(times[first:stop])
        ready = (starts[plan.last] + (self.config.output_beats + latencies.WORD)).tolist()
        tile, final, last = place
        words = [
            Word(cycle, job, tile, channel, final, False)
            for cycle, channel in zip(ready, plan.channels, strict=True)
        ]
        if last:
            words[-1] = replace(words[-1], last=True)
        self.words += words
        return int(starts[-1])


@dataclass(frozen=True)
class _DrainPlan:
    """Entries of one pass. by_pe: their numbers sorted by PE, of_pe: range in it of every PE."""

    pe: IntArray
    offset: IntArray
    by_pe: IntArray
    of_pe: list[tuple[int, int]]
    last: npt.NDArray[np.int64]
    channels: list[int]

    @classmethod
    def of(cls, work: BranchWork, entries: slice, step: int, pes: int) -> _DrainPlan:
        pe = work.pe[entries]
        last = np.flatnonzero(work.last[entries])
        bounds = np.concatenate(([0], np.cumsum(np.bincount(pe, minlength=pes)))).tolist()
        return cls(
            pe,
            np.arange(len(pe)) * step,
            np.argsort(pe, kind="stable"),
            list(zip(bounds[:-1], bounds[1:], strict=True)),
            last,
            work.channel[entries][last].tolist(),
        )


_Segment = tuple[int, int, bool, bool]  # words, ring units of a block that starts, whether it ends, first


def _segments(sizes: tuple[int, ...], channels: int, block_words: int) -> list[list[_Segment]]:
    """Words of one set by window, cut where blocks start and end."""
    total = sum(sizes) * channels
    result, position = [], 0
    for _ in range(channels):
        for size in sizes:
            stop, segments, first = position + size, [], True
            while position < stop:
                inside = position % block_words
                words = min(stop - position, block_words - inside)
                units = block_words // _UNIT if inside == 0 else 0
                position += words
                ends = position % block_words == 0 or position == total
                segments.append((words, units, ends, first))
                first = False
            result.append(segments)
    return result
