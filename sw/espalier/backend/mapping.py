"""How a layer is spread over branches, passes and PEs: candidates with their predicted cycles."""

from __future__ import annotations

import dataclasses
from collections.abc import Callable, Iterator

import numpy as np

from espalier.arch.config import HardwareConfig
from espalier.arch.feature_layout import tile_counts
from espalier.arch.program import COMMON_FIELDS
from espalier.backend.deal import Shape, deal_by_load, deal_in_order, deal_to_bins, drain_order
from espalier.backend.digits import Parts
from espalier.backend.plan import Deal, Group, Layer, Mapping, Plan
from espalier.backend.runs import run_lengths
from espalier.backend.share import share_parts
from espalier.backend.spread import Grouping, groupings, spread_tiles
from espalier.backend.streams import block_sizes
from espalier.errors import CapacityError
from espalier.estimate.cycles import ConvLoad, conv_cycles
from espalier.ir.graph import Conv, Tensor

BLOCK_WORDS = (16, 8)
_CUTS = (0, 1, 2, 3, 4)  # parts per PE that are cut to be shared; 0: only filters of two parts are shared
_MAX_PASSES = next(field.high for field in COMMON_FIELDS if field.name == "passes")
_MAX_BLOCKS = next(field.high for field in COMMON_FIELDS if field.name == "blocks")

Pes = tuple[int, ...]  # PEs of every branch of a group


def tile_grid(tensor: Tensor, tile_size: int) -> tuple[int, int]:
    """Tile rows and columns of a tensor."""
    return tile_counts(tensor.height, tensor.width, tile_size)


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
        for grouping in groupings(config, tiles[0] * tiles[1], output.channels):
            found += _plain_mappings(layer, parts, grouping, block_words, tiles, config, balance)
    if not found:
        _explain(layer, parts, config)
    kept = _worth_considering(found)
    if not balance:
        return kept
    # Sharing pays most for the fastest of every grouping and block size.
    best = {(_grouping(base), base.block_words): base for base in reversed(kept)}
    shared = [mapping for base in best.values() for mapping in _shared(parts, base, tiles, config)]
    return _worth_considering(kept + [_predict(layer, mapping, tiles, config) for mapping in shared])


def conv_load(layer: Layer, mapping: Mapping, group: Group, tiles_x: int) -> ConvLoad:
    """Describe the work of one tile group to the cycle model."""
    plan, node = group.plan, layer.node
    assert isinstance(node, Conv), "convolutions only"
    operators = plan.lengths.sum(axis=4, dtype=np.int64)
    drains = [
        [drain_order(plan.deal, plan.parts, branch, which)[0] for branch in range(len(plan.pes))]
        for which in range(plan.passes)
    ]
    channels = plan.parts.words // len(layer.geometry.patterns)
    return ConvLoad(
        operators=operators.transpose(2, 3, 0, 1),
        words=mapping.words,
        filters=plan.deal.filters,
        drains=drains,
        windows=channels * layer.geometry.fetches * plan.passes,
        residuals=len(node.weights) if node.residual is not None else 0,
        sharing=group.period / group.run,
        tile_rows=group.places() // tiles_x,
        block_words=mapping.block_words,
    )


def busiest_groups(mapping: Mapping) -> list[Group]:
    """Group with most tiles of every plan."""
    most: dict[int, Group] = {}
    for group in mapping.groups:
        kept = most.setdefault(id(group.plan), group)
        if group.tiles > kept.tiles:
            most[id(group.plan)] = group
    return list(most.values())


def _grouping(mapping: Mapping) -> Grouping:
    return tuple(group.branches for group in mapping.groups)


def _predict(layer: Layer, mapping: Mapping, tiles: tuple[int, int], config: HardwareConfig) -> Mapping:
    cycles = [
        conv_cycles(conv_load(layer, mapping, group, tiles[1]), config) for group in busiest_groups(mapping)
    ]
    return dataclasses.replace(mapping, cycles=max(cycles))


def _plain_mappings(
    layer: Layer,
    parts: Parts,
    grouping: Grouping,
    block_words: int,
    tiles: tuple[int, int],
    config: HardwareConfig,
    balance: bool,
) -> Iterator[Mapping]:
    """Yield mappings of a grouping with different numbers of passes, no filters shared."""
    kinds = {tuple(config.branch_pes(branch) for branch in group) for group in grouping}
    for passes in _pass_counts(parts, kinds, config):

        def make(pes: Pes, passes: int = passes) -> Plan | None:
            deal = _plain_deal(parts, block_words, Shape(pes, passes, config.accumulators), balance)
            return _plan(pes, parts, deal, block_words) if deal is not None else None

        mapping = _mapping(grouping, make, block_words, tiles, config)
        if mapping is not None:
            yield _predict(layer, mapping, tiles, config)


def _mapping(
    grouping: Grouping,
    make: Callable[[Pes], Plan | None],
    block_words: int,
    tiles: tuple[int, int],
    config: HardwareConfig,
) -> Mapping | None:
    """Map with a plan for every kind of group; None if there is no plan, or no tile for a group."""
    plans: dict[Pes, Plan] = {}
    for group in grouping:
        pes = tuple(config.branch_pes(branch) for branch in group)
        plan = plans.get(pes) or make(pes)
        if plan is None:
            return None
        plans[pes] = plan
    of_group = [plans[tuple(config.branch_pes(branch) for branch in group)] for group in grouping]
    costs = [_tile_cost(plan) for plan in of_group]
    groups = spread_tiles(grouping, of_group, costs, tiles[0] * tiles[1])
    words = block_sizes(of_group[0].parts.words, block_words)
    return Mapping(groups, block_words, words) if groups is not None else None


def _tile_cost(plan: Plan) -> int:
    """Cycles of a group for a tile, roughly: operators of the busiest PE, or window words."""
    busiest = int(plan.lengths.sum(axis=(2, 3, 4), dtype=np.int64).max())
    return max(busiest, plan.parts.words * plan.passes)


def _plan(pes: Pes, parts: Parts, deal: Deal, block_words: int) -> Plan:
    counts = parts.block_counts(block_words)
    lengths = run_lengths(np.concatenate((counts, np.zeros_like(counts[:1]))), deal)
    return Plan(pes, parts, deal, lengths)


def _pass_counts(parts: Parts, kinds: set[Pes], config: HardwareConfig) -> list[int]:
    """Numbers of passes to try; more than needed shorten the drain at the end of a layer."""
    filters = len(parts.first_part) - 1
    limit = min(_MAX_PASSES, filters // max(map(len, kinds)))
    fewest = max(-(-parts.count // (sum(pes) * config.accumulators)) for pes in kinds)
    ones, in_order = np.ones(parts.count, np.int64), np.arange(filters)
    for passes in range(fewest, limit + 1):
        shapes = [Shape(pes, passes, config.accumulators) for pes in kinds]
        if all(deal_to_bins(parts, ones, in_order, shape) is not None for shape in shapes):
            most = min(-(-parts.count // max(map(sum, kinds))), limit)
            return [passes, *(n for n in (2 * passes, 4 * passes) if n <= most)]
    return []


def _plain_deal(parts: Parts, block_words: int, shape: Shape, balance: bool) -> Deal | None:
    if not balance:
        return deal_in_order(parts, shape)
    cost = np.maximum(parts.block_counts(block_words), 1).sum(axis=1).astype(np.int64)
    return deal_by_load(parts, cost, shape)


def _shared(parts: Parts, base: Mapping, tiles: tuple[int, int], config: HardwareConfig) -> Iterator[Mapping]:
    """Variants of a mapping in which PEs share filters."""
    counts = parts.block_counts(base.block_words)
    plain = {plan.pes: plan for plan in base.plans}
    for cuts in _CUTS:
        changed = False

        def make(pes: Pes, cuts: int = cuts) -> Plan:
            nonlocal changed
            shape = Shape(pes, base.passes, config.accumulators)
            shared = share_parts(parts, counts, base.block_words, shape, cuts)
            if shared is None:
                return plain[pes]
            changed = True
            return _plan(pes, *shared, base.block_words)

        mapping = _mapping(_grouping(base), make, base.block_words, tiles, config)
        if mapping is not None and changed:
            yield mapping


def _worth_considering(found: list[Mapping]) -> list[Mapping]:
    kept: list[Mapping] = []
    best: list[tuple[float, float]] = []
    for mapping in sorted(found, key=lambda m: (m.cycles, m.mean_stream_words, m.most_table_entries)):
        use = mapping.mean_stream_words, float(mapping.most_table_entries)
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
    available = config.accumulators * config.most_pes
    raise CapacityError(
        f"layer {layer.node.name}: a filter needs {largest} accumulators and all filters {parts.count},"
        f" a branch has {available} in each of at most {_MAX_PASSES} passes;"
        " prune the layer or use fewer weight bits"
    )
