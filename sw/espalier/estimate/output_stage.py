"""The output stage of a branch: entry by entry, all of a set at once."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, replace
from itertools import pairwise

import numpy as np

from espalier.estimate import latencies
from espalier.estimate.branch_state import BranchJob, BranchState
from espalier.estimate.jobs import Word
from espalier.estimate.work import BranchWork, IntArray


@dataclass(frozen=True)
class _Plan:
    """Entries of one pass. offset: int64[entries], cycles after the first at the earliest.

    by_pe: their numbers sorted by PE, of_pe: range in it of every PE. last: numbers of those that complete a
    word, and the words' channels.
    """

    pe: IntArray
    offset: IntArray
    by_pe: IntArray
    of_pe: list[tuple[int, int]]
    last: IntArray
    channels: list[int]

    @classmethod
    def of(cls, work: BranchWork, entries: slice, step: int, pes: int) -> _Plan:
        pe = work.pe[entries]
        last = np.flatnonzero(work.last[entries])
        bounds = np.concatenate(([0], np.cumsum(np.bincount(pe, minlength=pes)))).tolist()
        return cls(
            pe,
            np.arange(len(pe)) * step,
            np.argsort(pe, kind="stable"),
            list(pairwise(bounds)),
            last,
            work.channel[entries][last].tolist(),
        )


class OutputStage:
    """Goes on as far as sets are finished and the layer has been taken."""

    def __init__(self, state: BranchState, beats: int) -> None:
        self.state = state
        self._beats = beats
        self._step = max(beats, latencies.START)  # cycles from entry to entry
        self._entry_free = 0  # from when on the next entry can be taken
        self._beats_free = 0  # from when on its beats can start
        self._residual = 0  # from when on residual tiles are there

    def steps(self) -> Iterator[None]:
        """Yield whenever something is missing."""
        state = self.state
        index, which, free = 0, 0, 0
        while True:
            while len(state.jobs) <= index:
                yield
            own = state.jobs[index]
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
            self._entry_free, self._residual = go + latencies.TABLE, 0
            if job.work.fields["residual"]:
                self._residual = go + latencies.RESIDUAL
            plans = [_Plan.of(own.work, entries, self._step, state.pes) for entries in own.work.passes]
            for tile in range(len(own.work.tile_y)):
                for plan in plans:
                    while len(state.sets) <= which:
                        yield
                    self._set(own, own.work, plan, state.sets[which], tile)
                    which += 1
            state.words[-1] = replace(state.words[-1], last=True)
            free = state.words[-1].ready + latencies.LAST_WORD

    def _set(self, own: BranchJob, work: BranchWork, plan: _Plan, done: IntArray, tile: int) -> None:
        """Drain a set; done: int64[PEs], end of its operators."""
        finished = done[plan.pe] + latencies.SET_DONE
        starts = np.maximum(finished, self._entry_free) + latencies.START
        starts[0] = max(int(starts[0]), self._beats_free)
        whole = plan.last[:1]
        starts[whole] = np.maximum(starts[whole], self._residual)
        starts = np.maximum.accumulate(starts - plan.offset) + plan.offset
        # An entry is taken as soon as the one before has begun to go out.
        taken = np.maximum(finished, np.append(self._entry_free, starts[:-1]))
        times = (taken[plan.by_pe] + latencies.ASK + latencies.FREED).tolist()
        for freed, (first, stop) in zip(self.state.freed, plan.of_pe, strict=True):
            freed.extend(times[first:stop])
        self._entry_free = int(starts[-1])
        self._beats_free = self._entry_free + self._step
        ready = (starts[plan.last] + (self._beats + latencies.WORD)).tolist()
        place = int(work.tile_y[tile]), int(work.tile_x[tile])
        final = tile == len(work.tile_y) - 1
        self.state.words += [
            Word(cycle, own.job, place, channel, final, False)
            for cycle, channel in zip(ready, plan.channels, strict=True)
        ]
