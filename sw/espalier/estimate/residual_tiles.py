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
        self._coming: deque[Word | None] = deque()  # words of the entries that are not in the buffer yet
        self._wanted: deque[tuple[int, Word]] = deque()  # tiles to ask for, and from when on
        self._asked = 0  # tiles, all layers together
        self._used: list[int] = []  # per tile, when another one may be asked for
        self._needed = False

    def begin(self, go: int, entries: list[list[Entry]]) -> None:
        """Start a layer; entries: of all sets, empty if it has no residual."""
        self._needed = bool(entries)
        self._coming = deque(word for own in entries for _, word in own)
        for number in range(min(latencies.AHEAD, len(self._coming))):
            self._enter(go + latencies.ENTERED + number)

    def take(self, cycle: int) -> None:
        """Note that an entry was taken, so that another one comes up."""
        if self._coming:
            self._enter(cycle + latencies.REFILL)

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

    def _enter(self, cycle: int) -> None:
        word = self._coming.popleft()
        if word is not None:
            self._wanted.append((cycle + latencies.ASK_TILE, word))
            self._ask()

    def _ask(self) -> None:
        while self._wanted and self._asked < len(self._used) + latencies.TILES_AHEAD:
            cycle, word = self._wanted.popleft()
            if self._asked >= latencies.TILES_AHEAD:
                cycle = max(cycle, self._used[self._asked - latencies.TILES_AHEAD])
            self.state.tiles.append((cycle, word))
            self._asked += 1
