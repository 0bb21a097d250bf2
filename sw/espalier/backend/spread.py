"""Who takes which tiles: branches form groups, and the groups take the tiles of a map in turn."""

from __future__ import annotations

from collections.abc import Sequence
from itertools import product
from math import gcd

from espalier.arch.config import HardwareConfig
from espalier.backend.plan import Group, Plan

Grouping = tuple[tuple[int, ...], ...]  # branches of every group

_LONGEST_RUN = 6  # tiles in a row; longer ones would fit uneven groups better, but leave them further apart


def groupings(config: HardwareConfig, tiles: int, channels: int) -> list[Grouping]:
    """Ways to use the branches, by the branches of every group.

    Groups take different tiles, branches of a group different output channels, each at least one. Branches
    with fewer PEs take part or all rest.
    """
    everything = tuple(range(config.branches))
    strong = tuple(branch for branch in everything if not config.is_lut(branch))
    alike = len({config.branch_pes(branch) for branch in everything}) == 1
    if alike or not strong:
        return _even(everything, tiles, channels)
    mixed = [
        tuple(everything[group::count][:channels] for group in range(count))
        for count in range(1, min(len(everything), tiles) + 1)
    ]
    return mixed + _even(strong, tiles, channels)


def _even(branches: tuple[int, ...], tiles: int, channels: int) -> list[Grouping]:
    """Group branches that are all alike: groups of the same size, what is left rests."""
    result = []
    for count in range(1, min(len(branches), tiles) + 1):
        size = len(branches) // count
        groups = [branches[group * size :][:size][:channels] for group in range(count)]
        result.append(tuple(groups))
    return result


def spread_tiles(
    grouping: Grouping, plans: Sequence[Plan], costs: Sequence[int], tiles: int
) -> tuple[Group, ...] | None:
    """Give every group its share of the tiles; None if one would have nothing to do.

    plans: of every group; costs: cycles that it takes for a tile, roughly.
    """
    kinds = sorted(set(costs), reverse=True)
    best: tuple[int, int, list[Group]] | None = None
    for choice in product(range(1, _LONGEST_RUN + 1), repeat=len(kinds)) if len(kinds) > 1 else [(1,)]:
        if gcd(*choice) != 1:
            continue
        runs = [choice[kinds.index(cost)] for cost in costs]
        groups = _take_turns(grouping, plans, runs, tiles)
        busiest = max(group.tiles * cost for group, cost in zip(groups, costs, strict=True))
        if best is None or (busiest, sum(runs)) < best[:2]:
            best = busiest, sum(runs), groups
    assert best is not None, "runs of one tile are always tried"
    return tuple(best[2]) if all(group.tiles for group in best[2]) else None


def _take_turns(grouping: Grouping, plans: Sequence[Plan], runs: Sequence[int], tiles: int) -> list[Group]:
    period, first, groups = sum(runs), 0, []
    turns, left = divmod(tiles, period)
    for branches, plan, run in zip(grouping, plans, runs, strict=True):
        own = turns * run + min(max(left - first, 0), run)
        groups.append(Group(branches, plan, first, run, period, own))
        first += run
    return groups
