"""Dealing filters to branches, passes and PEs."""

from __future__ import annotations

import heapq
from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
import numpy.typing as npt

from espalier.backend.digits import Parts
from espalier.backend.plan import CountArray, Deal, IntArray

FloatArray = npt.NDArray[np.float64]

_WEIGHT_OF_ALL = 3.0  # of a PE's whole load, against its loads up to the end of each stretch
_SWAPS, _MOST_SWAPPED = 40, 80  # swaps of parts between PEs, at most; only in bins of so many parts


@dataclass(frozen=True)
class Shape:
    """What a convolution is dealt to: PEs of every branch of a tile group, passes, accumulators of a PE."""

    pes: tuple[int, ...]
    passes: int
    accumulators: int

    @property
    def bins(self) -> int:
        """Sets of PEs: bin = branch * passes + pass."""
        return len(self.pes) * self.passes

    @property
    def width(self) -> int:
        """PEs of the largest branch; the place of a part is bin * width + PE."""
        return max(self.pes)

    def pes_of(self, index: int) -> int:
        """PEs of a bin."""
        return self.pes[index // self.passes]


def deal_in_order(parts: Parts, shape: Shape) -> Deal | None:
    """Give filters in their own order, in equal numbers, to PEs; None if they do not fit."""
    filters = len(parts.first_part) - 1
    place = np.zeros(filters, np.int64)
    total = np.cumsum([shape.pes_of(index) for index in range(shape.bins)])
    bounds = np.round(total[:-1] * filters / total[-1]).astype(np.int64)
    turn = np.arange(1, shape.bins)
    bounds = np.maximum.accumulate(np.maximum(bounds, 1) - turn) + turn  # no bin without a filter
    bounds = np.clip(bounds, 0, filters - turn[::-1])
    for index, members in enumerate(np.split(np.arange(filters), bounds)):
        for pe, own in enumerate(np.array_split(members, shape.pes_of(index))):
            place[own] = index * shape.width + pe
    return as_deal(place[parts.filter_of], shape)


def deal_by_load(parts: Parts, cost: IntArray | CountArray, shape: Shape) -> Deal | None:
    """Deal filters by the operators of their parts; None if they do not fit. See `deals_by_load`."""
    return deals_by_load(parts, [(cost, shape)])[0]


def deals_by_load(parts: Parts, asked: Sequence[tuple[IntArray | CountArray, Shape]]) -> list[Deal | None]:
    """Deal filters by the operators of their parts, for all costs and shapes at once, which is faster.

    cost: integers [P], or [P, stretches of words], the same for all. None: the filters do not fit.

    The filter with the most operators goes first, each time to the bin and then, part by part, to the PE
    with the least load. Parts of a filter stay in one bin, because the output stage adds them in a row.
    Loads are compared from the first stretch of words on, so that PEs stay together all along.
    """
    bins: list[_Bin] = []
    for number, (cost, shape) in enumerate(asked):
        bins += _fill_bins(parts, cost.reshape(parts.count, -1), shape, number)
    places = [np.zeros(parts.count, np.int64) for _ in asked]
    for own, pe in zip(bins, _deal_bins(bins), strict=True):
        if len(own.members) <= _MOST_SWAPPED:
            _swap(own.until, pe, own.shape.pes_of(own.index))
        places[own.number][own.members] = own.index * own.shape.width + pe
    dealt = {own.number for own in bins}
    return [
        as_deal(places[number], shape) if number in dealt else None for number, (_, shape) in enumerate(asked)
    ]


@dataclass(frozen=True)
class _Bin:
    """Parts of one bin of deal `number`, those of the largest filters first.

    until: float64[n, stretches], operators of every part up to the end of every stretch.
    """

    number: int
    shape: Shape
    index: int
    members: IntArray
    until: FloatArray


def _fill_bins(parts: Parts, cost: IntArray | CountArray, shape: Shape, number: int) -> list[_Bin]:
    """Bins of a deal that have parts; none if the filters do not fit."""
    total = np.maximum(cost.sum(axis=1, dtype=np.int64), 1)  # an empty part takes an accumulator too
    order = filter_order(parts, total)
    bins = deal_to_bins(parts, total, order, shape)
    if bins is None:
        return []
    until = np.cumsum(cost, axis=1, dtype=np.float64)
    until[:, -1] *= _WEIGHT_OF_ALL
    in_order = parts_in_order(parts, order)
    members = [in_order[bins[in_order] == index] for index in range(shape.bins)]
    return [_Bin(number, shape, index, own, until[own]) for index, own in enumerate(members) if len(own)]


def _deal_bins(bins: list[_Bin]) -> list[IntArray]:
    """PE of every part of all bins, each time the one with the least load: int64[n] each."""
    if not bins:
        return []
    order = sorted(range(len(bins)), key=lambda index: -len(bins[index].members))
    sizes = np.array([len(bins[index].members) for index in order])
    until = np.zeros((sizes[0], len(bins), bins[0].until.shape[1]))
    width = max(own.shape.width for own in bins)
    loads, full = np.zeros((len(bins), width, until.shape[2])), np.zeros((len(bins), width))
    room = np.zeros((len(bins), width), np.int64)
    for at, index in enumerate(order):
        own = bins[index]
        until[: sizes[at], at] = own.until
        full[at, own.shape.pes_of(own.index) :] = np.inf
        room[at] = own.shape.accumulators
    place = np.zeros((sizes[0], len(bins)), np.int64)
    every = np.arange(len(bins))
    for part, active in enumerate(np.count_nonzero(sizes > np.arange(sizes[0])[:, None], axis=1).tolist()):
        more, rows = until[part, :active], every[:active]
        pe = ((loads[:active] @ more[:, :, None])[:, :, 0] + full[:active]).argmin(axis=1)
        loads[rows, pe] += more
        left = room[rows, pe] - 1
        room[rows, pe] = left
        if not left.all():
            full[room == 0] = np.inf
        place[part, :active] = pe
    result = [place[:0, 0]] * len(bins)
    for at, index in enumerate(order):
        result[index] = place[: sizes[at], at].copy()
    return result


def _swap(until: FloatArray, place: IntArray, pes: int) -> None:
    """Swap parts of a bin between PEs as long as that makes loads more alike; changes `place`.

    The sum of the squares of all loads is least when they are the same. A swap of parts i and j between the
    PEs p and q moves d = until[i] - until[j], which changes that sum by 2 d.d - 2 d.(loads[p] - loads[q]).
    """
    loads = np.zeros((pes, until.shape[1]))
    np.add.at(loads, place, until)
    square = until @ until.T
    own = square.diagonal()
    moved = (own[:, None] + own) / 2 - square
    for _ in range(_SWAPS):
        half = loads[place] @ until.T  # [j, i]: part i with the load of j's PE, there and here
        np.subtract(half.diagonal().copy(), half, out=half)
        half -= moved
        gain = half + half.T
        first, second = divmod(int(gain.argmax()), len(place))
        if gain[first, second] <= 0.5:
            break
        change = until[first] - until[second]
        loads[place[first]] -= change
        loads[place[second]] += change
        place[[first, second]] = place[[second, first]]


def filter_order(parts: Parts, cost: IntArray) -> IntArray:
    """Sort filters, those with many operators first: int64[K]."""
    return np.argsort(-np.add.reduceat(cost, parts.first_part[:-1]), kind="stable")


def parts_in_order(parts: Parts, order: IntArray) -> IntArray:
    """All parts, filter by filter in the given order: int64[P]."""
    count = np.diff(parts.first_part)[order]
    rank = np.arange(parts.count) - np.repeat(np.cumsum(count) - count, count)
    result: IntArray = np.repeat(parts.first_part[order], count) + rank
    return result


def fits(parts: Parts, shape: Shape) -> bool:
    """Whether all filters find accumulators."""
    in_order = np.arange(len(parts.first_part) - 1)
    return deal_to_bins(parts, np.ones(parts.count, np.int64), in_order, shape) is not None


def deal_to_bins(parts: Parts, cost: IntArray, order: IntArray, shape: Shape) -> IntArray | None:
    """Find the bin of every part, balanced by load per PE: int64[P]; None if a filter finds no room.

    Passes take filters in their own order, the first the first ones, so that a layer that follows can begin.
    """
    result = np.zeros(parts.count, np.int64)
    passes = parts.first_part[:-1] * shape.passes // parts.count  # of every filter
    room = [shape.pes_of(index) * shape.accumulators for index in range(shape.bins)]
    heaps = [
        [(0.0, branch * shape.passes + which) for branch in range(len(shape.pes))]
        for which in range(shape.passes)
    ]
    of_filter = np.add.reduceat(cost, parts.first_part[:-1]).tolist()
    first = parts.first_part.tolist()
    for filter_index in order.tolist():
        totals = heaps[passes[filter_index]]
        count = first[filter_index + 1] - first[filter_index]
        rejected = []
        while totals and room[totals[0][1]] < count:
            rejected.append(heapq.heappop(totals))
        if not totals:
            return None
        load, index = heapq.heappop(totals)
        result[first[filter_index] : first[filter_index + 1]] = index
        room[index] -= count
        for entry in [*rejected, (load + of_filter[filter_index] / shape.pes_of(index), index)]:
            heapq.heappush(totals, entry)
    return result


def as_deal(place: IntArray, shape: Shape) -> Deal | None:
    """Deal in which part p lies at `place[p] = bin * width + PE`.

    None if a PE lacks accumulators, or if a bin has no filter: every pass of a branch ends with one.
    Slots of a PE follow the order of filters, so that the output stage finds each filter's parts together.
    Slots that a PE does not need in a pass come before them, so that every pass ends with a filter.
    """
    branches, width = len(shape.pes), shape.width
    count = np.bincount(place, minlength=shape.bins * width)
    if count.max() > shape.accumulators or count.reshape(shape.bins, width).sum(axis=1).min() == 0:
        return None
    filters = np.maximum(count.reshape(branches, shape.passes, width).max(axis=1), 1)
    filters[np.arange(width) >= np.array(shape.pes)[:, None]] = 0
    unused = np.repeat(filters, shape.passes, axis=0).reshape(-1) - count
    sequence = np.argsort(place, kind="stable")
    rank = np.arange(len(place)) - (np.cumsum(count) - count)[place[sequence]]
    flat = np.full((shape.bins * width, int(filters.max())), -1, np.int64)
    flat[place[sequence], unused[place[sequence]] + rank] = sequence
    part_at = flat.reshape(branches, shape.passes, width, -1).swapaxes(1, 2)
    return Deal(np.ascontiguousarray(part_at), filters)


def drain_order(deal: Deal, parts: Parts, branch: int, which: int) -> tuple[IntArray, IntArray]:
    """PE and part (-1: discard) of every table entry of one branch and pass, in table order.

    What PEs have too much comes first, then the filters in ascending order.
    """
    table = deal.part_at[branch, :, which, :]
    pe, slot = np.nonzero(np.arange(table.shape[1])[None, :] < deal.filters[branch][:, None])
    part = table[pe, slot]
    sequence = np.lexsort((slot, pe, part))  # parts are numbered in the order of their filters
    return pe[sequence], part[sequence]
