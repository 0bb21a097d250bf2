"""The word writer of a branch: a word a cycle, as windows and ring space allow."""

from __future__ import annotations

from collections.abc import Iterator

from espalier.estimate import latencies
from espalier.estimate.branch_state import BranchJob, BranchState

_UNIT = 8  # window words; room in the rings is counted in these

_Segment = tuple[int, int, bool, bool]  # words, ring units of a block that starts, whether it ends, first


class WordWriter:
    """Goes on as far as windows have arrived and blocks have been released."""

    def __init__(self, state: BranchState, ring_words: int) -> None:
        self.state = state
        self._ring_units = ring_words // _UNIT
        self._units = [0]  # of all blocks begun, running sum
        self._oldest = 0  # blocks that must have been released before the newest can begin
        self._time = 0  # the latest word left
        self._before = 0  # the one before
        self._begun = 0  # from when on another block can begin

    def steps(self) -> Iterator[None]:
        """Yield whenever something is missing."""
        index, window, free = 0, 0, 0
        state = self.state
        while True:
            while len(state.jobs) <= index:
                yield
            own = state.jobs[index]
            index += 1
            taken = max(own.job.offer + latencies.PENDING, free)
            own.job.taken.append(taken)
            free = taken + 1
            if own.work is None:
                continue
            self._time = max(self._time, taken + latencies.GO + latencies.WRITE - 1)
            segments = _segments(own.walk.plan.sizes, own.walk.channels, own.job.work.fields["block_words"])
            for _ in range(len(own.work.tile_y) * own.walk.passes):
                for window_segments in segments:
                    while len(state.arrivals) <= window:
                        yield
                    arrival = state.arrivals[window]
                    window += 1
                    for segment in window_segments:
                        if segment[1]:
                            self._needed(segment[1])
                            while len(state.released) < self._oldest:
                                yield
                        self._write(own, segment, arrival)
            # The walk is over when the last word comes up to wait, which is when the one before leaves.
            free = self._before + 1

    def _needed(self, units: int) -> None:
        """Find the block that must have been released for a block of so many units."""
        self._units.append(self._units[-1] + units)
        limit = self._units[-1] - self._ring_units
        while self._units[self._oldest] < limit:
            self._oldest += 1

    def _write(self, own: BranchJob, segment: _Segment, arrival: int) -> None:
        """Write the words of a segment, the first of which may have to wait."""
        words, units, ends, first = segment
        state = self.state
        self._before = self._time
        time = self._time + 1
        if first and arrival > time:
            own.count.window_wait += arrival - time
            time = arrival
        if units:
            room = self._begun
            if self._oldest:
                room = max(room, state.released[self._oldest - 1])
            if room > time:
                own.count.ring_full += room - time
                time = room
            self._begun = time + latencies.BLOCK_GAP
        if first:
            state.leaves.append(time + latencies.TAKEN)
        if words > 1:
            time += words - 1
            self._before = time - 1
        if ends:
            state.commits.append(time + latencies.COMMIT)
        self._time = time


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
