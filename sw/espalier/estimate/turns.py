"""Who has the next turn to read a window from the feature memory."""

from __future__ import annotations

from functools import cache

from espalier.estimate.branch_state import NEVER
from espalier.estimate.walker import WindowWalker


class Order:
    """Who goes first: the one whose last turn is the longest ago, at first the lowest number."""

    def __init__(self, count: int) -> None:
        self._turn = 0
        self._latest = list(range(-count, 0))  # turn of each

    def choose(self, waiting: list[int]) -> int:
        """Give the turn to one of those that wait."""
        chosen = waiting[0] if len(waiting) == 1 else min(waiting, key=self._latest.__getitem__)
        self._latest[chosen] = self._turn
        self._turn += 1
        return chosen


class WindowTurns:
    """Requests of window walkers. A request is served for all of a group when all of them ask.

    time: cycle of the next turn, NEVER while nobody asks; `find` brings it up to date.
    """

    def __init__(self, walkers: list[WindowWalker]) -> None:
        self.walkers = walkers
        self.time = NEVER
        self._ready: list[tuple[int, int]] = []
        self._last = -1
        self._order = Order(len(walkers))

    def find(self) -> None:
        """Find out whose requests wait, and from when on."""
        self._ready = []
        first = NEVER
        for index, walker in enumerate(self.walkers):
            cycle = walker.head
            if cycle is not None and not walker.mask & ((1 << index) - 1):
                if walker.mask >> (index + 1):
                    cycle = self._group(index, walker, cycle)
                self._ready.append((cycle, index))
                if cycle < first:
                    first = cycle
        self.time = first if first == NEVER else max(first, self._last + 1)

    def _group(self, leader: int, walker: WindowWalker, cycle: int) -> int:
        """Cycle from which on all of a group ask; `cycle`: its leader."""
        for index in range(leader + 1, walker.mask.bit_length()):
            other = self.walkers[index]
            if walker.mask >> index & 1:
                if other.head is None or not other.mask >> leader & 1:
                    return NEVER
                cycle = max(cycle, other.head)
        return cycle

    def take(self) -> tuple[int, ...]:
        """Give the turn; returns the numbers of those that get the window."""
        waiting = [index for cycle, index in self._ready if cycle <= self.time]
        self._last = self.time
        return _members(self.walkers[self._order.choose(waiting)].mask)


@cache
def _members(mask: int) -> tuple[int, ...]:
    """Numbers of the bits that are set."""
    return tuple(index for index in range(mask.bit_length()) if mask >> index & 1)
