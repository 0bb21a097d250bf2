"""Streams of hardware with `streaming`: chains of segments, some resident, the others in batches from DDR.

Batches are numbered in the order in which they are loaded and used. Every PE has a segment in every batch.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field

import numpy as np

from espalier.arch.config import HardwareConfig
from espalier.arch.operators import OPERATORS_PER_WORD
from espalier.arch.program import MOST_BATCHES_AHEAD
from espalier.backend.plan import IntArray, Residence
from espalier.backend.sections import BEAT_BYTES, build_batch
from espalier.backend.streams import RESTS, STREAM_WORD_BYTES, LayerStream, segment_header
from espalier.errors import InternalError


@dataclass
class _Segment:
    """`batch`: number, -1 if resident."""

    header: dict[str, int]
    words: bytes
    batch: int
    once: bool = False
    address: int = -1

    @property
    def size(self) -> int:
        """Words, header included."""
        return 1 + len(self.words) // STREAM_WORD_BYTES


@dataclass
class ChainedStreams:
    """resident: content of every PE's memory from word 0 on. batches: in the order of their numbers."""

    resident: list[bytes]
    batches: list[bytes] = field(default_factory=list)


def chain_streams(
    streams: Sequence[Sequence[LayerStream]],
    residences: Sequence[Residence],
    config: HardwareConfig,
    whole_bursts: bool,
) -> ChainedStreams:
    """Place the streams [PE][convolution] and chain their segments.

    Raises:
        InternalError: a PE's part of a batch is larger than what residents leave of the memory.

    """
    chains = [_segments(layers, residences) for layers in streams]
    bases = []
    for chain in chains:
        bases.append(0)
        for segment in chain:
            if segment.batch < 0:
                segment.address = bases[-1]
                bases[-1] += segment.size
    count = sum(residence.batches for residence in residences)
    parts = [[segment for segment in chain if segment.batch >= 0] for chain in chains]
    left = _place_batches(parts, bases, count, config.stream_depth_words)
    content = [[_encode(s, n) for s, n in zip(chain, [*chain[1:], None], strict=True)] for chain in chains]
    resident = [
        b"".join(word for segment, word in zip(chain, words, strict=True) if segment.batch < 0)
        for chain, words in zip(chains, content, strict=True)
    ]
    pieces: list[list[tuple[int, bytes]]] = [[] for _ in range(count)]
    for chain, words in zip(chains, content, strict=True):
        for segment, word in zip(chain, words, strict=True):
            if segment.batch >= 0:
                pieces[segment.batch].append((segment.address, word))
    batches: list[bytes] = []
    for number in reversed(range(count)):
        following = len(batches[-1]) // BEAT_BYTES if batches else 0
        needed = left[number + 1] if batches else 0
        batches.append(build_batch(pieces[number], needed, following, config, whole_bursts))
    return ChainedStreams(resident, batches[::-1])


def _segments(layers: Sequence[LayerStream], residences: Sequence[Residence]) -> list[_Segment]:
    """Segments of a PE in the order of its chain; the hardware wants the first one to be resident."""
    chain: list[_Segment] = []
    batch = 0
    for layer, residence in zip(layers, residences, strict=True):
        if not residence.batches:
            chain.append(_Segment(layer.header, layer.loop, -1))
            continue
        if not chain:
            chain.append(_Segment(RESTS.header, RESTS.loop, -1))
        if residence.batches > 1:
            chain += _cut(layer, residence, batch)
        else:
            chain.append(_Segment(layer.header, layer.loop, batch))
        batch += residence.batches
    return [*chain, _Segment({"end": 1}, b"", -1)]


def cut_points(ends: IntArray, tiles: int, parts: int) -> IntArray:
    """Cut the words of a loop that is walked `tiles` times: word where each part begins, int64[parts + 1].

    ends: see `LayerStream`. All PEs are cut behind the same blocks, so that what has been loaded is enough to
    come to the end of it, and to leave it. The last word of a part may hold operators of the next block.
    """
    words = -(-ends // OPERATORS_PER_WORD)
    tile, block = np.divmod(tiles * len(ends) * np.arange(parts + 1) // parts, len(ends))
    points: IntArray = tile * words[-1] + np.where(block > 0, words[block - 1], 0)
    return points


def strip_cuts(ends: IntArray, strips: Sequence[int], parts: Sequence[int]) -> IntArray:
    """Cut the words of a layer: word where each part begins, and the end, int64[sum(parts) + 1].

    strips, parts: how often each strip walks the loop, and in how many parts that is cut. No part holds words
    of two strips: one PE might need it to end a strip, and another one not leave the part before it without
    the next strip.
    """
    points, begun = [np.zeros(1, np.int64)], 0
    for tiles, count in zip(strips, parts, strict=True):
        points.append(begun + cut_points(ends, tiles, count)[1:])
        begun = int(points[-1][-1])
    return np.concatenate(points)


def _cut(layer: LayerStream, residence: Residence, first: int) -> list[_Segment]:
    """Segments that are read once, one for each batch from `first` on."""
    batches = residence.batches
    if not layer.strips:
        return [_Segment({}, b"", first + part) for part in range(batches)]
    content = layer.loop * sum(layer.strips)
    points = strip_cuts(layer.ends, layer.strips, residence.of_strips or (batches,)) * STREAM_WORD_BYTES
    return [
        _Segment(
            {} if part else layer.header,
            content[points[part] : points[part + 1]],
            first + part,
            once=part + 1 < batches,
        )
        for part in range(batches)
    ]


def _place_batches(
    parts: Sequence[Sequence[_Segment]], bases: Sequence[int], count: int, depth: int
) -> list[int]:
    """Place the batches one behind the other, around and around behind the residents of every PE.

    Returns how many batches must have been left before each of them may be loaded.
    """
    left = [max(0, number - MOST_BATCHES_AHEAD) for number in range(count)]
    for segments, base in zip(parts, bases, strict=True):
        end = base
        for number, segment in enumerate(segments):
            if base + segment.size > depth:
                raise InternalError(
                    f"batch {number} has {segment.size} words for a PE, {depth - base} are free"
                )
            segment.address = base if end + segment.size > depth else end
            end = segment.address + segment.size
            over = [
                other
                for other, before in enumerate(segments[:number])
                if before.address < end and segment.address < before.address + before.size
            ]
            if over:
                left[number] = max(left[number], over[-1] + 1)
    # A batch cannot be loaded before the one before it.
    for number in range(1, count):
        left[number] = max(left[number], left[number - 1])
    return left


def _encode(segment: _Segment, following: _Segment | None) -> bytes:
    values = segment.header | {
        "loop_words": segment.size - 1,
        "streamed": int(segment.batch >= 0),
        "once": int(segment.once),
    }
    if following is not None:
        values |= {"next": following.address, "wait": int(following.batch >= 0)}
    return segment_header(values) + segment.words
