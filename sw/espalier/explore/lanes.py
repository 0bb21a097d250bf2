"""Lanes in DSP slices or in fabric: the ways to make a design that fit the limits.

More lane pairs in slices are more DSP slices and fewer LUTs, at the same cycles. Of all ways that fit, the
one with the most slices, the one with the fewest and some between them stand for the others.
"""

from __future__ import annotations

from bisect import bisect_left

from espalier.arch.config import HardwareConfig
from espalier.estimate.resources import RESOURCES, ResourceCount, estimate_resources
from espalier.explore.design import Design, Lanes, Limits

Made = tuple[Lanes, ResourceCount]
_WAYS = 5


def lane_choices(design: Design) -> list[Lanes]:
    """All ways to make the lanes, those with the fewest pairs in DSP slices first."""
    pairs, branches = design.pairs, design.branches
    if design.odd_branches:
        few = [Lanes(own, design.odd_branches, 0) for own in range(pairs)]
        return few + [Lanes(pairs, design.odd_branches, own) for own in range(pairs + 1)]
    found = []
    for in_fabric in range(branches * pairs, -1, -1):  # pairs of one PE of every branch together
        equal = [n for n in range(1, branches + 1) if in_fabric % n == 0 and in_fabric // n <= pairs]
        if in_fabric == 0 or equal[:1] == [branches]:
            found.append(Lanes(pairs - in_fabric // branches, 0, 0))
        elif equal:
            found.append(Lanes(pairs, equal[0], pairs - in_fabric // equal[0]))
    return found


def lanes_that_fit(design: Design, base: HardwareConfig, limits: Limits) -> list[Made]:
    """Find up to _WAYS ways to make a design, with what they take; none if it does not fit at all."""
    choices = lane_choices(design)
    totals: dict[int, ResourceCount] = {}

    def total(index: int) -> ResourceCount:
        if index not in totals:
            totals[index] = estimate_resources(design.config(base, choices[index])).total
        return totals[index]

    def exceeds(index: int, names: tuple[str, ...]) -> bool:
        return any(getattr(total(index), name) > limits.most[name] for name in names)

    others = tuple(name for name in RESOURCES if name != "dsp")
    places = range(len(choices))
    # Slices grow with the index, everything else shrinks or stays as it is, apart from rounding.
    first = bisect_left(places, True, key=lambda index: not exceeds(index, others))
    last = bisect_left(places, True, key=lambda index: exceeds(index, ("dsp",))) - 1
    steps = range(_WAYS) if first <= last else ()
    chosen = sorted({first + (last - first) * step // (_WAYS - 1) for step in steps})
    return [(choices[index], total(index)) for index in chosen if limits.allow(total(index))]


def may_fit(design: Design, base: HardwareConfig, limits: Limits) -> bool:
    """Say no if even the extremes do not fit, for which two estimates are enough."""
    choices = lane_choices(design)
    fewest, most = (
        estimate_resources(design.config(base, lanes)).total for lanes in (choices[0], choices[-1])
    )
    others = all(getattr(most, name) <= limits.most[name] for name in RESOURCES if name != "dsp")
    return others and fewest.dsp <= limits.most["dsp"]
