"""Neighbours of a design: one coordinate changed at a time."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace

from espalier.arch.config import HardwareConfig
from espalier.explore.design import Design, output_pairs
from espalier.explore.facts import FEATURE_STEP
from espalier.explore.memories import bank_choices, stream_step, table_depths

_ODD_STEPS = (-4, -2, -1, 1, 2, 4)
_WINDOW_DEPTHS = (8, 16, 24, 32)


def shape_moves(design: Design) -> Iterator[Design]:
    """Other tiles, branches and PEs; memories must be chosen anew for them."""
    for tile_size in (design.tile_size - 1, design.tile_size + 1):
        yield replace(design, tile_size=tile_size, output_pairs=output_pairs(tile_size, design.output_beats))
    even = replace(design, odd_branches=0, odd_pes=0)
    for branches in (design.branches - 1, design.branches + 1):
        if branches > 0:
            yield replace(even, branches=branches)
            yield replace(even, branches=branches, pes_per_branch=max(1, round(design.pes / branches)))
    for step in (-1, 1):
        yield replace(design, pes_per_branch=design.pes_per_branch + step)
    if design.branches > 1:
        odd_pes = design.odd_pes or design.pes_per_branch
        for step in _ODD_STEPS:
            yield replace(design, odd_branches=design.odd_branches or 1, odd_pes=odd_pes + step)
        if design.odd_branches:
            for odd in (design.odd_branches - 1, design.odd_branches + 1):
                if odd < design.branches:
                    yield replace(design, odd_branches=odd, odd_pes=odd_pes if odd else 0)


def detail_moves(design: Design, base: HardwareConfig) -> Iterator[Design]:
    """Other rings, accumulators, output stages, buffers and memories of the same shape."""
    for name in ("ring_words", "accumulators"):
        value = getattr(design, name)
        yield from (replace(design, **{name: other}) for other in (value // 2, 2 * value))
    for beats in (design.output_beats - 1, design.output_beats + 1):
        if beats > 0:
            yield replace(design, output_pairs=output_pairs(design.tile_size, beats))
    for depth in _neighbours(design.window_fifo_depth, _WINDOW_DEPTHS):
        yield replace(design, window_fifo_depth=depth)
    for depth in _neighbours(design.table_depth_words, table_depths(base)):
        yield replace(design, table_depth_words=depth)
    for step in (-1, 1):
        yield replace(design, stream_depth_words=design.stream_depth_words + step * stream_step(base))
        words = design.feature_depth_words + step * FEATURE_STEP
        rest = design.feature_depth_rest_words + step * FEATURE_STEP
        yield replace(design, feature_depth_words=words)
        yield replace(design, feature_depth_rest_words=rest)
        yield replace(design, feature_depth_words=words, feature_depth_rest_words=rest)
        if design.uram_banks + step in bank_choices(base):
            yield replace(design, uram_banks=design.uram_banks + step)


def _neighbours(value: int, values: tuple[int, ...]) -> list[int]:
    """Next smaller and next larger of `values`."""
    smaller = [other for other in values if other < value][-1:]
    return smaller + [other for other in values if other > value][:1]
