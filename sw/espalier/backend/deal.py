"""Dealing filters to branches, passes and PEs."""

from __future__ import annotations

import heapq
from dataclasses import dataclass

import numpy as np

from espalier.backend.digits import Parts
from espalier.backend.plan import Deal, IntArray


@dataclass(frozen=True)
class Shape:
    """What a convolution is dealt to: branches of a tile group, PEs of each, passes, accumulators of a PE."""

    branches: int
    pes: int
    passes: int
    accumulators: int

    @property
    def bins(self) -> int:
        """Sets of PEs: bin = branch * passes + pass."""
        return self.branches * self.passes


def deal_in_order(parts: Parts, shape: Shape) -> Deal | None:
    """Give filters in their own order, in equal numbers, to bins and PEs; None if they do not fit."""
    filters = len(parts.first_part) - 1
    place = np.zeros(filters, np.int64)
    for index, members in enumerate(np.array_split(np.arange(filters), shape.bins)):
        for pe, own in enumerate(np.array_split(members, shape.pes)):
            place[own] = index * shape.pes + pe
    return as_deal(parts, place[parts.filter_of], np.arange(filters), shape)


def deal_by_load(parts: Parts, cost: IntArray, shape: Shape) -> Deal | None:
    """Deal filters by the operators of their parts, `cost` int64[P]; None if they do not fit.

    The filter with the most operators goes first, each time to the bin and then, part by part, to the PE
    with the least load. Parts of a filter stay in one bin, because the output stage adds them in a row.
    """
    order = filter_order(parts, cost)
    bins = deal_to_bins(parts, cost, order, shape)
    if bins is None:
        return None
    place = np.zeros(parts.count, np.int64)
    loads = [[(0, 0, pe) for pe in range(shape.pes)] for _ in range(shape.bins)]
    for part in parts_in_order(parts, order):
        index = int(bins[part])
        place[part] = index * shape.pes + take_least_loaded(loads[index], int(cost[part]), shape.accumulators)
    return as_deal(parts, place, order, shape)


def filter_order(parts: Parts, cost: IntArray) -> IntArray:
    """Sort filters, those with many operators first: int64[K]."""
    return np.argsort(-np.add.reduceat(cost, parts.first_part[:-1]), kind="stable")


def parts_in_order(parts: Parts, order: IntArray) -> IntArray:
    """All parts, filter by filter in the given order: int64[P]."""
    return np.concatenate([np.arange(parts.first_part[f], parts.first_part[f + 1]) for f in order])


def deal_to_bins(parts: Parts, cost: IntArray, order: IntArray, shape: Shape) -> IntArray | None:
    """Find the bin of every part, balanced by load: int64[P]; None if a filter finds no bin with room."""
    result = np.zeros(parts.count, np.int64)
    room = [shape.pes * shape.accumulators] * shape.bins
    totals = [(0, index) for index in range(shape.bins)]
    for filter_index in order:
        members = slice(int(parts.first_part[filter_index]), int(parts.first_part[filter_index + 1]))
        count = members.stop - members.start
        rejected = []
        while totals and room[totals[0][1]] < count:
            rejected.append(heapq.heappop(totals))
        if not totals:
            return None
        load, index = heapq.heappop(totals)
        result[members] = index
        room[index] -= count
        for entry in [*rejected, (load + int(cost[members].sum()), index)]:
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


def as_deal(parts: Parts, place: IntArray, order: IntArray, shape: Shape) -> Deal | None:
    """Deal in which part p lies on PE `place[p] = bin * PEs + PE`; None if a PE lacks accumulators.

    Slots of a PE follow the order of filters, so that the output stage finds each filter's parts together.
    """
    rank = np.empty(len(order), np.int64)
    rank[order] = np.arange(len(order))
    count = np.bincount(place, minlength=shape.bins * shape.pes)
    if count.max() > shape.accumulators:
        return None
    sequence = np.lexsort((np.arange(parts.count), rank[parts.filter_of], place))
    slot = np.arange(parts.count) - (np.cumsum(count) - count)[place[sequence]]
    flat = np.full((shape.bins * shape.pes, max(1, int(count.max()))), -1, np.int64)
    flat[place[sequence], slot] = sequence
    part_at = flat.reshape(shape.branches, shape.passes, shape.pes, -1).swapaxes(1, 2)
    filters = np.maximum(count.reshape(shape.branches, shape.passes, shape.pes).max(axis=1), 1)
    return Deal(np.ascontiguousarray(part_at), filters, np.asarray(order, np.int64))


def drain_order(deal: Deal, parts: Parts, branch: int, which: int) -> tuple[IntArray, IntArray]:
    """PE and part (-1: discard) of every table entry of one branch and pass, in table order.

    Filters follow each other in dealing order, which goes round the PEs; what a PE has too much comes last.
    """
    table = deal.part_at[branch, :, which, :]
    pe, slot = np.nonzero(np.arange(table.shape[1])[None, :] < deal.filters[branch][:, None])
    part = table[pe, slot]
    rank = np.empty(len(deal.filter_order), np.int64)
    rank[deal.filter_order] = np.arange(len(deal.filter_order))
    turn = np.where(part >= 0, rank[parts.filter_of[part]], len(rank))
    sequence = np.lexsort((slot, pe, part, turn))
    return pe[sequence], part[sequence]
