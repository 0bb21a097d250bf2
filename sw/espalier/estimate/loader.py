"""The loader during an inference: when batches of streams have been loaded."""

from __future__ import annotations

from collections.abc import Callable, Sequence

from espalier.arch.operators import STREAM_WORD_BITS
from espalier.backend.sections import BEAT_BYTES
from espalier.backend.unchain import Batch
from espalier.estimate import latencies
from espalier.estimate.branch_state import NEVER
from espalier.estimate.ddr import ReadPort

_WORD_BYTES = STREAM_WORD_BITS // 8


class Loader:
    """Loads one batch after the other, each when its turn has come: LOADs use the same read port.

    loaded: cycle from which each batch counts as loaded, as far as that is known. over: last cycle
    in which the latest batch keeps a LOAD from using the port.
    """

    def __init__(
        self,
        batches: Sequence[Batch],
        branches: int,
        port: ReadPort,
        load_end: Callable[[], int | None],
    ) -> None:
        """`load_end`: when the latest LOAD has ended, before which no batch begins; None: not known."""
        self.batches = batches
        self.loaded: list[int] = []
        self.over = 0
        self._left: list[list[int]] = [[] for _ in range(branches)]
        self._port, self._load_end = port, load_end
        self._ready: int | None = None  # from when on the next batch can be begun

    def start(self, cycle: int) -> None:
        """Start with the first batch; `cycle`: EXECUTE of STREAM."""
        self._ready = cycle + latencies.STREAM + latencies.BATCH_READY

    def leave(self, branch: int, cycle: int) -> None:
        """Note when the PEs of a branch have left their next batch."""
        self._left[branch].append(max([cycle, *self._left[branch][-1:]]))

    @property
    def turn(self) -> int:
        """Cycle in which the next batch can be begun, NEVER if that is not known."""
        if self._ready is None or len(self.loaded) == len(self.batches):
            return NEVER
        batch, end = self.batches[len(self.loaded)], self._load_end()
        if end is None or any(len(left) < batch.left for left in self._left):
            return NEVER
        begin = max(self._ready, end)
        if batch.left:
            begin = max(begin, *(left[batch.left - 1] + latencies.BATCH_LEFT for left in self._left))
        return begin

    def take(self) -> None:
        """Load the next batch, now that it can be begun."""
        begin, batch = self.turn, self.batches[len(self.loaded)]
        self._port.command(begin + latencies.LOAD_REQUEST - 1, batch.beats)
        time = begin
        for words in batch.words:
            if len(words):
                time = self._words(self._beat(time) + latencies.SECTION, len(words)) + 1
        time = self._beat(time)
        self.loaded.append(time + latencies.BATCH_LOADED)
        time += latencies.BATCH_LOADED - 1
        for _ in range(batch.padding):
            time = self._beat(time + 1)
        self.over = time
        self._ready = time + latencies.BATCH_OVER + latencies.BATCH_READY

    def _beat(self, earliest: int) -> int:
        """Take the next beat as soon as it is there."""
        cycle = max(self._port.beat(), earliest)
        self._port.take(cycle)
        return cycle

    def _words(self, time: int, count: int) -> int:
        """Unpack so many words, the first beat taken in cycle `time` at the earliest; cycle of the last one.

        Two beats are held: one is taken when the one before is the only one that still has words.
        """
        beats = -(-count * _WORD_BYTES // BEAT_BYTES)
        arrived = [self._beat(time)]
        written = time
        for word in range(count):
            first, last = word * _WORD_BYTES // BEAT_BYTES, ((word + 1) * _WORD_BYTES - 1) // BEAT_BYTES
            if len(arrived) == 1 < beats:
                arrived.append(self._beat(arrived[0] + 1))
            written = max(written + 1, arrived[first] + latencies.PACKED, arrived[last] + 1)
            if (word + 1) * _WORD_BYTES // BEAT_BYTES > first and len(arrived) < beats:
                arrived.append(self._beat(written))
        return written
