"""Reads of residual tiles and of tiles to store, which windows go before in the small parts of the banks."""

from __future__ import annotations

from espalier.estimate import latencies
from espalier.estimate.branch_state import NEVER
from espalier.estimate.jobs import Waiting, Word
from espalier.estimate.small_parts import SmallParts
from espalier.estimate.word_port import WordPort


class TilePort(WordPort):
    """Residual tiles that output stages ask for, then tiles of a STORE, which is the last client.

    A read from a small part waits for windows from there.

    A read whose bank is written steps aside, so that one of another branch can go before it. `done`: of a
    read from a small part also the cycle in which that is seen; reading: cycle in which the tile that
    `finish` returns was read.
    """

    def __init__(self, words: list[list[Waiting]], others: tuple[WordPort, ...], small: SmallParts) -> None:
        """`words`: of every branch and of STORE; others: ports that tiles give way to."""
        super().__init__(0, words, latencies.TILE, others)
        self._small = small
        self._asking: tuple[int, Word] | None = None  # a read from a small part
        self._aside: tuple[int, Word] | None = None
        self.reading = 0

    def finish(self) -> tuple[int, Word] | None:
        """Read the next tile: its client and word; None if it has to give way."""
        if self._asking is None:
            self.reading = self.done
            found = self._choose(self.done)
            if found is None or not self._holds(*found):
                return found
            self._asking = found
            self.done = self.reading + 1
            return None
        found = self._asking
        if self._small.refuses(self.done, found[1].bank):
            self.reading = self.done
            self.done += 1
            return None
        self._asking = None
        self._free = self.done + 1
        self._find_done()
        return found

    def _choose(self, cycle: int) -> tuple[int, Word] | None:
        """Read the tile aside or else the oldest of the others, which may take the place aside."""
        found = None
        if self._aside is not None and not self._clashes(cycle, self._aside[1]):
            found, self._aside = self._aside, None
        if self._on_way and self._on_way[0][0] <= cycle:
            _, client, word = self._on_way[0]
            clash = self._clashes(cycle, word)
            if found is not None or (clash and self._aside is None):
                self._aside = client, word
                self._on_way.popleft()
            elif not clash and (self._aside is None or self._aside[0] != client):
                found = client, word
                self._on_way.popleft()
        self._free = cycle + 1
        if found is not None:
            self._use(cycle, found[1])
        self._find_done()
        return found

    @property
    def _waiting(self) -> int:
        return len(self._on_way) + (self._aside is not None)

    def _find_done(self) -> None:
        if self._asking is not None:
            return
        self.done = NEVER
        if self._aside is not None:
            self.done = self._free
        elif self._on_way:
            self.done = max(self._free, self._on_way[0][0])

    def _choose_client(self, waiting: list[int]) -> int:
        store = len(self.words) - 1
        return super()._choose_client([client for client in waiting if client != store] or waiting)

    def _holds(self, client: int, word: Word) -> bool:
        tensor = "in" if client == len(self.words) - 1 else "residual"
        return self._small.holds(word.job.work.fields, tensor, word.place, word.channel)
