"""Dealing filters to branches, passes and PEs."""

from __future__ import annotations

import heapq
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
    return as_deal(parts, place[parts.filter_of], shape)


def deal_by_load(parts: Parts, cost: IntArray | CountArray, shape: Shape) -> Deal | None:
    """Deal filters by the operators of their parts; None if they do not fit.

    cost: integers [P], or [P, stretches of words].

    The filter with the most operators goes first, each time to the bin and then, part by part, to the PE
    with the least load. Parts of a filter stay in one bin, because the output stage adds them in a row.
    Loads are compared from the first stretch of words on, so that PEs stay together all along.
    """
    cost = cost.reshape(parts.count, -1)
    total = np.maximum(cost.sum(axis=1, dtype=np.int64), 1)  # an empty part takes an accumulator too
    order = filter_order(parts, total)
    bins = deal_to_bins(parts, total, order, shape)
    if bins is None:
        return None
    place = np.zeros(parts.count, np.int64)
    until = np.cumsum(cost, axis=1, dtype=np.float64)
    until[:, -1] *= _WEIGHT_OF_ALL
    in_order = parts_in_order(parts, order)
    for index in range(shape.bins):
        members = in_order[bins[in_order] == index]
        pes = shape.pes_of(index)
        own = _deal_bin(until[members], pes, shape.accumulators)
        if 0 < len(members) <= _MOST_SWAPPED:
            _swap(until[members], own, pes)
        place[members] = index * shape.width + own
    return as_deal(parts, place, shape)


def _deal_bin(until: FloatArray, pes: int, accumulators: int) -> IntArray:
    """PE of every part of a bin, each time the one with the least load: int64[n].

    until: float64[n, stretches], operators of every part up to the end of every stretch.
    """
    loads, room, full = np.zeros((pes, until.shape[1])), [accumulators] * pes, np.zeros(pes)
    place = np.zeros(len(until), np.int64)
    for part, own in enumerate(until):
        pe = int((loads @ own + full).argmin())
        loads[pe] += own
        room[pe] -= 1
        if not room[pe]:
            full[pe] = np.inf
        place[part] = pe
    return place


def _swap(until: FloatArray, place: IntArray, pes: int) -> None:
    """Swap parts of a bin between PEs as long as that makes loads more alike; changes `place`.

    The sum of the squares of all loads is least when they are the same. A swap of parts i and j between the
    PEs p and q moves d = until[i] - until[j], which changes that sum by 2 d.d - 2 d.(loads[p] - loads[q]).
    """
    loads = np.zeros((pes, until.shape[1]))
    np.add.at(loads, place, until)
    square = until @ until.T
    own = square.diagonal()
    moved = own[:, None] + own - 2 * square
    for _ in range(_SWAPS):
        product = until @ loads.T
        here = product[np.arange(len(place)), place]
        there = product[:, place]  # [i, j]: part i with the load of j's PE
        gain = here[:, None] + here - there - there.T - moved
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
    return np.concatenate([np.arange(parts.first_part[f], parts.first_part[f + 1]) for f in order])


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


def take_least_loaded(loads: list[tuple[int, int, int]], cost: int, accumulators: int) -> int:
    """Add a part to the PE with the least load that has an accumulator left; heap of (load, parts, PE)."""
    full = []
    while loads[0][1] >= accumulators:
        full.append(heapq.heappop(loads))
    load, count, pe = heapq.heappop(loads)
    for entry in [*full, (load + cost, count + 1, pe)]:
        heapq.heappush(loads, entry)
    return pe


def as_deal(parts: Parts, place: IntArray, shape: Shape) -> Deal | None:
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
    rank = np.arange(parts.count) - (np.cumsum(count) - count)[place[sequence]]
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
