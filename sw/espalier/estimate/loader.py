"""The loader during an inference: when batches of streams have been loaded."""

from __future__ import annotations

from collections.abc import Callable, Sequence

from espalier.arch.operators import STREAM_WORD_BITS
from espalier.backend.sections import BEAT_BYTES
from espalier.backend.unchain import Batch
from espalier.estimate import latencies
from espalier.estimate.ddr import ReadPort

_WORD_BYTES = STREAM_WORD_BITS // 8


class Loader:
    """Loads one batch after the other.

    loaded: cycle from which each batch counts as loaded, as far as that is known. moved: another one has
    become known, cleared by whoever has seen to it.
    """

    def __init__(
        self,
        batches: Sequence[Batch],
        branches: int,
        port: ReadPort,
        load_end: Callable[[], int | None],
    ) -> None:
        """`load_end`: when a LOAD has ended that keeps batches from being loaded, None if not known yet."""
        self.batches = batches
        self.loaded: list[int] = []
        self.moved = False
        self._left: list[list[int]] = [[] for _ in range(branches)]
        self._port, self._load_end = port, load_end
        self._ready: int | None = None  # from when on the next batch can be begun

    def start(self, cycle: int) -> None:
        """Start with the first batch; `cycle`: EXECUTE of STREAM."""
        self._ready = cycle + latencies.STREAM + latencies.BATCH_READY
        self.advance()

    def leave(self, branch: int, cycle: int) -> None:
        """Note when the PEs of a branch have left their next batch."""
        self._left[branch].append(max([cycle, *self._left[branch][-1:]]))
        self.advance()

    def advance(self) -> None:
        """Find out when further batches are loaded, as far as it is known when others have been left."""
        while self._ready is not None and len(self.loaded) < len(self.batches):
            batch, end = self.batches[len(self.loaded)], self._load_end()
            if end is None or any(len(left) < batch.left for left in self._left):
                return
            begin = max(self._ready, end)
            if batch.left:
                begin = max(begin, *(left[batch.left - 1] + latencies.BATCH_LEFT for left in self._left))
            self._load(begin, batch)
            self.moved = True

    def _load(self, begin: int, batch: Batch) -> None:
        """Load a batch, which can be begun in cycle `begin`."""
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
