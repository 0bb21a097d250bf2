"""How a layer is spread over branches, passes and PEs: candidates with their predicted cycles."""

from __future__ import annotations

import dataclasses

import numpy as np

from espalier.arch.config import HardwareConfig
from espalier.arch.program import COMMON_FIELDS
from espalier.backend.deal import deal_filters, drain_order
from espalier.backend.digits import Parts
from espalier.backend.plan import CountArray, IntArray, Layer, Mapping
from espalier.backend.runs import run_lengths
from espalier.backend.streams import block_sizes
from espalier.errors import CapacityError
from espalier.estimate.cycles import ConvLoad, conv_cycles, pool_cycles
from espalier.ir.graph import Conv, Pool, Tensor

BLOCK_WORDS = (16, 8)
_MAX_PASSES = next(field.high for field in COMMON_FIELDS if field.name == "passes")
_MAX_BLOCKS = next(field.high for field in COMMON_FIELDS if field.name == "blocks")


def tile_grid(tensor: Tensor, tile_size: int) -> tuple[int, int]:
    """Tile rows and columns of a tensor."""
    return -(-tensor.height // tile_size), -(-tensor.width // tile_size)


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
    tiles_y, tiles_x = tile_grid(output, config.tile_size)
    found: list[Mapping] = []
    for block_words in BLOCK_WORDS:
        if config.ring_words // block_words < 2 or -(-parts.words // block_words) > _MAX_BLOCKS:
            continue
        counts = _part_counts(parts, block_words)
        for tile_groups, filter_groups in groupings(config.branches, tiles_y * tiles_x, output.channels):
            for base in _passes(layer, parts, counts, filter_groups, config, balance):
                mapping = dataclasses.replace(
                    base,
                    tile_groups=tile_groups,
                    block_words=block_words,
                    words=block_sizes(parts.words, block_words),
                )
                load = conv_load(layer, mapping, tiles_y, tiles_x)
                found.append(dataclasses.replace(mapping, cycles=conv_cycles(load, config)))
    if not found:
        _explain(layer, parts, config)
    return _worth_considering(found)


def conv_load(layer: Layer, mapping: Mapping, tiles_y: int, tiles_x: int) -> ConvLoad:
    """Describe the work of a mapping's busiest tile group to the cycle model."""
    parts, node = layer.parts, layer.node
    assert parts is not None and isinstance(node, Conv), "convolutions only"
    branches, pes, passes, blocks, _ = mapping.lengths.shape
    operators = mapping.lengths.sum(axis=4, dtype=np.int64).reshape(branches * pes, passes, blocks)
    drains = [
        [drain_order(mapping.deal, parts, branch, which)[0] + branch * pes for branch in range(branches)]
        for which in range(passes)
    ]
    channels = parts.words // len(layer.geometry.patterns)
    return ConvLoad(
        operators=operators.transpose(1, 2, 0),
        words=mapping.words,
        filters=mapping.deal.filters.reshape(-1),
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
            windows_of_all=tiles * output.channels * layer.geometry.fetches,
            config=config,
        )
        options.append((cycles, tile_groups, groups))
    cycles, tile_groups, groups = min(options)
    return (tile_groups, groups), cycles


def _part_counts(parts: Parts, block_words: int) -> CountArray:
    counts = parts.block_counts(block_words).astype(np.int32)
    return np.concatenate((counts, np.zeros((1, counts.shape[1]), np.int32)))


def _passes(
    layer: Layer, parts: Parts, counts: CountArray, filter_groups: int, config: HardwareConfig, balance: bool
) -> list[Mapping]:
    """List mappings of one grouping with different numbers of passes, tile_groups and blocks still open."""
    cost: IntArray = np.maximum(counts[:-1], 1).sum(axis=1).astype(np.int64)
    pes = filter_groups * config.pes_per_branch
    fewest = -(-parts.count // (pes * config.accumulators))
    filters = len(parts.first_part) - 1
    most = min(-(-parts.count // pes), _MAX_PASSES, filters // filter_groups)
    result: list[Mapping] = []
    tried: set[int] = set()
    for factor in (1, 2, 4):
        passes = fewest * factor
        # A few more passes if the parts of large filters do not pack into the fewest.
        for count in range(passes, max(passes + 8, 2 * passes) if not result else passes + 1):
            if (
                count in tried
                or (count > most and result)
                or count > min(_MAX_PASSES, filters // filter_groups)
            ):
                continue
            tried.add(count)
            deal = deal_filters(
                parts, cost, filter_groups, config.pes_per_branch, count, config.accumulators, balance
            )
            if deal is not None:
                lengths = run_lengths(counts, deal)
                nothing = np.zeros(0, np.int64)
                result.append(Mapping(1, filter_groups, count, 0, nothing, deal, lengths))
                break
    return result


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
