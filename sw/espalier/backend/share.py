"""Sharing of filters between PEs, block by block.

Whole filters are too coarse to give all PEs the same load: the totals differ, and inside a set the loads
drift apart by more than the window rings can hold. So filters are shared between pairs of PEs: both sum some
of the operators, and in every block as many move to one or the other as keeps all PEs together. A filter that
needs two parts anyway is shared at no cost; a part that is cut in two costs an accumulator, a run per block
and a table entry.
"""

from __future__ import annotations

import dataclasses
from collections.abc import Sequence
from dataclasses import dataclass
from functools import lru_cache

import numpy as np
import numpy.typing as npt

from espalier.arch.operators import MAX_WEIGHT_SUM
from espalier.backend.deal import (
    Shape,
    as_deal,
    deal_to_bins,
    filter_order,
    parts_in_order,
    take_least_loaded,
)
from espalier.backend.digits import Parts, group_sums
from espalier.backend.plan import CountArray, Deal, IntArray

_PAIR_LIMIT = 0.8  # of the bound of two parts, up to which they are shared
_EXCHANGES = 12  # of every PE with others per block; what is left moves on in the next block
_MOST_GROUPS = 12  # of links of a PE


@dataclass(frozen=True)
class _Links:
    """Shared parts, one element per link.

    part, other: the parts whose operators are shared, other = -1 if the part is cut in two. bin: where;
    left, right: PEs. Links of one group touch no PE twice, so that they can be balanced at once.
    """

    part: IntArray
    other: IntArray
    bin: IntArray
    group: IntArray
    left: IntArray
    right: IntArray


def share_parts(
    parts: Parts, counts: CountArray, block_words: int, shape: Shape, cuts: int
) -> tuple[Parts, Deal] | None:
    """Deal filters by load, some of them shared; None if they do not fit or nothing can be shared.

    counts: int32[P, blocks], operators of every part in every block. cuts: parts per PE that are cut in order
    to be shared; with 0 only filters that need two parts anyway are shared.
    """
    return share_variants(parts, counts, block_words, [(shape, (cuts,))])[0]


def share_variants(
    parts: Parts, counts: CountArray, block_words: int, variants: Sequence[tuple[Shape, tuple[int, ...]]]
) -> list[tuple[Parts, Deal] | None]:
    """Share filters in several ways at once, which is much faster: for all shapes and all their cuts."""
    cost = np.maximum(counts.sum(axis=1, dtype=np.int64), 1)
    order, movable = filter_order(parts, cost), _movable(parts)
    found: list[tuple[_Links, IntArray, Shape] | None] = []
    for shape, choices in variants:
        bins = deal_to_bins(parts, cost, order, shape)
        for cuts in choices:
            links = _choose(movable, cost, bins, shape, cuts) if bins is not None else None
            place = None
            if bins is not None and links is not None and len(links.part):
                place = _deal_rest(parts, cost, order, bins, links, shape)
            found.append((links, place, shape) if links is not None and place is not None else None)
    jobs = [job for job in found if job is not None]
    taken = iter(_balance(counts, jobs))
    return [
        _exchange(parts, job[1], job[0], next(taken), block_words, job[2]) if job is not None else None
        for job in found
    ]


@lru_cache
def tournament(players: int) -> list[tuple[IntArray, IntArray]]:
    """Plan rounds in which everybody meets everybody once: (left, right) players of every round."""
    even = players + players % 2
    circle = np.arange(1, even)
    rounds = []
    for turn in range(even - 1):
        seats = np.concatenate(([0], np.roll(circle, turn)))
        left, right = seats[: even // 2], seats[::-1][: even // 2]
        meet = (left < players) & (right < players)
        rounds.append((left[meet], right[meet]))
    return rounds


def _movable(parts: Parts) -> npt.NDArray[np.bool_]:
    """Whether a part and the next one are of one filter and can exchange operators: bool[P]."""
    alike = parts.filter_of * 2 + parts.high  # parts of one filter and digit are consecutive
    index = np.arange(parts.count) - np.searchsorted(alike, alike)
    even = index % 2 == 0
    paired = even & np.append(alike[1:] == alike[:-1], False)
    sums = group_sums(parts.part, parts.digit, parts.count + 1)
    # Where both parts are nearly full, no operator can move.
    movable: npt.NDArray[np.bool_] = paired & (
        (sums[:-1] + sums[1:]).max(axis=1) <= _PAIR_LIMIT * 2 * MAX_WEIGHT_SUM
    )
    return movable


def _choose(
    movable: npt.NDArray[np.bool_], cost: IntArray, bins: IntArray, shape: Shape, cuts: int
) -> _Links | None:
    """Choose what is shared: the largest parts, cut in two, or all pairs of parts of one filter."""
    columns: list[IntArray] = []
    for place in range(shape.bins):
        rounds = tournament(shape.pes_of(place))
        size = len(rounds[0][0])
        if size == 0:
            continue
        units = _largest_first(np.flatnonzero((bins == place) & (movable if cuts == 0 else True)), cost)
        groups = min(cuts or len(units), len(units) // size, _MOST_GROUPS)
        part = units[: groups * size]
        group = np.repeat(np.arange(groups), size)
        ends = [
            np.concatenate([rounds[g % len(rounds)][side] for g in range(groups)] or [part])
            for side in (0, 1)
        ]
        other = part + 1 if cuts == 0 else np.full_like(part, -1)
        columns.append(np.stack([part, other, np.full_like(part, place), group, *ends]))
    return _Links(*np.concatenate(columns, axis=1)) if columns else None


def _largest_first(members: IntArray, cost: IntArray) -> IntArray:
    return members[np.argsort(-cost[members], kind="stable")]


def _deal_rest(
    parts: Parts, cost: IntArray, order: IntArray, bins: IntArray, links: _Links, shape: Shape
) -> IntArray | None:
    """Place of every part, bin * width + PE, the left PE for a part that is cut: int64[P]."""
    place = np.full(parts.count, -1, np.int64)
    load = np.zeros(shape.bins * shape.width, np.int64)
    left, right = links.bin * shape.width + links.left, links.bin * shape.width + links.right
    paired = links.other >= 0
    place[links.part] = left
    place[links.other[paired]] = right[paired]
    half = (cost[links.part] + np.where(paired, cost[links.other], 0)) // 2
    np.add.at(load, left, half)
    np.add.at(load, right, half)
    held = np.bincount(np.concatenate((left, right)), minlength=len(load))
    loads, holds = load.reshape(shape.bins, -1), held.reshape(shape.bins, -1)
    pes = np.array([shape.pes_of(index) for index in range(shape.bins)])
    heaps = [
        sorted((int(loads[index, pe]), int(holds[index, pe]), pe) for pe in range(pes[index]))
        for index in range(shape.bins)
    ]
    room = pes * shape.accumulators - holds.sum(axis=1)
    if (np.bincount(bins[place < 0], minlength=shape.bins) > room).any():
        return None
    rest = parts_in_order(parts, order)
    rest = rest[place[rest] < 0]
    width, accumulators = shape.width, shape.accumulators
    chosen = [
        index * width + take_least_loaded(heaps[index], more, accumulators)
        for index, more in zip(bins[rest].tolist(), cost[rest].tolist(), strict=True)
    ]
    place[rest] = chosen
    return place


def _balance(counts: CountArray, jobs: list[tuple[_Links, IntArray, Shape]]) -> list[IntArray]:
    """Operators of every link that its left PE takes, block by block: int64[links, blocks] of every job.

    PEs exchange operators until their loads since the start of the set are equal, or none is left to move.
    """
    if not jobs:
        return []
    blocks = counts.shape[1]
    fixed, totals, lefts, rights = [], [], [], []
    rounds: list[list[IntArray]] = [[] for _ in range(_EXCHANGES)]  # links that are balanced at once
    first_pe = first_link = 0
    for links, place, shape in jobs:
        paired = links.other >= 0
        alone = np.ones(len(place), np.bool_)
        alone[links.part] = False
        alone[links.other[paired]] = False
        pes = np.arange(shape.bins * shape.width)[:, None]
        load = (place[alone] == pes).astype(np.float32) @ counts[alone].astype(np.float32)
        fixed.append(load.astype(np.int64))
        total = counts[links.part].astype(np.int64)
        total[paired] += counts[links.other[paired]]
        totals.append(total)
        start = first_pe + links.bin * shape.width
        lefts.append(start + links.left)
        rights.append(start + links.right)
        groups = int(links.group.max()) + 1
        members = [first_link + np.flatnonzero(links.group == group) for group in range(groups)]
        for turn, found in enumerate(rounds):
            found.append(members[turn % groups])
        first_pe += len(load)
        first_link += len(total)
    left, right = np.concatenate(lefts), np.concatenate(rights)
    turns = [(own, left[own], right[own]) for own in map(np.concatenate, rounds)]
    most = np.ascontiguousarray(np.concatenate(totals).T)
    least = (most >= 2).astype(np.int64)  # an empty run often costs a null operator
    most -= least
    added = np.ascontiguousarray(np.concatenate(fixed).T)
    taken = (most + least) // 2
    load = np.zeros(first_pe, np.int64)
    for block in range(blocks):
        share, low, high = taken[block], least[block], most[block]
        load += added[block]
        load += np.bincount(left, share, first_pe).astype(np.int64)
        load += np.bincount(right, low + high - share, first_pe).astype(np.int64)
        for own, a, b in turns:
            before = share[own]
            change = (load[b] - load[a]) >> 1
            change += before
            np.maximum(change, low[own], out=change)
            np.minimum(change, high[own], out=change)
            share[own] = change
            change -= before
            load[a] += change
            load[b] -= change
    ends = np.cumsum([len(total) for total in totals])[:-1]
    return [np.ascontiguousarray(own.T) for own in np.split(taken, ends, axis=1)]


def _exchange(
    parts: Parts,
    place: IntArray,
    links: _Links,
    taken: IntArray,
    block_words: int,
    shape: Shape,
) -> tuple[Parts, Deal] | None:
    """Give every operator of a link to the part on the left or on the right; cut parts get a second one."""
    paired = links.other >= 0
    link_of = np.full(parts.count, -1, np.int64)
    link_of[links.part] = np.arange(len(links.part))
    link_of[links.other[paired]] = np.flatnonzero(paired)
    cut = np.zeros(parts.count, np.int64)
    cut[links.part[~paired]] = 1
    start = np.cumsum(1 + cut) - (1 + cut)  # numbers of the parts once cut parts are two
    first, second = start[links.part], start[links.part] + 1

    link = link_of[parts.part]
    shared = np.flatnonzero(link >= 0)
    blocks = taken.shape[1]
    group = link[shared] * blocks + parts.word[shared] // block_words
    order_of = np.argsort(group, kind="stable")
    shared, group = shared[order_of], group[order_of]
    begin = np.concatenate(([0], np.cumsum(np.bincount(group, minlength=taken.size))))
    to_left = np.arange(len(group)) - begin[group] < taken.reshape(-1)[group]
    part = start[parts.part]
    moved = part.copy()
    moved[shared] = np.where(to_left, first[link[shared]], second[link[shared]])
    moved = _undo_overflows(part, moved, link, parts, first, second)

    # Parts hold their operators by word and tap, the parts of a link too.
    sequence = np.argsort(moved * parts.words + parts.word if paired.any() else moved, kind="stable")
    split = dataclasses.replace(
        parts,
        word=parts.word[sequence],
        tap=parts.tap[sequence],
        digit=parts.digit[sequence],
        part=moved[sequence],
        filter_of=np.repeat(parts.filter_of, 1 + cut),
        high=np.repeat(parts.high, 1 + cut),
        first_part=np.append(start, (1 + cut).sum())[parts.first_part],
    )
    where = np.repeat(place, 1 + cut)
    where[second[~paired]] = (links.bin * shape.width + links.right)[~paired]
    deal = as_deal(split, where, shape)
    return (split, deal) if deal is not None else None


def _undo_overflows(
    before: IntArray, moved: IntArray, link: IntArray, parts: Parts, first: IntArray, second: IntArray
) -> IntArray:
    """Leave the operators of a link where they were if a part would exceed MAX_WEIGHT_SUM."""
    count = int(max(moved.max(initial=0), second.max(initial=0))) + 1
    sums = group_sums(moved, parts.digit, count).max(axis=1)
    failed = np.maximum(sums[first], sums[second]) > MAX_WEIGHT_SUM
    undo = (link >= 0) & failed[link]
    return np.where(undo, before, moved)
