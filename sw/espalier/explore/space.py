"""The design space of a network on a target: which designs there are, and which of them fit."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, fields, replace
from typing import Any

from espalier.arch.config import HardwareConfig
from espalier.errors import CapacityError, ConfigError
from espalier.estimate.resources import LIMIT
from espalier.explore.design import OUTPUT_BEATS, Design, Limits, output_pairs, resource_limits
from espalier.explore.facts import NetworkFacts, network_facts
from espalier.explore.lanes import Made, lanes_that_fit, may_fit
from espalier.explore.memories import with_memories
from espalier.explore.misfit import misfit
from espalier.explore.moves import detail_moves, shape_moves
from espalier.ir.graph import IntegerGraph

_RANGES: dict[str, dict[str, Any]] = {spec.name: dict(spec.metadata) for spec in fields(HardwareConfig)}


@dataclass(frozen=True)
class Candidate:
    """A design that fits; made: ways to make its lanes; bound: cycles that it takes at least."""

    design: Design
    made: list[Made]
    bound: float


class DesignSpace:
    """All designs for a network.

    base: what is not part of the search is taken from it. excluded: by tile size, why the network does not
    fit any design with it.
    """

    def __init__(self, graph: IntegerGraph, base: HardwareConfig) -> None:
        """Raise CapacityError if no tile size fits."""
        self.base, self.network = base, graph.name
        self.limits: Limits = resource_limits(base, LIMIT)
        self.facts: dict[int, NetworkFacts] = {}
        self.excluded: dict[int, str] = {}
        for tile_size in _values("tile_size"):
            try:
                self.facts[tile_size] = network_facts(graph, base, tile_size)
            except CapacityError as error:
                self.excluded[tile_size] = str(error)
        if not self.facts:
            raise CapacityError(f"no tile size fits the network: {self.excluded[_values('tile_size')[0]]}")
        self._candidates: dict[Design, Candidate | None] = {}
        self._neighbours: dict[Design, list[Candidate]] = {}

    def shapes(self) -> Iterator[Candidate]:
        """All shapes that fit, with memories."""
        yield from filter(None, map(self._filled, self._all_shapes()))

    def misfit(self) -> CapacityError:
        """Make the error that says why no shape fits."""
        return misfit(self.network, list(self._all_shapes()), self.facts, self.base, self.limits)

    def _all_shapes(self) -> Iterator[Design]:
        """All tile sizes, branches and PEs, branches alike, with the largest of the small parts."""
        ring, accumulators, windows = (
            _RANGES[name]["high"] for name in ("ring_words", "accumulators", "window_fifo_depth")
        )
        for tile_size in self.facts:
            for branches in _values("branches"):
                for pes in _values("pes_per_branch"):
                    yield Design(
                        tile_size=tile_size, branches=branches, pes_per_branch=pes, odd_branches=0,
                        odd_pes=0, ring_words=ring // 2, accumulators=accumulators, stream_depth_words=0,
                        table_depth_words=0, feature_depth_words=0, feature_depth_rest_words=0, uram_banks=0,
                        output_pairs=output_pairs(tile_size, OUTPUT_BEATS), window_fifo_depth=windows,
                    )  # fmt: skip

    def neighbours(self, design: Design) -> list[Candidate]:
        """Designs that differ in one coordinate and fit."""
        if design not in self._neighbours:
            found = [self._filled(other) for other in shape_moves(design)]
            found += [self.candidate(other) for other in detail_moves(design, self.base)]
            self._neighbours[design] = [candidate for candidate in found if candidate is not None]
        return self._neighbours[design]

    def candidate(self, design: Design) -> Candidate | None:
        """Complete a design with lanes and bound, None if it does not fit."""
        if design not in self._candidates:
            self._candidates[design] = self._candidate(design)
        return self._candidates[design]

    def _candidate(self, design: Design) -> Candidate | None:
        facts = self.facts.get(design.tile_size)
        if facts is None or not _in_range(design, self.base):
            return None
        enough = (
            design.feature_depth_rest_words <= design.feature_depth_words
            and design.feature_depth_words >= facts.feature_words
            and design.feature_depth_rest_words >= facts.feature_rest_words
            and design.stream_depth_words * design.pes >= facts.stream_words
            and design.table_depth_words * design.branches >= facts.entries
        )
        made = lanes_that_fit(design, self.base, self.limits) if enough else []
        return Candidate(design, made, facts.bound(design)) if made else None

    def _filled(self, shape: Design) -> Candidate | None:
        """Choose memories for a shape; its own are not used, so that equal shapes get equal ones."""
        shape = replace(
            shape, stream_depth_words=0, table_depth_words=0, feature_depth_words=0,
            feature_depth_rest_words=0, uram_banks=0,
        )  # fmt: skip
        if shape not in self._candidates:
            filled = self._with_memories(shape)
            self._candidates[shape] = None if filled is None else self.candidate(filled)
        return self._candidates[shape]

    def _with_memories(self, shape: Design) -> Design | None:
        facts = self.facts.get(shape.tile_size)
        if facts is None:
            return None
        # The shallowest memories there are: what does not fit with them never does.
        least = replace(
            shape, stream_depth_words=64, table_depth_words=64, feature_depth_words=64,
            feature_depth_rest_words=64,
        )  # fmt: skip
        if not _in_range(least, self.base) or not may_fit(least, self.base, self.limits):
            return None
        return with_memories(shape, facts, self.base, self.limits)


def _values(name: str) -> range:
    return range(_RANGES[name]["low"], _RANGES[name]["high"] + 1)


def _in_range(design: Design, base: HardwareConfig) -> bool:
    """Whether a configuration can have these values."""
    try:
        design.config(base)
    except ConfigError:
        return False
    return (design.odd_branches > 0) == (design.odd_pes > 0)
