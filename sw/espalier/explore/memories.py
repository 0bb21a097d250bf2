"""Memories for a design: just deep enough for feature maps, and as deep as fits for streams and tables.

Deeper streams and tables let the compiler spread tiles over branches, each with a copy of the filters; beside
what a design needs, block RAMs and UltraRAMs are free, as they are not what the front is about.
"""

from __future__ import annotations

import itertools
from collections.abc import Iterator
from dataclasses import replace

from espalier.arch.config import HardwareConfig
from espalier.arch.feature_layout import BANKS
from espalier.estimate.resources import estimate_resources
from espalier.explore.design import Design, Limits
from espalier.explore.facts import NetworkFacts

TABLE_STEP = 512  # words of a block RAM
_ULTRA_STEP = 4096  # words of an UltraRAM
_DEEPEST = 16384
_SPARE = 1.02  # of streams, which are never filled evenly


def stream_step(base: HardwareConfig) -> int:
    """Words of the memory that streams consist of: an UltraRAM, or a block RAM where there are none."""
    return _ULTRA_STEP if base.has_ultra_ram else TABLE_STEP


def table_depths(base: HardwareConfig) -> tuple[int, ...]:
    """Depths of tables: block RAMs up to where `HardwareConfig.table_in_ultra` begins, then UltraRAMs."""
    if not base.has_ultra_ram:
        return tuple(range(TABLE_STEP, _DEEPEST + 1, TABLE_STEP))
    return (*range(TABLE_STEP, 2561, TABLE_STEP), *range(_ULTRA_STEP, _DEEPEST + 1, _ULTRA_STEP))


def bank_choices(base: HardwareConfig) -> range:
    """Numbers of feature banks that can lie in UltraRAM."""
    return range(BANKS + 1 if base.has_ultra_ram else 1)


def with_memories(design: Design, facts: NetworkFacts, base: HardwareConfig, limits: Limits) -> Design | None:
    """Give a design the memories it needs, and deeper streams and tables where there is room.

    None if they do not fit together, whatever the lanes are made of.
    """
    for table, stream in itertools.product(_tables(design, facts, base), _streams(design, facts, base)):
        # More banks in UltraRAM leave more block RAMs and take fewer LUTs: as many as there is room for.
        for banks in reversed(bank_choices(base)):
            filled = replace(
                design, stream_depth_words=stream, table_depth_words=table, uram_banks=banks,
                feature_depth_words=facts.feature_words, feature_depth_rest_words=facts.feature_rest_words,
            )  # fmt: skip
            total = estimate_resources(filled.config(base)).total
            if total.uram <= limits.most["uram"]:
                if total.bram36 <= limits.most["bram36"]:
                    return filled
                break
    return None


def least_memories(design: Design, facts: NetworkFacts, base: HardwareConfig) -> Design | None:
    """Give a design the shallowest memories that hold the network, none in UltraRAM; None if none do."""
    streams, tables = list(_streams(design, facts, base)), list(_tables(design, facts, base))
    if not streams or not tables:
        return None
    return replace(
        design, stream_depth_words=streams[-1], table_depth_words=tables[-1], uram_banks=0,
        feature_depth_words=facts.feature_words, feature_depth_rest_words=facts.feature_rest_words,
    )  # fmt: skip


def _streams(design: Design, facts: NetworkFacts, base: HardwareConfig) -> Iterator[int]:
    """Depths worth trying: one step more than the network needs, then just enough."""
    step = stream_step(base)
    least = -(-int(_SPARE * facts.stream_words / design.pes + 1) // step)
    yield from (steps * step for steps in (least + 1, least) if steps * step <= _DEEPEST)


def _tables(design: Design, facts: NetworkFacts, base: HardwareConfig) -> Iterator[int]:
    """Depths from a copy of all filters in every branch down to one copy for all branches together."""
    depths = table_depths(base)
    enough = next((depth for depth in depths if depth >= facts.entries), depths[-1])
    least = facts.entries / design.branches
    yield from (depth for depth in reversed(depths) if least <= depth <= enough)
