"""Who has the next turn for a single word of the feature memory, and when it is written or read."""

from __future__ import annotations

from collections import deque

from espalier.estimate import latencies
from espalier.estimate.branch_state import NEVER
from espalier.estimate.jobs import Waiting, Word
from espalier.estimate.turns import Order


class WordPort:
    """Words that some clients write, or ask for, each client's in order.

    turn: cycle of the next turn, NEVER while no word waits; `find` brings it up to date. done: cycle in
    which the next word may be written or read. latency: from a turn until then. others: ports that this one
    gives way to, when both want the same bank; then only so many words can be on their way.
    """

    def __init__(
        self,
        first: int,
        words: list[list[Waiting]],
        latency: int,
        others: tuple[WordPort, ...] = (),
    ) -> None:
        """`first`: number of the first client; words: of every client."""
        self._free = 0  # from when on the next word may be written or read
        self.words = words
        self.turn = self.done = NEVER
        self._first, self._latency, self._others = first, latency, others
        self._count = [0] * len(words)
        self._heads = [NEVER] * len(words)
        self._next = 0  # from when on another word can have its turn
        self._order = Order(len(words))
        self._on_way: deque[tuple[int, int, Word]] = deque()
        self._banks: dict[int, int] = {}  # bank in use in a cycle

    def find(self, client: int) -> None:
        """Look for words of a client (counted over all ports) that may have some now."""
        index = client - self._first
        if self._heads[index] == NEVER:
            words, count = self.words[index], self._count[index]
            if len(words) > count:
                self._heads[index] = words[count][0]
                self._find_turn()

    def _find_turn(self) -> None:
        first = min(self._heads)
        if first == NEVER or (self._others and self._waiting >= latencies.UNDER_WAY):
            self.turn = NEVER
        else:
            self.turn = max(first, self._next)

    def take(self) -> int:
        """Give the turn to a client; returns its number."""
        turn = self.turn
        chosen = self._choose_client([index for index, head in enumerate(self._heads) if head <= turn])
        _, word = self.words[chosen][self._count[chosen]]
        self._count[chosen] += 1
        self._heads[chosen] = NEVER
        self._next = max(self._next, turn + 1)
        cycle = turn + self._latency
        if not self._others:
            self._banks[cycle] = word.bank
        self._on_way.append((cycle, self._first + chosen, word))
        self._find_done()
        self._find_turn()
        return self._first + chosen

    def _choose_client(self, waiting: list[int]) -> int:
        return self._order.choose(waiting)

    def finish(self) -> tuple[int, Word] | None:
        """Write or read the next word: its client and the word; None if it has to give way."""
        cycle, client, word = self._on_way.popleft()
        if self._clashes(cycle, word):
            self._on_way.appendleft((cycle + 1, client, word))
            self.done = cycle + 1
            return None
        self._use(cycle, word)
        self._find_done()
        return client, word

    @property
    def _waiting(self) -> int:
        """Words that had their turn."""
        return len(self._on_way)

    def _clashes(self, cycle: int, word: Word) -> bool:
        """Whether another port, which goes first, uses the word's bank in a cycle."""
        return any(other._banks.get(cycle) == word.bank for other in self._others)

    def _use(self, cycle: int, word: Word) -> None:
        """Note that a word, which no longer waits, is written or read in a cycle."""
        self._banks[cycle] = word.bank
        self._free = cycle + 1
        if self._waiting == latencies.UNDER_WAY - 1:
            self._next = max(self._next, cycle)
            self._find_turn()

    def _find_done(self) -> None:
        if self._on_way:
            cycle = self._on_way[0][0]
            if cycle < self._free:
                cycle = self._free
                self._on_way[0] = (cycle, *self._on_way[0][1:])
            self.done = cycle
        else:
            self.done = NEVER
