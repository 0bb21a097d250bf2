"""Dealing filters to branches, passes and PEs."""

from __future__ import annotations

import heapq

import numpy as np

from espalier.backend.digits import Parts
from espalier.backend.plan import Deal, IntArray

_Slots = list[list[list[int]]]  # parts by bin (branch and pass) and PE


def deal_filters(
    parts: Parts, cost: IntArray, branches: int, pes: int, passes: int, capacity: int, balance: bool
) -> Deal | None:
    """Assign every part to a slot; None if some PE would need more than `capacity` accumulators.

    cost: int64[P], operators of every part. Parts of a filter stay in one branch and pass, because the
    output stage adds them one after the other; they may lie on several PEs. With `balance`, the filter with
    the most operators goes first, each time to where the load is least; without, filters go round in their
    own order in equal numbers.
    """
    filter_cost = np.add.reduceat(cost, parts.first_part[:-1])
    order = np.argsort(-filter_cost, kind="stable") if balance else np.arange(len(filter_cost))
    slots: _Slots = [[[] for _ in range(pes)] for _ in range(branches * passes)]
    if not balance:
        _deal_in_order(parts, order, slots)
    elif not _deal_by_load(parts, order, cost, slots, capacity):
        return None
    if max(len(slot) for in_bin in slots for slot in in_bin) > capacity:
        return None
    return _as_arrays(slots, branches, pes, passes, order)


def _deal_in_order(parts: Parts, order: IntArray, slots: _Slots) -> None:
    for in_bin, members in zip(slots, np.array_split(order, len(slots)), strict=True):
        for slot, filters in zip(in_bin, np.array_split(members, len(in_bin)), strict=True):
            slot.extend(p for f in filters for p in range(parts.first_part[f], parts.first_part[f + 1]))


def _deal_by_load(parts: Parts, order: IntArray, cost: IntArray, slots: _Slots, capacity: int) -> bool:
    """Fill the slots; False if some filter found no room."""
    pes = len(slots[0])
    loads = [[(0, pe) for pe in range(pes)] for _ in slots]
    totals = [(0, index) for index in range(len(slots))]
    for filter_index in order:
        members = range(int(parts.first_part[filter_index]), int(parts.first_part[filter_index + 1]))
        filter_cost = int(cost[members.start : members.stop].sum())
        chosen = _least_loaded(totals, slots, len(members), pes * capacity, filter_cost)
        if chosen is None or not _spread(members, cost, loads[chosen], slots[chosen], capacity):
            return False
    return True


def _least_loaded(
    totals: list[tuple[int, int]], slots: _Slots, needed: int, capacity: int, cost: int
) -> int | None:
    """Take the bin with the least load that has room; totals is a heap."""
    rejected = []
    chosen = None
    while totals and chosen is None:
        load, index = heapq.heappop(totals)
        if sum(map(len, slots[index])) + needed <= capacity:
            chosen = index
            heapq.heappush(totals, (load + cost, index))
        else:
            rejected.append((load, index))
    for entry in rejected:
        heapq.heappush(totals, entry)
    return chosen


def _spread(
    members: range, cost: IntArray, loads: list[tuple[int, int]], slots: list[list[int]], capacity: int
) -> bool:
    """Give each part of a filter to the least loaded PE of a bin that has a free slot; loads is a heap."""
    for part in members:
        full = []
        while loads and len(slots[loads[0][1]]) >= capacity:
            full.append(heapq.heappop(loads))
        if not loads:
            return False
        load, pe = heapq.heappop(loads)
        slots[pe].append(part)
        heapq.heappush(loads, (load + int(cost[part]), pe))
    return True


def _as_arrays(slots: _Slots, branches: int, pes: int, passes: int, order: IntArray) -> Deal:
    width = max(1, max(len(slot) for in_bin in slots for slot in in_bin))
    part_at = np.full((branches, pes, passes, width), -1, np.int64)
    for index, in_bin in enumerate(slots):
        branch, which = divmod(index, passes)
        for pe, members in enumerate(in_bin):
            part_at[branch, pe, which, : len(members)] = members
    filters = np.maximum((part_at >= 0).sum(axis=3).max(axis=2), 1)
    return Deal(part_at, filters, np.asarray(order, np.int64))


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
