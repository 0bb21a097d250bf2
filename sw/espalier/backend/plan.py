"""What the compiler's passes hand to each other, layer by layer."""

from __future__ import annotations

from dataclasses import dataclass, field

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

    part_at: int64[branches of a group, PEs, passes, slots], -1: none; slots of a PE are in the order in
    which its accumulators are drained, empty ones last. filters: int64[branches, PEs], slots that the PE
    walks, at least one. filter_order: int64[K], filters in table order.
    """

    part_at: IntArray
    filters: IntArray
    filter_order: IntArray


@dataclass(frozen=True)
class Mapping:
    """One way to spread a convolution over the branches.

    tile_groups groups of filter_groups branches each: groups take different tiles, branches of a group take
    different filters. lengths: int32[branches of a group, PEs, passes, blocks, slots], operators of every
    run with its nulls. words: int64[blocks], window words of every block. cycles: predicted.
    """

    tile_groups: int
    filter_groups: int
    passes: int
    block_words: int
    words: IntArray
    parts: Parts
    deal: Deal
    lengths: CountArray
    cycles: int = 0

    @property
    def stream_words(self) -> IntArray:
        """Stream words of every PE, header included: int64[branches of a group, PEs]."""
        operators: IntArray = self.lengths.sum(axis=(2, 3, 4), dtype=np.int64)
        return 1 - (-operators // OPERATORS_PER_WORD)

    @property
    def table_entries(self) -> IntArray:
        """Table entries of every branch of a group, all passes together: int64[branches]."""
        accumulators: IntArray = self.deal.filters.sum(axis=1)
        return accumulators * self.passes


@dataclass(frozen=True)
class Placement:
    """A tensor in the feature memory: first word and words, the same in every bank."""

    base: int
    words: int
    pitch: int
    tiles_y: int
    tiles_x: int
    pad: int


@dataclass
class Layer:
    """A node on its way to a descriptor.

    parts and mapping belong to convolutions; pes: int64[branches, PEs], PE of the mapping's group that each
    physical PE plays, -1: rests. pool_split: (tile_groups, channel_groups) of a pooling layer.
    """

    index: int
    node: Node
    geometry: Geometry
    parts: Parts | None = None
    mapping: Mapping | None = None
    candidates: list[Mapping] = field(default_factory=list)
    pes: IntArray | None = None
    pool_split: tuple[int, int] = (1, 1)
    pool_cycles: int = 0

    @property
    def cycles(self) -> int:
        """Predicted cycles."""
        return self.mapping.cycles if self.mapping is not None else self.pool_cycles
