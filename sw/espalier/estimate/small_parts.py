"""The small parts of the banks of the feature memory, which have one read port only."""

from __future__ import annotations

from espalier.arch.config import HardwareConfig
from espalier.arch.feature_banks import small_parts
from espalier.arch.feature_layout import BANK_SIDE, tile_position
from espalier.arch.program import ring_words
from espalier.estimate import latencies
from espalier.estimate.walker import Tile, Window

_WORDS = 1 << 13  # addresses of a bank, which tiles outside the map wrap around in
_REMEMBERED = 64  # cycles, more than from a window's turn to its words being read
# Channels of a tensor, by the name that its other fields begin with.
_CHANNELS = {"in": "in_channels", "residual": "out_channels"}


class SmallParts:
    """Tells which words lie in small parts, and which windows come from there."""

    def __init__(self, config: HardwareConfig) -> None:
        self._starts = small_parts(config)
        self._windows: list[tuple[int, Window | None]] = [(-1, None)] * _REMEMBERED

    def window(self, turn: int, window: Window | None) -> None:
        """Note that a window had its turn."""
        cycle = turn + latencies.WINDOW_READ
        self._windows[cycle % _REMEMBERED] = cycle, window

    def holds(self, fields: dict[str, int], tensor: str, tile: Tile, channel: int) -> bool:
        """Whether the word of a tile lies there; tensor: "in" or "residual" of a descriptor."""
        base, pitch = fields[f"{tensor}_base"], fields[f"{tensor}_pitch"]
        ring = ring_words(fields[f"{tensor}_ring"])
        bank, word = tile_position(base, pitch, fields[_CHANNELS[tensor]], *tile, channel, ring)
        start = self._starts.get(bank)
        return start is not None and word % _WORDS >= start

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
        return self.holds(fields, "in", (y, x), channel)
