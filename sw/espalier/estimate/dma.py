"""LOAD and STORE: when the words of the input arrive, and how long the output takes."""

from __future__ import annotations

from collections.abc import Iterator

from espalier.arch.config import HardwareConfig
from espalier.arch.program import POOL_BRANCH
from espalier.estimate import latencies
from espalier.estimate.ddr import ReadPort, WritePort
from espalier.estimate.jobs import Job, Waiting, Word, bank_of
from espalier.estimate.work import LayerWork


class Load:
    """The DMA as a writer of the feature memory.

    words: for the write port, in order; turns: when they had their turn. end: from when on what waits for the
    LOAD can be executed, None as long as that is not known.
    """

    def __init__(self, config: HardwareConfig, port: ReadPort) -> None:
        self.config, self._port = config, port
        self.words: list[Waiting] = []
        self.turns: list[int] = []
        self.end: int | None = 0
        self._steps: Iterator[None] = iter(())

    def start(self, work: LayerWork, cycle: int, over: int = 0) -> None:
        """Start a LOAD that is executed in `cycle`; `over`: last cycle in which others use the port."""
        self.end = None
        cycle = max(cycle, over)
        self._port.command(cycle + latencies.LOAD_REQUEST, work.fields["dram_words"] * self.config.word_beats)
        self._steps = self._load(Job(work, cycle, 1))
        next(self._steps)

    def turn(self, cycle: int) -> None:
        """Note that a word had its turn at the write port."""
        self.turns.append(cycle)
        next(self._steps, None)

    def _load(self, job: Job) -> Iterator[None]:
        """Yield whenever it is not known when the word before was accepted."""
        fields, port, arrived = job.work.fields, self._port, 0
        columns, channels = fields["out_tiles_x"], fields["out_channels"]
        first = job.work.branch_fields[POOL_BRANCH]["tile_y0"] * columns
        count, begun = (fields["out_tiles_y"] * columns - first) * channels, len(self.words)
        for number in range(count):
            before = begun + number - 1
            for _ in range(self.config.word_beats - 1):
                arrived = max(port.beat(), arrived + 1)
                port.take(arrived)
            coming = port.beat()
            if number > 1:
                while len(self.turns) < before:
                    yield
                coming = max(coming, self.turns[before - 1])
            arrived = max(coming, arrived + 1)
            port.take(arrived)
            tile, channel = divmod(number, channels)
            place, ready = divmod(first + tile, columns), arrived + latencies.LOAD_WORD
            word = Word(job, place, bank_of(place), channel, False, number == count - 1)
            self.words.append((ready, word))
        while len(self.turns) < begun + count - 1:
            yield
        accepted = max([arrived + 1, *self.turns[begun + count - 2 : begun + count - 1]])
        self.end = accepted + latencies.LOAD_END
        yield


class Store:
    """The DMA as a reader of the feature memory.

    words: for the port of single reads, in order. end: when what waits for the STORE can be executed, None as
    long as that is not known.
    """

    def __init__(self, config: HardwareConfig) -> None:
        self.config = config
        self.words: list[Waiting] = []
        self.end: int | None = 0
        self._reads: list[int] = []  # of this STORE
        self._steps: Iterator[None] = iter(())

    def start(self, work: LayerWork, cycle: int) -> None:
        """Start a STORE that is executed in `cycle`."""
        self.end = None
        self._reads = []
        self._steps = self._store(Job(work, cycle, 0), cycle)
        next(self._steps)

    def read(self, cycle: int) -> None:
        """Note that the next word was read."""
        self._reads.append(cycle)
        next(self._steps, None)

    def _store(self, job: Job, start: int) -> Iterator[None]:
        """Yield whenever it is not known when the next word was read."""
        fields, port = job.work.fields, WritePort(self.config)
        columns, channels, words = fields["in_tiles_x"], fields["in_channels"], fields["dram_words"]
        first = job.work.branch_fields[POOL_BRANCH]["tile_y0"] * columns
        asked, sent = start - 1, [start] * words
        for number in range(words + latencies.STORE_DEPTH):
            if number >= latencies.STORE_DEPTH:
                done = number - latencies.STORE_DEPTH
                while len(self._reads) <= done:
                    yield
                earliest = self._reads[done] - latencies.STORE_ASKED - latencies.TILE
                for beat in range(fields["store_beats"]):
                    last = done == words - 1 and beat == fields["store_beats"] - 1
                    moved = port.beat(earliest, last)
                    if beat == 0:
                        sent[done] = moved
                asked = max(asked, sent[done] + latencies.STORE_TRIP - 1)
            if number < words:
                asked += 1
                tile, channel = divmod(number, channels)
                place = divmod(first + tile, columns)
                word = Word(job, place, bank_of(place), channel, False, number == words - 1)
                self.words.append((asked + latencies.STORE_ASKED, word))
        self.end = port.answered + latencies.STORE
        yield
