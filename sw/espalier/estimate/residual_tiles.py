"""Residual tiles of an output stage: asked for when their table entries come up, used in order."""

from __future__ import annotations

from collections import deque

from espalier.estimate import latencies
from espalier.estimate.branch_state import BranchState
from espalier.estimate.jobs import Word

Entry = tuple[int, Word | None]  # PE, and the word that the entry completes


class ResidualTiles:
    """Keeps so many entries in a buffer, and asks for the tiles of those that complete words."""

    def __init__(self, state: BranchState) -> None:
        self.state = state
        self._coming: deque[Word | None] = deque()  # words of the entries that are not read yet
        self._read: list[int] = []  # when this layer's entries were read from the table,
        self._taken: list[int] = []  # and taken from the buffer
        self._wanted: deque[tuple[int, Word]] = deque()  # tiles to ask for, and from when on
        self._asked = 0  # tiles, all layers together
        self._used: list[int] = []  # per tile, when another one may be asked for
        self._needed = False

    def begin(self, go: int, entries: list[list[Entry]]) -> None:
        """Start a layer; entries: of all sets, empty if it has no residual."""
        self._needed = bool(entries)
        self._coming = deque(word for own in entries for _, word in own)
        self._read, self._taken = [], []
        self._fill(go + latencies.FIRST_ENTRY)

    def take(self, cycle: int) -> None:
        """Note that an entry was taken, so that others come up."""
        if self._coming:
            self._taken.append(cycle)
            self._fill(0)

    def _fill(self, earliest: int) -> None:
        """Read entries while the buffer has room; it knows late of those that have been read before."""
        read, taken = self._read, self._taken
        cycle = earliest
        while self._coming:
            count = len(read)
            if count:
                cycle = max(cycle, read[-1] + 1)
            seen = count
            while seen and read[seen - 1] > cycle - latencies.ENTRY_SEEN:
                seen -= 1
            needed = seen - latencies.AHEAD  # entries that must have been taken
            if needed > 0:
                if len(taken) < needed:
                    return
                if taken[needed - 1] > cycle - latencies.ENTRY_ROOM:
                    cycle += 1
                    continue
            read.append(cycle)
            word = self._coming.popleft()
            if word is not None:
                self._wanted.append((cycle + latencies.ASK_TILE, word))
                self._ask()

    def there(self) -> int | None:
        """Cycle from which the tile of the next word is there, None if that is not known yet."""
        if not self._needed:
            return 0
        if len(self.state.tiles_read) <= len(self._used):
            return None
        return self.state.tiles_read[len(self._used)] + latencies.TILE_THERE

    def use(self, cycle: int) -> None:
        """Note that the tile of the next word was used up."""
        if self._needed:
            self._used.append(cycle + latencies.TILE_USED)
            self._ask()

    def _ask(self) -> None:
        while self._wanted and self._asked < len(self._used) + latencies.TILES_AHEAD:
            cycle, word = self._wanted.popleft()
            if self._asked >= latencies.TILES_AHEAD:
                cycle = max(cycle, self._used[self._asked - latencies.TILES_AHEAD])
            self.state.tiles.append((cycle, word))
            self._asked += 1
