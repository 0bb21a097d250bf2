"""The search: shapes of all sizes first, then one coordinate at a time around the best of every region.

Everything goes by batches, each chosen from what was known before it, so that neither the number of processes
nor an interruption changes what is found.
"""

from __future__ import annotations

import itertools
import math
import time
from collections.abc import Callable, Iterable, Iterator

from espalier.explore.evaluate import Outcome
from espalier.explore.executors import Executor
from espalier.explore.pareto import Point, pareto_front
from espalier.explore.regions import Region, regions
from espalier.explore.space import Candidate, DesignSpace
from espalier.explore.state import State

Progress = Callable[[str], None]

SHAPES = (
    16  # that are evaluated beside the most promising one of every region, from the fastest to the smallest
)
DESIGNS = 120  # evaluated in all, if not told otherwise
BATCH = 12  # evaluated before the next choice is made
# A change is expected to win at most this share of the cycles beside what it does to their lower bound.
_GAIN = 0.03

TARGET = "target"  # key of the target as it is
COMPLETE, ENOUGH, OUT_OF_TIME, STOPPED = "complete", "enough designs", "out of time", "stopped"


class Search:
    """Explores a space. Outcomes in `state` are not evaluated again, but count.

    seconds: from the beginning; after so many no further evaluation begins. designs: evaluated at most.
    points: ways to make the designs that run, by their keys; failed: why others do not; crashed: errors and
    lost processes.
    end: why the search ended.
    """

    def __init__(
        self,
        space: DesignSpace,
        executor: Executor,
        state: State,
        progress: Progress,
        seconds: float = math.inf,
        designs: int = DESIGNS,
    ) -> None:
        self.space, self.executor, self.state, self.progress = space, executor, state, progress
        self._seconds, self._designs = seconds, designs
        self._deadline = math.inf
        self._regions = regions(space.limits)
        self.points: dict[str, list[Point]] = {}
        self.failed: dict[str, str] = {}
        self.crashed: dict[str, str] = {}
        self.end = STOPPED
        self._gaps: dict[str, float] = {}  # cycles over their lower bound, by design

    @property
    def front(self) -> list[Point]:
        """The best points so far, the fastest first."""
        return pareto_front(point for points in self.points.values() for point in points)

    @property
    def target(self) -> Outcome:
        """Outcome of the target as it is."""
        return self.state.outcomes.get(TARGET, Outcome(None, "not evaluated"))

    @property
    def evaluated(self) -> int:
        """Designs that were evaluated, now or before."""
        return len(self.points) + len(self.failed) + len(self.crashed)

    def run(self) -> None:
        """Search until nothing promising is left, time is up or there are enough designs.

        Raises:
            CapacityError: nothing fits.

        """
        self._deadline = time.monotonic() + self._seconds
        self.progress("listing the shapes that fit the device")
        shapes = list(self.space.shapes())
        if not shapes:
            raise self.space.misfit()
        chosen = starts(shapes, self._regions)
        while chosen:
            for begin in range(0, len(chosen), BATCH):
                if not self._evaluate(chosen[begin : begin + BATCH]):
                    return
            chosen = self._promising()
        self.end = COMPLETE

    def _promising(self) -> list[Candidate]:
        """Choose a batch: changes that may give a region a faster design, in turn from every region."""
        points = [point for points in self.points.values() for point in points]
        chosen: dict[str, Candidate] = {}
        for row in itertools.zip_longest(*(self._around(region, points) for region in self._regions)):
            for candidate in row:
                if candidate is not None and len(chosen) < BATCH:
                    chosen[candidate.design.key] = candidate
            if len(chosen) == BATCH:
                break
        return list(chosen.values())

    def _around(self, region: Region, points: list[Point]) -> Iterator[Candidate]:
        """Neighbours of the best design of a region that may be faster, the most promising first.

        Those are the ones with the lowest bound, and of these the largest: what saves LUTs comes last.
        """
        best = region.best(points)
        if best is None:
            return
        gap = max(1.0, self._gaps[best.design.key] * (1 - _GAIN))
        found = [
            (candidate.bound, -_size(candidate), candidate.design.key, candidate)
            for candidate in self.space.neighbours(best.design)
            if not self._known(candidate)
            and candidate.bound * gap < best.cycles
            and any(region.holds(total) for _, total in candidate.made)
        ]
        yield from (candidate for *_, candidate in sorted(found, key=lambda item: item[:3]))

    def _known(self, candidate: Candidate) -> bool:
        key = candidate.design.key
        return key in self.points or key in self.failed or key in self.crashed

    def _evaluate(self, candidates: list[Candidate]) -> bool:
        """Evaluate what is not known yet; False if the search ends here."""
        candidates = candidates[: max(0, self._designs - self.evaluated)]
        if not candidates:
            self.end = ENOUGH
            return False
        outcomes, base = self.state.outcomes, self.space.base
        wanted = {TARGET: base} | {c.design.key: c.design.config(base) for c in candidates}
        waiting = [(key, config) for key, config in wanted.items() if key not in outcomes]
        try:
            configs = [config for _, config in waiting]
            for count, (index, outcome) in enumerate(self.executor.run(configs, self._deadline), 1):
                self.state.add(waiting[index][0], outcome)
                self.progress(f"{count} of a batch of {len(waiting)} evaluated")
        finally:
            # In the order in which they were chosen, not in which they came.
            done = [candidate for candidate in candidates if candidate.design.key in outcomes]
            for candidate in done:
                self._note(candidate)
        fastest = f"{self.front[0].cycles} cycles" if self.front else "none runs yet"
        self.progress(f"{self.evaluated} designs evaluated, the fastest: {fastest}")
        if len(done) < len(candidates):
            self.end = OUT_OF_TIME
        return len(done) == len(candidates)

    def _note(self, candidate: Candidate) -> None:
        key = candidate.design.key
        outcome = self.state.outcomes[key]
        if outcome.cycles is None:
            (self.crashed if outcome.crashed else self.failed)[key] = outcome.reason
            return
        self._gaps[key] = outcome.cycles / candidate.bound
        self.points[key] = [
            Point(candidate.design, lanes, total, outcome.cycles) for lanes, total in candidate.made
        ]


def starts(shapes: list[Candidate], parts: list[Region]) -> list[Candidate]:
    """Choose shapes to begin with: designs of all sizes, and the most promising one of every region."""
    chosen = {candidate.design.key: candidate for candidate in thinned(shapes)}
    ordered = sorted(shapes, key=lambda c: (c.bound, _size(c), c.design.key))
    for region in parts:
        inside = (c for c in ordered if any(region.holds(total) for _, total in c.made))
        if (first := next(inside, None)) is not None:
            chosen[first.design.key] = first
    return sorted(chosen.values(), key=lambda c: (c.bound, _size(c), c.design.key))


def thinned(candidates: Iterable[Candidate], count: int = SHAPES) -> list[Candidate]:
    """Choose designs of all sizes: of those with the best bounds so many, evenly in the logarithm."""
    kept: list[Candidate] = []
    for candidate in sorted(candidates, key=lambda c: (c.bound, _size(c), c.design.key)):
        if not any(_size(other) <= _size(candidate) for other in kept):
            kept.append(candidate)
    if len(kept) <= count:
        return kept
    low, high = math.log(kept[0].bound), math.log(kept[-1].bound)
    chosen = {0, len(kept) - 1}
    for step in range(1, count - 1):
        wanted = low + (high - low) * step / (count - 1)
        chosen.add(min(range(len(kept)), key=lambda index: abs(math.log(kept[index].bound) - wanted)))
    return [kept[index] for index in sorted(chosen)]


def _size(candidate: Candidate) -> int:
    return min(total.lut for _, total in candidate.made)
