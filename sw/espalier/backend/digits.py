"""Weights as operators: digits, parts and the proof that no sum overflows."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
import numpy.typing as npt

from espalier.arch.operators import (
    DIGIT_BITS,
    DIGIT_HIGH,
    DIGIT_LOW,
    MAX_WIDE_WEIGHT,
    split_digits,
)
from espalier.arch.program import ACCUMULATOR_BITS
from espalier.backend.geometry import Geometry
from espalier.errors import CapacityError, InternalError
from espalier.ir.graph import Conv

IntArray = npt.NDArray[np.int64]
CountArray = npt.NDArray[np.int32]


@dataclass(frozen=True)
class Parts:
    """Operators of a convolution and the parts (partial sums) they belong to.

    word, tap, digit, part: int64[N], one element per operator, ordered by part and then by word and tap.
    filter_of, high: int64[P], one element per part; the parts of a filter are consecutive.
    first_part: int64[K + 1], where each filter's parts start. bound: see `HardwareConfig.max_weight_sum`.
    """

    words: int
    word: IntArray
    tap: IntArray
    digit: IntArray
    part: IntArray
    filter_of: IntArray
    high: IntArray
    first_part: IntArray
    bound: int

    @property
    def count(self) -> int:
        """Number of parts."""
        return len(self.filter_of)

    def block_counts(self, block_words: int) -> CountArray:
        """Operators of every part in every block: int32[P, blocks]."""
        blocks = -(-self.words // block_words)
        flat = np.bincount(self.part * blocks + self.word // block_words, minlength=self.count * blocks)
        return flat.reshape(self.count, blocks).astype(np.int32)


def build_parts(node: Conv, geometry: Geometry, bound: int) -> Parts:
    """Split a convolution's weights into digits and its filters into parts that cannot overflow.

    The operators of a filter are dealt to its parts in turn, so that few runs of a part stay empty.
    bound: `HardwareConfig.max_weight_sum`.
    """
    filters, channels = node.weights.shape[:2]
    k, c, ky, kx = np.nonzero(node.weights)
    weight = node.weights[k, c, ky, kx].astype(np.int64)
    word = c * len(geometry.patterns) + geometry.pattern_of[ky, kx]
    tap = geometry.tap_of[ky, kx]
    source, digit, high = _digits(weight, node.weight_bits, node.name)
    k, word, tap = k[source], word[source], tap[source]

    # A group is one filter's digits of one weight: its operators may share a partial sum.
    words = channels * len(geometry.patterns)
    group = k * 2 + high
    order = np.argsort((group * words + word) * (int(geometry.tap_of.max()) + 1) + tap, kind="stable")
    group, word, tap, digit = group[order], word[order], tap[order], digit[order]
    sums = group_sums(group, digit, 2 * filters)
    parts_of_group = -(-sums.max(axis=1) // bound)
    empty = parts_of_group.reshape(filters, 2).sum(axis=1) == 0
    parts_of_group[2 * np.flatnonzero(empty)] = 1  # a filter without weights still has its bias
    local = _deal(group, digit, parts_of_group, bound)

    first = np.concatenate(([0], np.cumsum(parts_of_group)))
    part = first[group] + local
    order = np.argsort(part, kind="stable")
    group_of_part = np.repeat(np.arange(2 * filters), parts_of_group)
    parts = Parts(
        words=words,
        word=word[order],
        tap=tap[order],
        digit=digit[order],
        part=part[order],
        filter_of=group_of_part // 2,
        high=group_of_part % 2,
        first_part=first[::2],
        bound=bound,
    )
    prove_bounds(parts, node)
    return parts


def group_sums(group: IntArray, digit: IntArray, groups: int) -> IntArray:
    """Sum the positive and the negative digits of every group: int64[groups, 2], both not negative."""
    sums = np.bincount(2 * group + (digit < 0), np.abs(digit), 2 * groups)
    return sums.reshape(groups, 2).astype(np.int64)


def prove_bounds(parts: Parts, node: Conv) -> None:
    """Check that no packed partial sum and no filter's sum can overflow, whatever the pixels.

    Raises:
        InternalError: a part exceeds its bound, which is the compiler's fault.
        CapacityError: a filter's sum with its bias exceeds ACCUMULATOR_BITS, which is the network's.

    """
    sums = group_sums(parts.part, parts.digit, parts.count)
    if sums.max(initial=0) > parts.bound:
        raise InternalError(f"layer {node.name}: a part sums to {sums.max()}, the bound is {parts.bound}")
    scale = np.where(parts.high == 1, 1 << DIGIT_BITS, 1)[:, None] * 255
    whole = np.zeros((node.weights.shape[0], 2), np.int64)
    np.add.at(whole, parts.filter_of, sums * scale)
    bias = node.requantisation.bias
    limit = 1 << (ACCUMULATOR_BITS - 1)
    # The bias comes first, then one part after the other: every intermediate sum lies between these.
    high = whole[:, 0] + np.maximum(bias, 0)
    low = -whole[:, 1] + np.minimum(bias, 0)
    worst = np.flatnonzero((high >= limit) | (low < -limit))
    if len(worst):
        filter_index = int(worst[0])
        reach = max(int(high[filter_index]), -int(low[filter_index]))
        raise CapacityError(
            f"layer {node.name}, filter {filter_index}: sums can reach {reach}, the accumulator holds"
            f" {limit - 1}; prune the layer or use fewer weight bits"
        )


def _digits(weight: IntArray, bits: int, name: str) -> tuple[IntArray, IntArray, IntArray]:
    """Operators of every weight: index of the weight, digit, 1 for high digits; zero digits are dropped.

    A digit of eight, which an operator cannot hold, is two operators of four.
    """
    limit = MAX_WIDE_WEIGHT if bits > DIGIT_BITS else DIGIT_HIGH
    lowest = -MAX_WIDE_WEIGHT if bits > DIGIT_BITS else DIGIT_LOW
    if len(weight) and (weight.max() > limit or weight.min() < lowest):
        raise InternalError(
            f"layer {name}: weights {weight.min()}..{weight.max()} do not fit {bits} bits ({lowest}..{limit})"
        )
    high, low = split_digits(weight) if bits > DIGIT_BITS else (np.zeros_like(weight), weight)
    eight = (low == DIGIT_LOW) & (high == 1)  # 16 - 8: cheaper without a high digit
    high, low = np.where(eight, 0, high), np.where(eight, -DIGIT_LOW, low)
    source = np.concatenate((np.flatnonzero(high), np.flatnonzero(low)))
    which = np.repeat((1, 0), (np.count_nonzero(high), np.count_nonzero(low)))
    digit = np.where(which == 1, high[source], low[source])
    # Operators hold three bits and a sign.
    copies = np.where(np.abs(digit) == -DIGIT_LOW, 2, 1)
    return np.repeat(source, copies), np.repeat(digit // copies, copies), np.repeat(which, copies)


def _deal(group: IntArray, digit: IntArray, parts_of_group: IntArray, bound: int) -> IntArray:
    """Part of every operator inside its group; enlarges `parts_of_group` where the bound demands it."""
    starts = np.searchsorted(group, np.arange(len(parts_of_group) + 1))
    rank = np.arange(len(group)) - starts[group]
    local: IntArray = rank % np.maximum(parts_of_group, 1)[group]
    first = np.concatenate(([0], np.cumsum(parts_of_group)))
    sums = group_sums(first[:-1][group] + local, digit, int(first[-1]))
    failed = np.flatnonzero(sums.max(axis=1, initial=0) > bound)
    owners = np.repeat(np.arange(len(parts_of_group)), parts_of_group)[failed]
    for index in np.unique(owners):
        members = slice(starts[index], starts[index + 1])
        most = int(parts_of_group[index])
        local[members], parts_of_group[index] = _deal_exactly(digit[members], most, bound)
    return local


def _deal_exactly(digit: IntArray, parts: int, bound: int) -> tuple[IntArray, int]:
    """Largest digits first, each to the part with the smallest sum of its sign; more parts until it fits."""
    order = np.argsort(-np.abs(digit), kind="stable")
    while True:
        sums = np.zeros((2, parts), np.int64)
        local = np.zeros(len(digit), np.int64)
        for index in order:
            sign = int(digit[index] < 0)
            part = int(sums[sign].argmin())
            local[index] = part
            sums[sign, part] += abs(int(digit[index]))
        if sums.max(initial=0) <= bound:
            return local, parts
        parts += 1
