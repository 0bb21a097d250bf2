"""The search: shapes of all sizes first, then one coordinate at a time around the fastest design."""

from __future__ import annotations

import math
import time
from collections.abc import Callable, Iterable

from espalier.explore.evaluate import Evaluator
from espalier.explore.pareto import Point, pareto_front
from espalier.explore.space import Candidate, DesignSpace
from espalier.explore.state import State

Progress = Callable[[str], None]

SHAPES = 20  # that are evaluated, from the fastest to the smallest
# Evaluated before the next choice is made. The same for any number of processes, so that the result is too.
WAVE = 4


class Search:
    """Explores a space. Outcomes in `state` are not evaluated again; `points` has all that ran.

    seconds: of evaluation; after so many no further one begins.
    """

    def __init__(
        self, space: DesignSpace, evaluator: Evaluator, state: State, seconds: float, progress: Progress
    ) -> None:
        self.space, self.evaluator, self.state, self.progress = space, evaluator, state, progress
        self._seconds, self._end = seconds, 0.0
        self.points: dict[str, list[Point]] = {}
        self.failed: dict[str, str] = {}
        self.finished = False

    @property
    def front(self) -> list[Point]:
        """The best points so far, the fastest first."""
        return pareto_front(point for points in self.points.values() for point in points)

    def run(self) -> None:
        """Search until nothing is left to try, or time is up."""
        self.progress("listing the shapes that fit the device")
        shapes = thinned(self.space.shapes())
        self._end = time.monotonic() + self._seconds
        if self._evaluate(shapes):
            self.finished = self._climb()

    def _climb(self) -> bool:
        """Go to the fastest neighbour until none is faster; False if time was up."""
        while self.front:
            best = self.front[0]
            around = [c for c in self.space.neighbours(best.design) if c.bound < best.cycles]
            for begin in range(0, len(around), WAVE):
                wave = sorted(around, key=lambda c: (c.bound, c.design.key))[begin : begin + WAVE]
                if not self._evaluate(wave):
                    return False
                if self.front[0].cycles < best.cycles:
                    break
            else:
                return True
        return True

    def _evaluate(self, candidates: Iterable[Candidate]) -> bool:
        """Evaluate what is not known yet; False if time was up before all were."""
        waiting = []
        for candidate in candidates:
            if candidate.design.key in self.state.outcomes:
                self._note(candidate)
            else:
                waiting.append(candidate)
        for begin in range(0, len(waiting), WAVE):
            if time.monotonic() >= self._end:
                return False
            wave = waiting[begin : begin + WAVE]
            configs = [candidate.design.config(self.space.base) for candidate in wave]
            for candidate, outcome in zip(wave, self.evaluator(configs), strict=True):
                self.state.add(candidate.design, outcome)
                self._note(candidate)
            fastest = f"{self.front[0].cycles} cycles" if self.front else "none runs yet"
            self.progress(f"{len(self.state.outcomes)} designs evaluated, the fastest: {fastest}")
        return True

    def _note(self, candidate: Candidate) -> None:
        key = candidate.design.key
        outcome = self.state.outcomes[key]
        if outcome.cycles is None:
            self.failed[key] = outcome.reason
        else:
            self.points[key] = [
                Point(candidate.design, lanes, total, outcome.cycles) for lanes, total in candidate.made
            ]


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
