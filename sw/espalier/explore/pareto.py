"""The points that no other one beats in cycles, LUTs and DSP slices alike."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass

from espalier.estimate.resources import ResourceCount
from espalier.explore.design import Design, Lanes


@dataclass(frozen=True)
class Point:
    """A design, one way to make its lanes, what both take and how many cycles they need."""

    design: Design
    lanes: Lanes
    total: ResourceCount
    cycles: int

    @property
    def costs(self) -> tuple[int, int, int]:
        """What is to be small: cycles, LUTs, DSP slices."""
        return self.cycles, self.total.lut, self.total.dsp


def pareto_front(points: Iterable[Point]) -> list[Point]:
    """Points that no other one is at least as good as in everything; the fastest first."""
    front: list[Point] = []
    for point in sorted(points, key=lambda p: (*p.costs, p.design.key)):
        if not any(all(a <= b for a, b in zip(other.costs, point.costs, strict=True)) for other in front):
            front.append(point)
    return front
