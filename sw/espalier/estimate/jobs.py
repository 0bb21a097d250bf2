"""What the stages of the simulated accelerator pass to each other."""

from __future__ import annotations

from collections import deque
from dataclasses import dataclass, field
from typing import NamedTuple

from espalier.arch.feature_layout import BANK_SIDE
from espalier.arch.program import Opcode
from espalier.estimate import latencies
from espalier.estimate.work import IntArray, LayerWork

LONG_AGO = -1000  # cycle before all others
_REMEMBERED = 4  # words of a writer


@dataclass
class Job:
    """A layer on its way through the stages; all times are cycles.

    offer: when the sequencer offers it. writers: those that write words of it. taken: times at which stages
    took it; window walkers also in walkers_taken. outputs_wait: per output stage, when it was ready for the
    layer; outputs_take: when they all took it, None as long as that is not known. ended: per writer, when
    its last word was in the memory; reported: when the end of the layer was counted.
    """

    work: LayerWork
    offer: int
    writers: int
    taken: list[int] = field(default_factory=list)
    walkers_taken: list[int] = field(default_factory=list)
    outputs_wait: list[int] = field(default_factory=list)
    outputs_take: int | None = None
    ended: list[int] = field(default_factory=list)
    reported: int = 0

    @property
    def is_pool(self) -> bool:
        """Whether the pool unit works on it."""
        return self.work.opcode == Opcode.POOL

    @property
    def end(self) -> int | None:
        """When all its words were in the memory."""
        return max(self.ended) if len(self.ended) == self.writers else None


class Progress:
    """How far a writer has come, as the scoreboard holds it, and since when.

    layer: that it works on. ended: cycle of the layer's last word, None before it; `LONG_AGO` if it rests.
    """

    def __init__(self) -> None:
        self.layer = -1
        self.ended: int | None = LONG_AGO
        self._ordered = False
        # The latest words and their cycles. A window that waits for a word asks for it within fewer cycles
        # than these take.
        self._words: deque[tuple[int, Word]] = deque(maxlen=_REMEMBERED)

    def begin(self, layer: int, ordered: bool, rests: bool) -> None:
        """Start a layer, of which nothing is written yet."""
        self.layer, self._ordered = layer, ordered
        self.ended = LONG_AGO if rests else None
        self._words.clear()

    def write(self, cycle: int, word: Word) -> None:
        """Note that a word is in the memory."""
        self._words.append((cycle, word))
        if word.last:
            self.ended = cycle

    def ended_by(self, issue: int) -> bool:
        """Whether a window issued in that cycle need not look at what was written."""
        return self.ended is not None and self.ended + latencies.PROGRESS <= issue

    def passed(self, need: tuple[int, int], channel: int) -> int | None:
        """Cycle in which it had written what a window of `channel` that reaches tile `need` reads.

        None if it has not; much later words are as good as the one in question.
        """
        since = self.ended
        for cycle, word in reversed(self._words):
            place = word.place
            through = self._ordered and word.channel >= channel and (place == need or word.final)
            if not (through or word.last or place > need):
                break
            since = cycle
        return since


class Word(NamedTuple):
    """A tile word. place: its tile, in `bank`; final: in the writer's last tile; last: of a layer."""

    job: Job
    place: tuple[int, int]
    bank: int
    channel: int
    final: bool
    last: bool


Waiting = tuple[int, Word]  # from when on it waits for its turn


def bank_of(place: tuple[int, int]) -> int:
    """Bank in which a tile lies."""
    return place[0] % BANK_SIDE * BANK_SIDE + place[1] % BANK_SIDE


@dataclass(frozen=True)
class WindowPlan:
    """The windows of one channel: words of each, and its pattern's tile_dy and tile_dx."""

    sizes: tuple[int, ...]
    offsets: tuple[tuple[int, int], ...]

    @classmethod
    def of(cls, patterns: list[dict[str, int]]) -> WindowPlan:
        """Group the patterns by the window that they use."""
        starts = [index for index, pattern in enumerate(patterns) if pattern["fetch"]]
        stops = [*starts[1:], len(patterns)]
        return cls(
            tuple(stop - start for start, stop in zip(starts, stops, strict=True)),
            tuple((patterns[start]["tile_dy"], patterns[start]["tile_dx"]) for start in starts),
        )


@dataclass(frozen=True)
class Walk:
    """Tiles and channels of one walker in one layer; it cannot be taken before the cycle after `offer`."""

    job: Job
    offer: int
    tile_y: IntArray
    tile_x: IntArray
    channels: int
    passes: int
    group_mask: int
    plan: WindowPlan
