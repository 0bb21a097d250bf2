"""LOAD and STORE: when tile rows arrive, and how long the output takes."""

from __future__ import annotations

from espalier.arch.config import HardwareConfig
from espalier.estimate import latencies
from espalier.estimate.work import LayerWork


class Load:
    """A LOAD that is executed in cycle `start`: `rows`, cycle in which each tile row is reported; `end`."""

    def __init__(self, work: LayerWork, start: int, config: HardwareConfig) -> None:
        fields = work.fields
        row_beats = fields["out_tiles_x"] * fields["out_channels"] * config.word_beats
        first = start + latencies.LOAD_FIRST - 1
        self.rows = [
            first + transfer_cycles((row + 1) * row_beats, config) + latencies.ROW
            for row in range(fields["out_tiles_y"])
        ]
        self.end = self.rows[-1] - latencies.ROW + latencies.LOAD_END


def transfer_cycles(beats: int, config: HardwareConfig) -> int:
    """Cycles from the first beat to the last of a transfer."""
    return beats + (beats - 1) // config.burst_beats * latencies.BURST_GAP


def store_end(work: LayerWork, start: int) -> int:
    """Cycle in which the descriptor after a STORE is fetched that is executed in cycle `start`."""
    fields = work.fields
    words = fields["dram_words"] * max(fields["store_beats"], latencies.STORE_WORD)
    return start + latencies.STORE_FIRST + words + latencies.STORE_END
