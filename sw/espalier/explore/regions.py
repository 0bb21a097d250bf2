"""Regions of the front: parts of the device. In each of them the search looks for the fastest design."""

from __future__ import annotations

import itertools
from collections.abc import Iterable
from dataclasses import dataclass

from espalier.estimate.resources import ResourceCount
from espalier.explore.design import Limits
from espalier.explore.pareto import Point

# Shares of what a design may take at most; the first ones are the whole of it.
_LUT_SHARES = (1.0, 0.7, 0.5, 0.35, 0.25)
_DSP_SHARES = (1.0, 0.5, 0.25, 0.05)


@dataclass(frozen=True)
class Region:
    """Designs that take at most so many LUTs and DSP slices."""

    lut: float
    dsp: float

    def holds(self, total: ResourceCount) -> bool:
        """Whether a design with these resources lies in it."""
        return total.lut <= self.lut and total.dsp <= self.dsp

    def best(self, points: Iterable[Point]) -> Point | None:
        """Fastest point inside; of equally fast ones that with the smallest share of the region."""
        inside = [point for point in points if self.holds(point.total)]
        return min(inside, key=self._rank, default=None)

    def _rank(self, point: Point) -> tuple[int, float, str]:
        taken = point.total.lut / self.lut + point.total.dsp / max(1.0, self.dsp)
        return point.cycles, taken, point.design.key


def regions(limits: Limits) -> list[Region]:
    """All regions, the whole device first."""
    lut, dsp = limits.most["lut"], limits.most["dsp"]
    return [Region(a * lut, b * dsp) for a, b in itertools.product(_LUT_SHARES, _DSP_SHARES)]
