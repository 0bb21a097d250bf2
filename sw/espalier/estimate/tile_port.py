"""Reads of residual tiles, which windows go before in the small parts of the banks."""

from __future__ import annotations

from espalier.estimate import latencies
from espalier.estimate.jobs import Waiting, Word
from espalier.estimate.small_parts import SmallParts
from espalier.estimate.word_port import WordPort


class TilePort(WordPort):
    """Residual tiles that output stages ask for. A read from a small part waits for windows from there.

    `done` is then the cycle in which that is seen; reading: cycle in which the tile that `finish` returns was
    read.
    """

    def __init__(self, words: list[list[Waiting]], others: tuple[WordPort, ...], small: SmallParts) -> None:
        """`words`: of every branch; others: ports that tiles give way to."""
        super().__init__(0, words, latencies.TILE, others)
        self._small = small
        self._asking: tuple[int, Word] | None = None  # a read from a small part
        self.reading = 0

    def finish(self) -> tuple[int, Word] | None:
        """Read the next tile: its branch and word; None if it has to give way."""
        if self._asking is None:
            self.reading = self.done
            found = super().finish()
            if found is None or not self._holds(found[1]):
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

    def _find_done(self) -> None:
        if self._asking is None:
            super()._find_done()

    def _holds(self, word: Word) -> bool:
        return self._small.holds(word.job.work.fields, "residual", word.place, word.channel)
