"""Sharing of filters between PEs, block by block.

Whole filters are too coarse to give all PEs the same load: the totals differ, and inside a set the loads
drift apart by more than the window rings can hold. So filters are shared between pairs of PEs: both sum some
of the operators, and in every block as many move to one or the other as keeps all PEs together. A filter that
needs two parts anyway is shared at no cost; a part that is cut in two costs an accumulator, a run per block
and a table entry.
"""

from __future__ import annotations

import heapq
import itertools
from collections.abc import Sequence
from dataclasses import dataclass
from functools import lru_cache

import numpy as np
import numpy.typing as npt

from espalier.backend.deal import Shape, deal_to_bins, filter_order, parts_in_order
from espalier.backend.digits import Parts, group_sums
from espalier.backend.exchange import Exchange, Links, SharedParts
from espalier.backend.plan import CountArray, IntArray

_PAIR_LIMIT = 0.8  # of the bound of two parts, up to which they are shared
_EXCHANGES = 12  # of every PE with others per block; what is left moves on in the next block
_MOST_GROUPS = 12  # of links of a PE


@dataclass(frozen=True)
class _Job:
    """What is shared. place: int64[P], bin * width + PE of every part, the left PE if the part is cut."""

    links: Links
    place: IntArray
    shape: Shape


class Sharing:
    """Ways to share the filters of one layer; what is shared does not depend on the size of blocks."""

    def __init__(self, parts: Parts) -> None:
        self.parts = parts
        self._cost = np.maximum(np.bincount(parts.part, minlength=parts.count), 1)
        self._order = filter_order(parts, self._cost)
        self._in_order = parts_in_order(parts, self._order)
        self._movable = _movable(parts)
        self._bins: dict[Shape, IntArray | None] = {}
        self._jobs: dict[tuple[Shape, int], _Job | None] = {}

    def variants(
        self, counts: CountArray, block_words: int, asked: Sequence[tuple[Shape, int]]
    ) -> list[SharedParts | None]:
        """Share filters in several ways at once, which is much faster: shapes and parts per PE that are cut.

        What comes out the same, because there is nothing more to cut, is the same object.
        """
        jobs = [self._job(shape, cuts) for shape, cuts in asked]
        different = list({id(job): job for job in jobs if job is not None}.values())
        exchange = Exchange(self.parts, counts, block_words)
        made = {
            id(job): exchange.shared(job.links, job.place, taken, job.shape)
            for job, taken in zip(different, _balance(counts, different), strict=True)
        }
        return [made.get(id(job)) for job in jobs]

    def _job(self, shape: Shape, cuts: int) -> _Job | None:
        """Choose what is shared and deal the rest; None if that does not fit or there is nothing to share."""
        if (shape, cuts) not in self._jobs:
            self._jobs[shape, cuts] = self._new_job(shape, cuts)
        return self._jobs[shape, cuts]

    def _new_job(self, shape: Shape, cuts: int) -> _Job | None:
        if shape not in self._bins:
            self._bins[shape] = deal_to_bins(self.parts, self._cost, self._order, shape)
        bins = self._bins[shape]
        links = _choose(self._movable, self._cost, bins, shape, cuts) if bins is not None else None
        if bins is None or links is None or not len(links.part):
            return None
        fewer = self._jobs.get((shape, cuts - 1)) if cuts > 1 else None
        if fewer is not None and len(fewer.links.part) == len(links.part):
            return fewer
        place = _deal_rest(self._cost, self._in_order, bins, links, shape)
        return _Job(links, place, shape) if place is not None else None


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
        (sums[:-1] + sums[1:]).max(axis=1) <= _PAIR_LIMIT * 2 * parts.bound
    )
    return movable


def _choose(
    movable: npt.NDArray[np.bool_], cost: IntArray, bins: IntArray, shape: Shape, cuts: int
) -> Links | None:
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
    return Links(*np.concatenate(columns, axis=1)) if columns else None


def _largest_first(members: IntArray, cost: IntArray) -> IntArray:
    return members[np.argsort(-cost[members], kind="stable")]


def _deal_rest(
    cost: IntArray, in_order: IntArray, bins: IntArray, links: Links, shape: Shape
) -> IntArray | None:
    """Place of every part, bin * width + PE, the left PE for a part that is cut: int64[P]; None: no room."""
    place = np.full(len(cost), -1, np.int64)
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
    room = pes * shape.accumulators - holds.sum(axis=1)
    if (np.bincount(bins[place < 0], minlength=shape.bins) > room).any():
        return None
    rest = in_order[place[in_order] < 0]
    for index in range(shape.bins):
        own = rest[bins[rest] == index]
        entries = zip(loads[index].tolist(), holds[index].tolist(), range(pes[index]), strict=False)
        chosen = _to_least_loaded(list(entries), cost[own].tolist(), shape.accumulators)
        place[own] = index * shape.width + np.array(chosen, np.int64)
    return place


def _to_least_loaded(pes: list[tuple[int, int, int]], costs: list[int], accumulators: int) -> list[int]:
    """Add parts to the PE with the least load that has an accumulator left; pes: (load, parts, PE)."""
    heap = [entry for entry in pes if entry[1] < accumulators]
    heapq.heapify(heap)
    chosen = []
    for cost in costs:
        load, count, pe = heap[0]
        chosen.append(pe)
        if count + 1 < accumulators:
            heapq.heapreplace(heap, (load + cost, count + 1, pe))
        else:
            heapq.heappop(heap)
    return chosen


def _balance(counts: CountArray, jobs: list[_Job]) -> list[IntArray]:
    """Operators of every link that its left PE takes, block by block: int64[links, blocks] of every job.

    PEs exchange operators until their loads since the start of the set are equal, or none is left to move.
    """
    if not jobs:
        return []
    blocks = counts.shape[1]
    fixed, totals, lefts, rights = [], [], [], []
    rounds: list[list[IntArray]] = [[] for _ in range(_EXCHANGES)]  # links that are balanced at once
    first_pe = first_link = 0
    for job in jobs:
        links, shape = job.links, job.shape
        paired = links.other >= 0
        load = _fixed_load(counts, job)
        fixed.append(load)
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
    owns = [np.concatenate(found) for found in rounds]
    every = np.concatenate(owns)
    bounds = np.cumsum([0, *map(len, owns)]).tolist()
    turns = [
        (own, left[own], right[own], slice(*ends))
        for own, ends in zip(owns, itertools.pairwise(bounds), strict=True)
    ]
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
        lowest, highest = low[every], high[every]
        for own, a, b, now in turns:
            before = share[own]
            change = load[b]
            change -= load[a]
            change >>= 1
            change += before
            np.maximum(change, lowest[now], out=change)
            np.minimum(change, highest[now], out=change)
            share[own] = change
            change -= before
            load[a] += change
            load[b] -= change
    ends = np.cumsum([len(total) for total in totals])[:-1]
    return [np.ascontiguousarray(own.T) for own in np.split(taken, ends, axis=1)]


def _fixed_load(counts: CountArray, job: _Job) -> IntArray:
    """Operators of parts that are not shared: int64[bins * width, blocks]."""
    alone = np.ones(len(job.place), np.bool_)
    alone[job.links.part] = False
    alone[job.links.other[job.links.other >= 0]] = False
    own = np.flatnonzero(alone)
    own = own[np.argsort(job.place[own], kind="stable")]
    load = np.zeros((job.shape.bins * job.shape.width, counts.shape[1]), np.int64)
    if len(own):
        place, first = np.unique(job.place[own], return_index=True)
        load[place] = np.add.reduceat(counts[own], first, axis=0)
    return load
