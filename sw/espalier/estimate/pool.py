"""The pool unit as a recurrence over windows and steps."""

from __future__ import annotations

from collections.abc import Iterator

import numpy as np

from espalier.arch.config import HardwareConfig
from espalier.arch.program import POOL_BRANCH
from espalier.backend.decode import tile_walk
from espalier.estimate import latencies
from espalier.estimate.jobs import Job, Progress, Waiting, Walk, WindowPlan, Word, bank_of
from espalier.estimate.walker import WindowWalker

_AVERAGE_STEPS = 2  # in which the rows of a tile are added up
_SUM_FAN_IN = 4  # of a level of the adder tree of averages


class PoolUnit:
    """Rows of windows, columns of groups, words; the next layer is taken when all words are in the memory.

    arrivals: cycle at which each window can leave the buffer. words: for the write port, in order.
    """

    def __init__(self, config: HardwareConfig, walker: WindowWalker, progress: Progress) -> None:
        """`progress`: its own, on the scoreboard."""
        self.config, self.walker, self.progress = config, walker, progress
        self.jobs: list[Job] = []
        self.arrivals: list[int] = []
        self.words: list[Waiting] = []
        self.turns: list[int] = []
        self._window = 0
        self._steps = self._work()

    def arrive(self, cycle: int) -> None:
        """Note that the next window can leave the buffer from this cycle on."""
        self.arrivals.append(cycle)
        self.resume()

    def turn(self, cycle: int) -> None:
        """Note that a word had its turn at the write port."""
        self.turns.append(cycle)
        self.resume()

    def resume(self) -> None:
        """Go on as far as windows are there and words have moved on."""
        next(self._steps)

    def _work(self) -> Iterator[None]:
        index, free = 0, 0
        while True:
            while len(self.jobs) <= index:
                yield
            job = self.jobs[index]
            index += 1
            fields = job.work.branch_fields[POOL_BRANCH]
            tile_y, tile_x = tile_walk(fields, job.work.fields["out_tiles_x"])
            self.progress.begin(job.work.fields["layer"], bool(job.work.fields["ordered"]), False)
            offer = max(job.offer, free - latencies.PENDING)
            # The unit's walker does not see the column steps.
            plan = WindowPlan.of([pattern for pattern in job.work.patterns if pattern["fetch"]])
            mask = 1 << self.config.branches
            self.walker.walks.append(Walk(job, offer, tile_y, tile_x, fields["channels"], 1, mask, plan))
            self.walker.resume()
            tiles = list(zip(tile_y.tolist(), tile_x.tolist(), strict=True))
            channels = fields["channels"]
            words = self._averages(job) if job.work.fields["reduce"] else self._maxima(job)
            for number in range(len(tiles) * channels):
                while (cycle := next(words)) is None:
                    yield
                which, channel = divmod(number, channels)
                final = which == len(tiles) - 1
                last = final and channel == channels - 1
                tile = tiles[which]
                self.words.append((cycle, Word(job, tile, bank_of(tile), channel, final, last)))
            while job.end is None:
                yield
            free = job.end + latencies.POOL_ENDED

    def _maxima(self, job: Job) -> Iterator[int | None]:
        """Cycle of every word, None while a window is missing."""
        groups = _groups(job.work.patterns)
        arrivals, leaves = self.arrivals, self.walker.leaves
        row = column = moved = out = taken = 0  # latest row and column step; cycles of what came out
        while True:
            for taps_of, columns in groups:
                first = True
                for taps in taps_of:
                    while len(arrivals) <= self._window:
                        yield None
                    row = max(row + 1, arrivals[self._window])
                    if first:
                        row = max(row, moved - 1)
                        first = False
                    row += taps - 1
                    self._window += 1
                    leaves.append(row)
                moved = max(row + latencies.POOL_GROUP, taken)
                column = max(column + 1, moved + latencies.POOL_COLUMN)
                if columns > 1:
                    # The word before must be out when the second column comes.
                    column = max(column + 1, out) + columns - 2
                taken = column
            while (room := self._room(out)) is None:
                yield None
            out = max(column + latencies.POOL_TILE, room)
            yield out + latencies.POOL_WORD

    def _room(self, out: int) -> int | None:
        """Cycle from which the next word can be put out, after one at `out`; None if not known yet."""
        count = len(self.words)
        if count < 2:
            return out + latencies.POOL_WORD_GAP if count else 0
        if len(self.turns) < count - 1:
            return None
        return max(out + latencies.POOL_WORD_GAP, self.turns[count - 2] + 1)

    def _averages(self, job: Job) -> Iterator[int | None]:
        tiles = len(job.work.patterns)
        pixels = -(-self.config.tile_size // _AVERAGE_STEPS) * self.config.tile_size
        levels = int(np.ceil(np.log(pixels) / np.log(_SUM_FAN_IN) - 1e-9))
        arrivals, leaves = self.arrivals, self.walker.leaves
        row = out = 0
        while True:
            for _ in range(tiles):
                while len(arrivals) <= self._window:
                    yield None
                row = max(row + 1, arrivals[self._window]) + _AVERAGE_STEPS - 1
                self._window += 1
                leaves.append(row)
            while (room := self._room(out)) is None:
                yield None
            out = max(row + levels + latencies.POOL_AVERAGE, room)
            yield out + latencies.POOL_WORD


def _groups(patterns: list[dict[str, int]]) -> list[tuple[list[int], int]]:
    """Taps of every window and number of column steps, for every group of one channel."""
    groups: list[tuple[list[int], int]] = []
    for index, pattern in enumerate(patterns):
        if not pattern["fetch"]:
            taps, columns = groups[-1]
            groups[-1] = taps, columns + 1
        elif index and patterns[index - 1]["fetch"]:
            groups[-1][0].append(pattern["taps"].bit_count())
        else:
            groups.append(([pattern["taps"].bit_count()], 0))
    return groups
