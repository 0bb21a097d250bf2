"""Chains of segments read back: the layers of every stream, and the batches that bring them."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
import numpy.typing as npt

from espalier.arch.config import HardwareConfig
from espalier.arch.fields import unpack
from espalier.arch.operators import STREAMING_HEADER_FIELDS
from espalier.arch.program import MOST_BATCHES_AHEAD, SECTION_FIELDS, SectionKind
from espalier.backend.sections import BEAT_BYTES
from espalier.backend.streams import STREAM_WORD_BYTES, plain_stream
from espalier.errors import ModelFileError

Bytes = npt.NDArray[np.uint8]


@dataclass(frozen=True)
class Batch:
    """A batch as it lies in DDR. left: batches that PEs have left before it is loaded.

    words: 9-byte words uint8[n, 9] for every PE, from `addresses` on. padding: beats behind its END section.
    """

    beats: int
    padding: int
    left: int
    addresses: list[int]
    words: list[Bytes]


@dataclass(frozen=True)
class Segment:
    """Operator words that lie together; batch: the one that brings them, None if they are resident.

    once: they are read once, and others follow; otherwise they are a loop, or the layer's last ones.
    """

    words: int
    batch: int | None
    once: bool = False


@dataclass(frozen=True)
class Chain:
    """A PE's stream. plain: as hardware without `streaming` has it, uint8[n, 9]; segments: per layer."""

    plain: Bytes
    segments: list[list[Segment]]


def read_batches(program: bytes, offset: int, beats: int, config: HardwareConfig) -> list[Batch]:
    """Read all batches; the first one has so many beats.

    Raises:
        ModelFileError: they are damaged, or do not fit the hardware.

    """
    batches: list[Batch] = []
    left = 0
    while beats:
        batch, left, following = _read_batch(program[offset : offset + beats * BEAT_BYTES], left, config)
        batches.append(batch)
        offset += beats * BEAT_BYTES
        beats = following
    for number, batch in enumerate(batches):
        if not number - MOST_BATCHES_AHEAD <= batch.left <= number:
            raise ModelFileError(f"batch {number} waits for {batch.left} batches")
    return batches


def _read_batch(content: bytes, left: int, config: HardwareConfig) -> tuple[Batch, int, int]:
    """Read a batch; also returns how many batches the next one waits for, and its beats."""
    addresses, words = [0] * config.pes, [np.zeros((0, STREAM_WORD_BYTES), np.uint8)] * config.pes
    position = 0
    while position < len(content):
        head = unpack(SECTION_FIELDS, int.from_bytes(content[position : position + BEAT_BYTES], "little"))
        position += BEAT_BYTES
        if head["kind"] == SectionKind.END:
            padding = (len(content) - position) // BEAT_BYTES
            batch = Batch(len(content) // BEAT_BYTES, padding, left, addresses, words)
            return batch, head["index"], head["words"]
        size, pe = head["words"] * STREAM_WORD_BYTES, head["index"]
        fits = head["address"] + head["words"] <= config.stream_depth_words
        if head["kind"] != SectionKind.STREAM or pe >= config.pes or not fits:
            raise ModelFileError(f"batch of streams: section {head['kind']}, index {pe} does not fit")
        addresses[pe] = head["address"]
        words[pe] = np.frombuffer(content, np.uint8, size, position).reshape(-1, STREAM_WORD_BYTES)
        position += -(-size // BEAT_BYTES) * BEAT_BYTES
    raise ModelFileError("batch of streams: no END section")


def read_chain(memory: Bytes, batches: Sequence[Batch], pe: int, tiles: Sequence[int]) -> Chain:
    """Follow a PE's chain through its memory uint8[depth, 9], with batches loaded as late as possible.

    tiles: of every convolution, as often as its loop is walked.

    Raises:
        ModelFileError: the chain leads out of the memory or a batch overwrites what is still to be read.

    """
    return _Follower(memory.copy(), batches, pe).follow(tiles)


def strip_segments(segments: list[Segment], strips: Sequence[int]) -> list[list[Segment]]:
    """Segments of a PE's layer by strip; `strips`: tiles of each. A single one is a loop for all strips.

    Raises:
        ModelFileError: a segment has words of two strips.

    """
    if len(segments) <= 1 or not sum(strips):
        return [segments] * len(strips)
    loop = sum(segment.words for segment in segments) // sum(strips)
    result, place = [], 0
    for tiles in strips:
        own, words = [], 0
        while place < len(segments) and (words < tiles * loop or not segments[place].words):
            own.append(segments[place])
            words += segments[place].words
            place += 1
        if words != tiles * loop:
            raise ModelFileError(f"batch {own[-1].batch if own else '?'} has words of two strips of a layer")
        result.append(own)
    return result


class _Follower:
    """Walks one chain. taken: batches used so far."""

    def __init__(self, memory: Bytes, batches: Sequence[Batch], pe: int) -> None:
        self.memory, self.batches, self.pe = memory, batches, pe
        self.taken = 0
        self._place, self._wait = 0, 0
        self._resident = np.zeros(len(memory), np.bool_)

    def follow(self, tiles: Sequence[int]) -> Chain:
        """Read all layers."""
        layers: list[tuple[dict[str, int], bytes]] = []
        segments: list[list[Segment]] = []
        head: dict[str, int] = {"end": 0}
        for count in tiles:
            if not count:
                layers.append(({}, b""))
                segments.append([])
                continue
            head, words, batch = self._segment()
            while not head["sets"] and not head["end"]:
                head, words, batch = self._segment()  # it only stands for a batch without work for this PE
            if not head["sets"]:
                raise ModelFileError(f"chain of PE {self.pe}: layer {len(layers)} has no header")
            own, content = [Segment(len(words), batch, bool(head["once"]))], [words]
            header = {name: head[name] for name in ("filters", "sets", "blocks", "wide_blocks")}
            while head["once"]:
                head, words, batch = self._segment()
                own.append(Segment(len(words), batch, bool(head["once"])))
                content.append(words)
            layers.append((header, self._loop(np.concatenate(content), count if len(own) > 1 else 1)))
            segments.append(own)
        while not head["end"]:
            head, words, batch = self._segment()
            if head["sets"]:
                raise ModelFileError(f"chain of PE {self.pe}: more layers than the program has")
        self._check_batches()
        plain = np.frombuffer(plain_stream(layers), np.uint8).reshape(-1, STREAM_WORD_BYTES)
        return Chain(plain, segments)

    def _segment(self) -> tuple[dict[str, int], Bytes, int | None]:
        """Header, words and batch of the next segment."""
        place, wait = self._place, self._wait
        if wait:
            if self.taken == len(self.batches):
                raise ModelFileError(f"chain of PE {self.pe}: waits for a batch that never comes")
            batch = self.batches[self.taken]
            stop = batch.addresses[self.pe] + len(batch.words[self.pe])
            self.memory[batch.addresses[self.pe] : stop] = batch.words[self.pe]
            self.taken += 1
        head = unpack(STREAMING_HEADER_FIELDS, int.from_bytes(self.memory[place].tobytes(), "little"))
        stop = place + 1 + head["loop_words"]
        if stop > len(self.memory):
            raise ModelFileError(f"chain of PE {self.pe}: {stop} words, the memory has {len(self.memory)}")
        if head["streamed"]:
            batch = self.batches[self.taken - 1]
            if not wait or (batch.addresses[self.pe], len(batch.words[self.pe])) != (place, stop - place):
                raise ModelFileError(f"chain of PE {self.pe}: batch {self.taken - 1} holds another segment")
        elif wait:
            raise ModelFileError(f"chain of PE {self.pe}: a resident segment waits for a batch")
        else:
            self._resident[place:stop] = True
        self._place, self._wait = head["next"], head["wait"]
        return head, self.memory[place + 1 : stop].copy(), self.taken - 1 if head["streamed"] else None

    def _loop(self, words: Bytes, times: int) -> bytes:
        """Find the loop in the words of a layer, which hold it so many times."""
        if len(words) % times or (words.reshape(times, -1) != words[: len(words) // times].reshape(-1)).any():
            raise ModelFileError(f"chain of PE {self.pe}: tiles of a layer have different words")
        return words[: len(words) // times].tobytes()

    def _check_batches(self) -> None:
        """Check that no batch is loaded over segments that may still be read."""
        if self.taken != len(self.batches):
            raise ModelFileError(f"chain of PE {self.pe}: uses {self.taken} of {len(self.batches)} batches")
        ranges = [
            (batch.addresses[self.pe], batch.addresses[self.pe] + len(batch.words[self.pe]))
            for batch in self.batches
        ]
        for number, (start, stop) in enumerate(ranges):
            needed = ranges[self.batches[number].left : number]
            if self._resident[start:stop].any() or any(a < stop and start < b for a, b in needed):
                raise ModelFileError(f"chain of PE {self.pe}: batch {number} overwrites what is still needed")
