"""Who has the next turn to write a word into the feature memory, and when the word is there."""

from __future__ import annotations

from collections import deque
from collections.abc import Iterable

from espalier.arch.feature_layout import BANK_SIDE
from espalier.estimate import latencies
from espalier.estimate.branch_state import NEVER
from espalier.estimate.jobs import Word
from espalier.estimate.turns import Order


class WritePort:
    """Words of some writers, each writer's in order.

    turn: cycle of the next turn, NEVER while no word waits; `find` brings it up to date. written: cycle in
    which the next word may be in the memory. other: a port that this one gives way to, when both write into
    the same bank.
    """

    def __init__(self, first: int, words: list[list[Word]], other: WritePort | None = None) -> None:
        """`first`: number of the first writer; words: of every writer."""
        self.words = words
        self.turn = self.written = NEVER
        self._first, self._other = first, other
        self._count = [0] * len(words)
        self._heads = [NEVER] * len(words)
        self._last = -1
        self._order = Order(len(words))
        self._on_way: deque[tuple[int, int, Word]] = deque()
        self._banks: dict[int, tuple[int, int]] = {}  # bank written in a cycle

    def find(self, writers: Iterable[int]) -> None:
        """Look for words of writers (numbers counted over all ports) that may have some now."""
        for number in writers:
            index = number - self._first
            if 0 <= index < len(self.words):
                count = self._count[index]
                if self._heads[index] == NEVER and len(self.words[index]) > count:
                    self._heads[index] = self.words[index][count].ready
        first = min(self._heads)
        self.turn = first if first == NEVER else max(first, self._last + 1)

    def take(self) -> int:
        """Give the turn to a writer; returns its number."""
        chosen = self._order.choose([index for index, head in enumerate(self._heads) if head <= self.turn])
        word = self.words[chosen][self._count[chosen]]
        self._count[chosen] += 1
        self._heads[chosen] = NEVER
        self._last = self.turn
        cycle = self.turn + (latencies.WRITTEN if self._other is None else latencies.WRITTEN_SECOND)
        if self._other is None:
            self._banks[cycle] = _bank(word)
        self._on_way.append((cycle, self._first + chosen, word))
        self.written = self._on_way[0][0]
        return self._first + chosen

    def arrive(self) -> tuple[int, Word] | None:
        """Let the next word into the memory: its writer and the word; None if it has to give way."""
        cycle, writer, word = self._on_way.popleft()
        if self._other is not None and self._other._banks.get(cycle) == _bank(word):
            self._on_way.appendleft((cycle + 1, writer, word))
            self.written = cycle + 1
            return None
        self.written = max(cycle + 1, self._on_way[0][0]) if self._on_way else NEVER
        if self._on_way:
            self._on_way[0] = (self.written, *self._on_way[0][1:])
        return writer, word


def _bank(word: Word) -> tuple[int, int]:
    return word.place[0] % BANK_SIDE, word.place[1] % BANK_SIDE
