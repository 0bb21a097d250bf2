"""What a network asks of any design with a given tile size: work, memories, and lanes that go to waste."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, replace

from espalier.arch.config import HardwareConfig
from espalier.arch.operators import OPERATORS_PER_WORD
from espalier.backend.compiler import lower_integer_graph
from espalier.backend.digits import build_parts
from espalier.backend.lower import lower_node
from espalier.backend.mapping import tile_grid
from espalier.backend.memory import place_tensors
from espalier.errors import CapacityError
from espalier.explore.design import Design
from espalier.ir.graph import Conv, IntegerGraph

FEATURE_STEP = 512  # words of a bank; block RAMs are no finer
_MOST_FEATURES = 8192


@dataclass(frozen=True)
class NetworkFacts:
    """A network cut into tiles of one size.

    stored_operators: of one copy of all filters; operators: of all tiles. entries: of the tables of one copy;
    drained: of all tiles. windows: reads at least; written: tile words of
    branches, which share a port. waste: share of the pixels computed
    that lie outside the map, weighted by their operators. feature_words, feature_rest_words: shallowest
    banks that hold the network, in steps of FEATURE_STEP.
    """

    tile_size: int
    stored_operators: int
    operators: int
    entries: int
    drained: int
    windows: int
    written: int
    waste: float
    feature_words: int
    feature_rest_words: int

    @property
    def stream_words(self) -> int:
        """72-bit words that hold one copy of all filters."""
        return -(-self.stored_operators // OPERATORS_PER_WORD)

    def bound(self, design: Design) -> float:
        """Cycles that no program can be faster than: every operator, window and tile word takes its cycle."""
        return max(
            self.operators / design.pes,
            self.drained * design.output_beats / design.branches,
            float(self.windows),
            float(self.written),
        )


def network_facts(graph: IntegerGraph, base: HardwareConfig, tile_size: int) -> NetworkFacts:
    """Count what a network asks for.

    Raises:
        CapacityError: it does not fit any memory with tiles of this size, or they are too small for a kernel.

    """
    config = replace(
        base, tile_size=tile_size, dsp_pairs=0, lut_dsp_pairs=0, uram_banks=0,
        feature_depth_words=_MOST_FEATURES, feature_depth_rest_words=_MOST_FEATURES,
    )  # fmt: skip
    lowered = lower_integer_graph(graph, config)
    stored = operators = entries = drained = windows = written = 0
    inside = 0.0
    for index, node in enumerate(lowered.nodes):
        geometry = lower_node(lowered, index, node, config).geometry
        target = lowered.tensors[node.output]
        rows, columns = tile_grid(target, tile_size)
        tiles, channels = rows * columns, lowered.tensors[node.input].channels
        windows += tiles * channels * geometry.fetches
        if isinstance(node, Conv):
            written += tiles * target.channels
            parts = build_parts(node, geometry, config.max_weight_sum)
            own = len(parts.word)
            stored, operators = stored + own, operators + own * tiles
            entries, drained = entries + parts.count, drained + parts.count * tiles
            inside += own * target.height * target.width / tile_size**2
    depth, rest = _feature_depths(lowered, config)
    return NetworkFacts(
        tile_size, stored, operators, entries, drained, windows, written,
        1 - inside / operators if operators else 0.0, depth, rest,
    )  # fmt: skip


def _feature_depths(graph: IntegerGraph, config: HardwareConfig) -> tuple[int, int]:
    """Shallowest banks of the first tile row of three, and then of the other two."""
    place_tensors(graph, config)  # raises if even the deepest are too small

    def fits(depth: int, rest: int) -> bool:
        try:
            place_tensors(graph, replace(config, feature_depth_words=depth, feature_depth_rest_words=rest))
        except CapacityError:
            return False
        return True

    depth = _least(lambda words: fits(words, words))
    return depth, min(depth, _least(lambda words: words >= depth or fits(depth, words)))


def _least(fits: Callable[[int], bool]) -> int:
    """Smallest multiple of FEATURE_STEP that fits; the largest always does."""
    low, high = 0, _MOST_FEATURES // FEATURE_STEP
    while high - low > 1:
        middle = (low + high) // 2
        low, high = (low, middle) if fits(middle * FEATURE_STEP) else (middle, high)
    return high * FEATURE_STEP
