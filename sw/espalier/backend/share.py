"""Sharing of filters between PEs, block by block.

Whole filters are too coarse to give all PEs the same load: the totals differ, and inside a set the loads
drift apart by more than the window rings can hold. So filters are shared between pairs of PEs: both sum some
of the operators, and in every block as many move to one or the other as keeps all PEs together. A filter that
needs two parts anyway is shared at no cost; a part that is cut in two costs an accumulator, a run per block
and a table entry.
"""

from __future__ import annotations

import dataclasses
from dataclasses import dataclass

import numpy as np

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
    cost = np.maximum(counts, 1).sum(axis=1).astype(np.int64)
    order = filter_order(parts, cost)
    bins = deal_to_bins(parts, cost, order, shape)
    if bins is None or max(shape.pes) < 2:
        return None
    links = _choose(parts, cost, bins, shape, cuts)
    place = _deal_rest(parts, cost, order, bins, links, shape) if len(links.part) else None
    if place is None:
        return None
    taken = _balance(counts, place, links, shape)
    return _exchange(parts, place, links, taken, block_words, shape)


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


def _choose(parts: Parts, cost: IntArray, bins: IntArray, shape: Shape, cuts: int) -> _Links:
    """Choose what is shared: the largest parts, cut in two, or all pairs of parts of one filter."""
    alike = parts.filter_of * 2 + parts.high  # parts of one filter and digit are consecutive
    index = np.arange(parts.count) - np.searchsorted(alike, alike)
    even = index % 2 == 0
    paired = even & np.append(alike[1:] == alike[:-1], False)
    sums = group_sums(parts.part, parts.digit, parts.count + 1)
    # Where both parts are nearly full, no operator can move.
    movable = paired & ((sums[:-1] + sums[1:]).max(axis=1) <= _PAIR_LIMIT * 2 * MAX_WEIGHT_SUM)
    rows = []
    for place in range(shape.bins):
        rounds = tournament(shape.pes_of(place))
        size = len(rounds[0][0])
        if size == 0:
            continue
        units = _largest_first(np.flatnonzero((bins == place) & (movable if cuts == 0 else True)), cost)
        groups = min(cuts or len(units), len(units) // size)
        for number, part in enumerate(units[: groups * size]):
            group, position = divmod(number, size)
            left, right = rounds[group % len(rounds)]
            other = part + 1 if cuts == 0 else -1
            rows.append((part, other, place, group, left[position], right[position]))
    table = np.array(rows, np.int64).reshape(-1, 6)
    return _Links(*table.T)


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
    for part in parts_in_order(parts, order):
        if place[part] < 0:
            pe = take_least_loaded(heaps[bins[part]], int(cost[part]), shape.accumulators)
            place[part] = bins[part] * shape.width + pe
    return place


def _balance(counts: CountArray, place: IntArray, links: _Links, shape: Shape) -> IntArray:
    """Operators of every link that its left PE takes, block by block: int64[links, blocks].

    PEs exchange operators until their loads since the start of the set are equal, or none is left to move.
    """
    blocks = counts.shape[1]
    paired = links.other >= 0
    alone = np.ones(len(place), np.bool_)
    alone[links.part] = False
    alone[links.other[paired]] = False
    fixed = np.zeros((shape.bins * shape.width, blocks), np.int64)
    np.add.at(fixed, place[alone], np.maximum(counts[alone], 1))
    total = counts[links.part].astype(np.int64)
    total[paired] += counts[links.other[paired]]
    left, right = links.bin * shape.width + links.left, links.bin * shape.width + links.right
    groups = [np.flatnonzero(links.group == group) for group in range(int(links.group.max()) + 1)]
    ends = [(own, left[own], right[own]) for own in groups]
    low = (total >= 2).astype(np.int64)  # an empty run would cost a null operator
    high = total - low
    taken = total // 2
    drift = np.zeros(shape.bins * shape.width)
    pes = np.array([shape.pes_of(index) for index in range(shape.bins)])
    sweeps = max(1, _EXCHANGES // len(groups))
    for block in range(blocks):
        share, least, most = taken[:, block], low[:, block], high[:, block]
        load = drift + fixed[:, block]
        np.add.at(load, left, np.maximum(share, 1))
        np.add.at(load, right, np.maximum(total[:, block] - share, 1))
        for own, a, b in ends * sweeps:
            wish = share[own] + np.rint((load[b] - load[a]) / 2).astype(np.int64)
            wish = np.minimum(np.maximum(wish, least[own]), most[own])
            change = np.where(most[own] > least[own], wish - share[own], 0)
            share[own] += change
            load[a] += change
            load[b] -= change
        # PEs that a smaller branch does not have carry no load, and nothing is shared with them.
        mean = load.reshape(shape.bins, -1).sum(axis=1) / pes
        drift = load - np.repeat(mean, shape.width)
        drift.reshape(shape.bins, -1)[np.arange(shape.width) >= pes[:, None]] = 0
    return taken


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
