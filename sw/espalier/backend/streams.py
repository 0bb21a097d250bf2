"""Operator streams: the order of a PE's operators and their encoding."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass

import numpy as np
import numpy.typing as npt

from espalier.arch.fields import Field, pack
from espalier.arch.operators import (
    HEADER_FIELDS,
    OPERATOR_BITS,
    OPERATOR_FIELDS,
    OPERATORS_PER_WORD,
    STREAM_WORD_BITS,
    STREAMING_HEADER_FIELDS,
)
from espalier.backend.plan import IntArray, Plan

STREAM_WORD_BYTES = STREAM_WORD_BITS // 8
WIDE_BLOCK = 16  # window words of a block; the others have half as many

_SHIFTS = {
    field.name: sum(before.bits for before in OPERATOR_FIELDS[:position])
    for position, field in enumerate(OPERATOR_FIELDS)
}
_WEIGHT_MASK = (1 << OPERATOR_FIELDS[0].bits) - 1


@dataclass(frozen=True)
class PeStream:
    """A layer's loop in one PE's stream: 9-byte words, operators of one loop without nulls, nulls."""

    words: bytes
    operators: int
    nulls: int


@dataclass(frozen=True)
class LayerStream:
    """A layer in a PE's stream: fields of its header, and the 9-byte words of its loop.

    strips: times that the loop is walked in every strip of the layer; empty: the PE rests. ends: operators up
    to the end of every block of the loop, int64[passes * blocks].
    """

    header: dict[str, int]
    loop: bytes
    strips: tuple[int, ...]
    ends: IntArray


RESTS = LayerStream({}, b"", (), np.zeros(0, np.int64))


def layer_stream(
    loop: bytes, plan: Plan, own: tuple[int, int], strips: Sequence[int], wide: bool
) -> LayerStream:
    """Describe the layer's part of a PE's stream. own: branch and PE in the plan; strips: tiles of each."""
    passes, blocks = plan.operators[own].shape
    filters = int(plan.deal.filters[own])
    values = {"filters": filters, "sets": sum(strips) * passes, "blocks": blocks, "wide_blocks": int(wide)}
    return LayerStream(values, loop, tuple(strips), plan.block_ends(*own))


def plain_stream(layers: Iterable[tuple[dict[str, int], bytes]]) -> bytes:
    """Encode the stream of hardware without `streaming`: layer after layer, and the word that ends it.

    layers: fields of each header but the words of the loop, and these.
    """
    content = [
        _header(HEADER_FIELDS, header | {"loop_words": len(loop) // STREAM_WORD_BYTES}) + loop
        for header, loop in layers
    ]
    return b"".join(content) + _header(HEADER_FIELDS, {"end": 1})


def segment_header(values: dict[str, int]) -> bytes:
    """Encode a header of hardware with `streaming`."""
    return _header(STREAMING_HEADER_FIELDS, values)


def _header(fields: tuple[Field, ...], values: dict[str, int]) -> bytes:
    return pack(fields, values).to_bytes(STREAM_WORD_BYTES, "little")


def build_streams(plan: Plan, block_words: int) -> list[list[PeStream]]:
    """Loops of all PEs of a tile group, [branch][PE], PEs that a branch does not have left out.

    Operators are ordered by pass, block, slot (filter), word and tap. A run's nulls stand before its
    operators; runs without operators are left out.
    """
    parts, lengths = plan.parts, plan.lengths.astype(np.int64)
    branches, pes, _, _, slots = lengths.shape
    ends = np.cumsum(lengths.reshape(-1)).reshape(lengths.shape)
    code = np.zeros(int(ends[-1, -1, -1, -1, -1]), np.uint32)
    used = lengths > 0
    walked = np.arange(slots) < plan.deal.filters[:, :, None, None, None]
    skip = np.zeros(lengths.shape, np.uint32)
    skip[..., :-1] = walked[..., 1:] & ~used[..., 1:]
    code[ends[used] - 1] = 1 << _SHIFTS["end_of_run"] | skip[used] << _SHIFTS["skip"]

    # Where each part lives, then the run of each operator as one flat index.
    branch, pe, which, slot = np.nonzero(plan.deal.part_at >= 0)
    home = np.zeros((parts.count, 4), np.int64)
    home[plan.deal.part_at[branch, pe, which, slot]] = np.stack([branch, pe, which, slot], axis=1)
    block = parts.word // block_words
    at = home[parts.part]
    run = np.ravel_multi_index((at[:, 0], at[:, 1], at[:, 2], block, at[:, 3]), lengths.shape)
    order = np.argsort(run, kind="stable")  # parts already hold their operators by word and tap
    run = run[order]
    count = np.bincount(run, minlength=lengths.size)
    rank = np.arange(len(run)) - (np.cumsum(count) - count)[run]
    position = ends.reshape(-1)[run] - count[run] + rank
    digit = (parts.digit[order] & _WEIGHT_MASK).astype(np.uint32)
    word = (parts.word[order] % block_words).astype(np.uint32)
    code[position] |= digit | word << _SHIFTS["slot"] | parts.tap[order].astype(np.uint32) << _SHIFTS["tap"]

    bounds = np.concatenate(([0], ends[:, :, -1, -1, slots - 1].reshape(-1)))
    real = np.add.reduceat(count, np.arange(branches * pes) * (lengths.size // (branches * pes)))
    return [
        [
            _pe_stream(code[bounds[index] : bounds[index + 1]], int(real[index]))
            for index in range(branch * pes, branch * pes + own)
        ]
        for branch, own in enumerate(plan.pes)
    ]


def encode_operators(code: npt.NDArray[np.uint32]) -> bytes:
    """Operators (uint32, a multiple of six) as stream words, first operator in the low bits."""
    pairs = code[0::2] | code[1::2] << OPERATOR_BITS
    return pairs.astype("<u4").view(np.uint8).reshape(-1, 4)[:, :3].tobytes()


def _pe_stream(code: npt.NDArray[np.uint32], operators: int) -> PeStream:
    assert len(code) % OPERATORS_PER_WORD == 0, "a loop is whole words"
    return PeStream(encode_operators(code), operators, len(code) - operators)


def block_sizes(words: int, block_words: int) -> IntArray:
    """Window words of every block of a pass; the last may be shorter."""
    sizes = np.full(-(-words // block_words), block_words, np.int64)
    sizes[-1] = words - block_words * (len(sizes) - 1)
    return sizes
