"""Reads of residual tiles, which windows go before in the small parts of the banks."""

from __future__ import annotations

from espalier.arch.config import HardwareConfig
from espalier.arch.feature_banks import small_parts
from espalier.arch.feature_layout import BANK_SIDE, tile_position
from espalier.estimate import latencies
from espalier.estimate.jobs import Waiting, Word
from espalier.estimate.walker import Window
from espalier.estimate.word_port import WordPort

_WORDS = 1 << 13  # addresses of a bank, which tiles outside the map wrap around in
_REMEMBERED = 64  # cycles, more than from a window's turn to its words being read


class SmallParts:
    """Words of the banks that have one read port only, and the windows that come from them."""

    def __init__(self, config: HardwareConfig) -> None:
        self._starts = small_parts(config)
        self._windows: list[tuple[int, Window | None]] = [(-1, None)] * _REMEMBERED

    def window(self, turn: int, window: Window | None) -> None:
        """Note that a window had its turn."""
        cycle = turn + latencies.WINDOW_READ
        self._windows[cycle % _REMEMBERED] = cycle, window

    def holds(self, word: Word) -> bool:
        """Whether the residual tile of a word lies there."""
        start = self._starts.get(word.bank)
        if start is None:
            return False
        fields = word.job.work.fields
        base, pitch, channels = (fields[name] for name in ("residual_base", "residual_pitch", "out_channels"))
        return tile_position(base, pitch, channels, *word.place, word.channel)[1] >= start

    def refuses(self, cycle: int, bank: int) -> bool:
        """Whether a window that is read in this cycle comes from the small part of a bank."""
        read, window = self._windows[cycle % _REMEMBERED]
        if read != cycle or window is None:
            return False
        fields, (tile_y, tile_x), channel = window
        # The tile of the 3x3 neighbourhood that lies in the bank.
        row, column = divmod(bank, BANK_SIDE)
        y = tile_y - 1 + (row - tile_y + 1) % BANK_SIDE
        x = tile_x - 1 + (column - tile_x + 1) % BANK_SIDE
        base, pitch, channels = (fields[name] for name in ("in_base", "in_pitch", "in_channels"))
        return tile_position(base, pitch, channels, y, x, channel)[1] % _WORDS >= self._starts[bank]


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
            if found is None or not self._small.holds(found[1]):
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
