"""What the compiler's passes hand to each other, layer by layer."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field
from functools import cached_property

import numpy as np
import numpy.typing as npt

from espalier.arch.operators import OPERATORS_PER_WORD
from espalier.backend.digits import Parts
from espalier.backend.geometry import Geometry
from espalier.ir.graph import Node

IntArray = npt.NDArray[np.int64]
CountArray = npt.NDArray[np.int32]


@dataclass(frozen=True)
class Deal:
    """Which PE sums which part in which pass.

    part_at: int64[branches of a group, PEs, passes, slots], -1: none. Slots of a PE are in the order in which
    its accumulators are drained: the ones it does not need in this pass first, then its filters in ascending
    order. filters: int64[branches, PEs], slots that the PE walks; 0 where the branch has no such PE.
    """

    part_at: IntArray
    filters: IntArray


@dataclass(frozen=True)
class Plan:
    """How the branches of a tile group share the filters of a convolution.

    pes: PEs of every branch. make_parts: makes the parts, which only the plans that are chosen need. lengths:
    int32[branches, PEs, passes, blocks, slots], operators of every run with its nulls. Arrays are as wide as
    the largest branch.
    """

    pes: tuple[int, ...]
    make_parts: Callable[[], Parts]
    deal: Deal
    lengths: CountArray

    @cached_property
    def parts(self) -> Parts:
        """The operators of all PEs, by part."""
        return self.make_parts()

    @property
    def passes(self) -> int:
        """Sets of a tile."""
        return int(self.deal.part_at.shape[2])

    @property
    def exists(self) -> npt.NDArray[np.bool_]:
        """Which PEs there are: bool[branches, PEs]."""
        return np.arange(max(self.pes)) < np.array(self.pes)[:, None]

    @cached_property
    def operators(self) -> IntArray:
        """Operators in every block, with their nulls: int64[branches, PEs, passes, blocks]."""
        result: IntArray = self.lengths.sum(axis=4, dtype=np.int64)
        return result

    def block_ends(self, branch: int, pe: int) -> IntArray:
        """Operators of a PE's loop up to the end of every block: int64[passes * blocks]."""
        ends: IntArray = self.operators[branch, pe].reshape(-1).cumsum()
        return ends

    @cached_property
    def stream_words(self) -> IntArray:
        """Stream words of every PE, header included: int64[branches, PEs]."""
        operators: IntArray = self.operators.sum(axis=(2, 3))
        return 1 - (-operators // OPERATORS_PER_WORD)

    @property
    def table_entries(self) -> IntArray:
        """Table entries of every branch, all passes together: int64[branches]."""
        accumulators: IntArray = self.deal.filters.sum(axis=1)
        return accumulators * self.passes


@dataclass(frozen=True)
class Group:
    """Branches that walk the same tiles with different filters.

    branches: numbers of physical branches. Of every `period` tiles in raster order the group takes `run`,
    from tile `first` on; `tiles`: all in all.
    """

    branches: tuple[int, ...]
    plan: Plan
    first: int
    run: int
    period: int
    tiles: int

    def tiles_of(self, count: int) -> int:
        """How many of so many tiles in raster order the group takes."""
        turns, rest = divmod(count, self.period)
        return turns * self.run + min(max(rest - self.first, 0), self.run)

    def places(self) -> IntArray:
        """Numbers (row * tiles_x + column) of the group's tiles: int64[tiles]."""
        turn, place = np.divmod(np.arange(self.tiles, dtype=np.int64), self.run)
        numbers: IntArray = turn * self.period + self.first + place
        return numbers


@dataclass(frozen=True)
class Mapping:
    """One way to spread a convolution over the branches; branches in no group rest.

    words: int64[blocks], window words of every block. cycles: predicted.
    """

    groups: tuple[Group, ...]
    block_words: int
    words: IntArray
    cycles: int = 0

    @property
    def passes(self) -> int:
        """Sets of a tile, the same for all groups."""
        return self.groups[0].plan.passes

    @property
    def plans(self) -> list[Plan]:
        """The different plans of all groups."""
        return list({id(group.plan): group.plan for group in self.groups}.values())

    @cached_property
    def mean_stream_words(self) -> float:
        """Stream words of the mean PE, in branches of the size for which that is most."""
        kinds: dict[int, list[IntArray]] = {}
        for plan in self.plans:
            for words, pes in zip(plan.stream_words, plan.pes, strict=True):
                kinds.setdefault(pes, []).append(words[:pes])
        return max(float(np.concatenate(words).mean()) for words in kinds.values())

    @cached_property
    def all_stream_words(self) -> int:
        """Stream words of all PEs together."""
        return sum(
            int(words[:pes].sum())
            for group in self.groups
            for words, pes in zip(group.plan.stream_words, group.plan.pes, strict=True)
        )

    @property
    def most_table_entries(self) -> int:
        """Table entries of the branch with most."""
        return max(int(plan.table_entries.max()) for plan in self.plans)

    def role(self, branch: int) -> tuple[Group, int] | None:
        """Group of a physical branch and its number there; None: it rests."""
        for group in self.groups:
            if branch in group.branches:
                return group, group.branches.index(branch)
        return None


@dataclass(frozen=True)
class Placement:
    """A tensor in the feature memory: first word and words, the same in every bank.

    ring: words of the ring that it goes round in, 0 if it lies there whole.
    """

    base: int
    words: int
    pitch: int
    tiles_y: int
    tiles_x: int
    pad: int
    ring: int = 0


@dataclass(frozen=True)
class Residence:
    """Where a layer's streams lie. batches: in how many of them, 0: resident.

    In one batch it is a loop as well; in several of them the loop is written out for every tile.
    of_strips: how many of several batches each strip of the layer takes, empty if it is not cut into strips.
    """

    batches: int = 0
    of_strips: tuple[int, ...] = ()


RESIDENT = Residence()


@dataclass
class Layer:
    """A node on its way to a descriptor.

    parts and mapping belong to convolutions. candidates: mappings to choose from; splits: others that
    `refine` tries. pes: int64[branches, PEs], PE of its plan that each physical PE
    plays, -1: rests or does not exist. residence: where its streams lie.
    """

    index: int
    node: Node
    geometry: Geometry
    parts: Parts | None = None
    mapping: Mapping | None = None
    candidates: list[Mapping] = field(default_factory=list)
    splits: list[Mapping] = field(default_factory=list)
    pes: IntArray | None = None
    residence: Residence = RESIDENT
