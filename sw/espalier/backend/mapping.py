"""How a layer is spread over branches, passes and PEs: candidates with their predicted cycles."""

from __future__ import annotations

import dataclasses
from collections.abc import Iterator

import numpy as np

from espalier.arch.config import HardwareConfig
from espalier.arch.feature_layout import tile_counts
from espalier.arch.program import COMMON_FIELDS
from espalier.backend.deal import Shape, deal_by_load, deal_in_order, deal_to_bins, drain_order
from espalier.backend.digits import Parts
from espalier.backend.plan import Deal, Layer, Mapping
from espalier.backend.runs import run_lengths
from espalier.backend.share import share_parts
from espalier.backend.streams import block_sizes
from espalier.errors import CapacityError
from espalier.estimate.cycles import ConvLoad, conv_cycles, pool_cycles
from espalier.ir.graph import Conv, Pool, Tensor

BLOCK_WORDS = (16, 8)
_CUTS = (0, 1, 2, 3, 4)  # parts per PE that are cut to be shared; 0: only filters of two parts are shared
_MAX_PASSES = next(field.high for field in COMMON_FIELDS if field.name == "passes")
_MAX_BLOCKS = next(field.high for field in COMMON_FIELDS if field.name == "blocks")


def tile_grid(tensor: Tensor, tile_size: int) -> tuple[int, int]:
    """Tile rows and columns of a tensor."""
    return tile_counts(tensor.height, tensor.width, tile_size)


def groupings(branches: int, tiles: int, channels: int) -> list[tuple[int, int]]:
    """Ways to use the branches: (groups that take different tiles, branches of a group that share a tile).

    Branches of a group take different output channels, each at least one.
    """
    return [(groups, min(branches // groups, channels)) for groups in range(1, min(branches, tiles) + 1)]


def conv_candidates(layer: Layer, output: Tensor, config: HardwareConfig, balance: bool) -> list[Mapping]:
    """All mappings worth considering, best first; those that another one beats in every respect are left out.

    Raises:
        CapacityError: a filter needs more accumulators than a branch has, or the layer too many blocks.

    """
    parts = layer.parts
    assert parts is not None, "convolutions have parts"
    tiles = tile_grid(output, config.tile_size)
    found: list[Mapping] = []
    for block_words in BLOCK_WORDS:
        if config.ring_words // block_words < 2 or -(-parts.words // block_words) > _MAX_BLOCKS:
            continue
        for tile_groups, filter_groups in groupings(config.branches, tiles[0] * tiles[1], output.channels):
            for shape in _shapes(parts, filter_groups, config):
                deal = _plain_deal(parts, block_words, shape, balance)
                if deal is not None:
                    mapping = _mapping(parts, deal, tile_groups, block_words)
                    found.append(_predict(layer, mapping, tiles, config))
    if not found:
        _explain(layer, parts, config)
    kept = _worth_considering(found)
    if not balance:
        return kept
    # Sharing pays most for the fastest of every grouping and block size.
    best = {(base.tile_groups, base.block_words): base for base in reversed(kept)}
    shared = [mapping for base in best.values() for mapping in _shared(parts, base, config)]
    return _worth_considering(kept + [_predict(layer, mapping, tiles, config) for mapping in shared])


def _predict(layer: Layer, mapping: Mapping, tiles: tuple[int, int], config: HardwareConfig) -> Mapping:
    return dataclasses.replace(mapping, cycles=conv_cycles(conv_load(layer, mapping, *tiles), config))


def _mapping(parts: Parts, deal: Deal, tile_groups: int, block_words: int) -> Mapping:
    counts = parts.block_counts(block_words)
    lengths = run_lengths(np.concatenate((counts, np.zeros_like(counts[:1]))), deal)
    branches, _, passes, _ = deal.part_at.shape
    words = block_sizes(parts.words, block_words)
    return Mapping(tile_groups, branches, passes, block_words, words, parts, deal, lengths)


def conv_load(layer: Layer, mapping: Mapping, tiles_y: int, tiles_x: int) -> ConvLoad:
    """Describe the work of a mapping's busiest tile group to the cycle model."""
    parts, node = mapping.parts, layer.node
    assert isinstance(node, Conv), "convolutions only"
    branches, _, passes, _, _ = mapping.lengths.shape
    operators = mapping.lengths.sum(axis=4, dtype=np.int64)
    drains = [
        [drain_order(mapping.deal, parts, branch, which)[0] for branch in range(branches)]
        for which in range(passes)
    ]
    channels = parts.words // len(layer.geometry.patterns)
    return ConvLoad(
        operators=operators.transpose(2, 3, 0, 1),
        words=mapping.words,
        filters=mapping.deal.filters,
        drains=drains,
        windows=channels * layer.geometry.fetches * passes,
        residuals=len(node.weights) if node.residual is not None else 0,
        tile_groups=mapping.tile_groups,
        tile_rows=np.arange(0, tiles_y * tiles_x, mapping.tile_groups) // tiles_x,
        block_words=mapping.block_words,
    )


def pool_mapping(layer: Layer, output: Tensor, config: HardwareConfig) -> tuple[tuple[int, int], int]:
    """Best (tile groups, channel groups) of a pooling layer and its predicted cycles."""
    assert isinstance(layer.node, Pool), "pooling only"
    tiles_y, tiles_x = tile_grid(output, config.tile_size)
    tiles = tiles_y * tiles_x
    patterns = layer.geometry.patterns
    taps = sum(pattern.taps.bit_count() for pattern in patterns)
    options = []
    for tile_groups, groups in groupings(config.branches, tiles, output.channels):
        cycles = pool_cycles(
            tiles=-(-tiles // tile_groups),
            channels=-(-output.channels // groups),
            patterns=len(patterns),
            taps=taps,
            fetches=layer.geometry.fetches,
            branches=tile_groups * groups,
            config=config,
        )
        options.append((cycles, tile_groups, groups))
    cycles, tile_groups, groups = min(options)
    return (tile_groups, groups), cycles


def _shapes(parts: Parts, filter_groups: int, config: HardwareConfig) -> list[Shape]:
    """Shapes with different numbers of passes; more than needed shorten the drain at the end of a layer."""
    pes = filter_groups * config.pes_per_branch
    limit = min(_MAX_PASSES, (len(parts.first_part) - 1) // filter_groups)
    for passes in range(-(-parts.count // (pes * config.accumulators)), limit + 1):
        shape = Shape(filter_groups, config.pes_per_branch, passes, config.accumulators)
        if (
            deal_to_bins(parts, np.ones(parts.count, np.int64), np.arange(len(parts.first_part) - 1), shape)
            is not None
        ):
            most = min(-(-parts.count // pes), limit)
            more = [dataclasses.replace(shape, passes=n) for n in (2 * passes, 4 * passes) if n <= most]
            return [shape, *more]
    return []


def _plain_deal(parts: Parts, block_words: int, shape: Shape, balance: bool) -> Deal | None:
    if not balance:
        return deal_in_order(parts, shape)
    cost = np.maximum(parts.block_counts(block_words), 1).sum(axis=1).astype(np.int64)
    return deal_by_load(parts, cost, shape)


def _shared(parts: Parts, base: Mapping, config: HardwareConfig) -> Iterator[Mapping]:
    """Variants of a mapping in which PEs share filters."""
    shape = Shape(base.filter_groups, config.pes_per_branch, base.passes, config.accumulators)
    counts = parts.block_counts(base.block_words)
    for cuts in _CUTS:
        shared = share_parts(parts, counts, base.block_words, shape, cuts)
        if shared is not None:
            yield _mapping(*shared, base.tile_groups, base.block_words)


def _worth_considering(found: list[Mapping]) -> list[Mapping]:
    kept: list[Mapping] = []
    best: list[tuple[float, float]] = []
    for mapping in sorted(found, key=lambda m: (m.cycles, m.stream_words.mean(), m.table_entries.max())):
        use = float(mapping.stream_words.mean()), float(mapping.table_entries.max())
        if not any(stream <= use[0] and table <= use[1] for stream, table in best):
            kept.append(mapping)
            best.append(use)
    return kept


def _explain(layer: Layer, parts: Parts, config: HardwareConfig) -> None:
    if -(-parts.words // max(BLOCK_WORDS)) > _MAX_BLOCKS:
        raise CapacityError(
            f"layer {layer.node.name}: {parts.words} window words per tile, the hardware counts"
            f" {_MAX_BLOCKS * max(BLOCK_WORDS)} ({parts.words - _MAX_BLOCKS * max(BLOCK_WORDS)} too many);"
            " use fewer input channels or a smaller kernel"
        )
    largest = int(np.diff(parts.first_part).max())
    available = config.accumulators * config.pes_per_branch
    raise CapacityError(
        f"layer {layer.node.name}: a filter needs {largest} accumulators and all filters {parts.count},"
        f" a branch has {available} in each of at most {_MAX_PASSES} passes;"
        " prune the layer or use fewer weight bits"
    )
