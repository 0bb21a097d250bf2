"""Who has the next turn at the feature memory: one window and one word a cycle, round robin."""

from __future__ import annotations

from espalier.estimate.jobs import Word
from espalier.estimate.walker import WindowWalker

NEVER = 1 << 60


def next_turn(waiting: list[int], last: int) -> int:
    """Round robin: the first that waits after the one that was last."""
    return next((index for index in waiting if index > last), waiting[0])


class WindowTurns:
    """Requests of window walkers. A request is served for all of a group when all of them ask.

    time: cycle of the next turn, NEVER while nobody asks; `find` brings it up to date.
    """

    def __init__(self, walkers: list[WindowWalker]) -> None:
        self.walkers = walkers
        self.time = NEVER
        self._ready: list[tuple[int, int]] = []
        self._last, self._turn = -1, -1

    def find(self) -> None:
        """Find out whose requests wait, and from when on."""
        self._ready = []
        first = NEVER
        for index, walker in enumerate(self.walkers):
            if walker.head is not None and not walker.mask & ((1 << index) - 1):
                cycle = self._group(index, walker)
                self._ready.append((cycle, index))
                first = min(first, cycle)
        self.time = first if first == NEVER else max(first, self._last + 1)

    def _group(self, leader: int, walker: WindowWalker) -> int:
        """Cycle from which on all of a group ask."""
        cycle = walker.head or 0
        for index in range(leader + 1, walker.mask.bit_length()):
            other = self.walkers[index]
            if walker.mask >> index & 1:
                if other.head is None or not other.mask >> leader & 1:
                    return NEVER
                cycle = max(cycle, other.head)
        return cycle

    def take(self) -> list[int]:
        """Give the turn; returns the numbers of those that get the window."""
        waiting = [index for cycle, index in self._ready if cycle <= self.time]
        self._turn = next_turn(waiting, self._turn)
        self._last = self.time
        mask = self.walkers[self._turn].mask
        return [index for index in range(len(self.walkers)) if mask >> index & 1]


class WordTurns:
    """Words of the writers, each writer's in order.

    time: cycle of the next turn, NEVER while no word waits; `find` brings it up to date.
    """

    def __init__(self, words: list[list[Word]]) -> None:
        self.words = words
        self.time = NEVER
        self._count = [0] * len(words)
        self._heads = [NEVER] * len(words)
        self._last, self._turn = -1, -1

    def find(self) -> None:
        """Look for words of writers that had none."""
        for index, words in enumerate(self.words):
            if self._heads[index] == NEVER and len(words) > self._count[index]:
                self._heads[index] = words[self._count[index]].ready
        first = min(self._heads)
        self.time = first if first == NEVER else max(first, self._last + 1)

    def take(self) -> tuple[int, Word]:
        """Give the turn; returns the number of the writer and its word."""
        waiting = [index for index, head in enumerate(self._heads) if head <= self.time]
        self._turn = next_turn(waiting, self._turn)
        word = self.words[self._turn][self._count[self._turn]]
        self._count[self._turn] += 1
        self._heads[self._turn] = NEVER
        self._last = self.time
        return self._turn, word
