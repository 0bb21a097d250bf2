"""How a layer is spread over branches, passes and PEs: candidates with their predicted cycles."""

from __future__ import annotations

import dataclasses
from collections.abc import Callable, Iterator

import numpy as np

from espalier.arch.config import HardwareConfig
from espalier.arch.feature_layout import tile_counts
from espalier.arch.program import COMMON_FIELDS
from espalier.backend.deal import Shape, deal_in_order, deals_by_load, fits
from espalier.backend.digits import Parts
from espalier.backend.plan import CountArray, Deal, Group, Layer, Mapping, Plan
from espalier.backend.runs import run_lengths
from espalier.backend.share import Sharing
from espalier.backend.spread import Grouping, groupings, spread_tiles
from espalier.backend.streams import block_sizes
from espalier.errors import CapacityError
from espalier.estimate.cycles import ConvLoad, conv_cycles, least_cycles
from espalier.ir.graph import Tensor

BLOCK_WORDS = (16, 8)
_CUTS = (0, 1, 2, 3, 4)  # parts per PE that are cut to be shared; 0: only filters of two parts are shared
_STRETCHES = 12  # of the words of a pass, in each of which PEs get the same load if possible
# Other deals that are tried: how many, for how many parts in all, and how much loads are changed for them.
_VARIATIONS, _VARIED_PARTS, _VARIATION = 16, 1024, 0.08
# They are tried for mappings that could gain more than this and are not that much slower than the best.
_NEAR, _FAR = 1.02, 1.5
_OF_A_SPLIT = 2
_MAX_PASSES = next(field.high for field in COMMON_FIELDS if field.name == "passes")
_MAX_BLOCKS = next(field.high for field in COMMON_FIELDS if field.name == "blocks")

Pes = tuple[int, ...]  # PEs of every branch of a group


def tile_grid(tensor: Tensor, tile_size: int) -> tuple[int, int]:
    """Tile rows and columns of a tensor."""
    return tile_counts(tensor.height, tensor.width, tile_size)


def find_mappings(layer: Layer, output: Tensor, config: HardwareConfig, balance: bool) -> list[Mapping]:
    """Ways to spread a convolution: with `balance` by load, in no order; without, the one to be taken first.

    Raises:
        CapacityError: a filter needs more accumulators than a branch has, or the layer too many blocks.

    """
    assert layer.parts is not None, "convolutions have parts"
    tiles = tile_grid(output, config.tile_size)
    search = _Search(layer, layer.parts, tiles[0] * tiles[1], config)
    found = search.balanced() if balance else search.in_order()
    if not found:
        _explain(layer, layer.parts, config)
    return found


def worth_considering(found: list[Mapping]) -> list[Mapping]:
    """Leave out mappings that another one beats in every respect; best first."""
    kept: list[Mapping] = []
    best: list[tuple[float, float]] = []
    for mapping in sorted(found, key=lambda m: (m.cycles, m.mean_stream_words, m.most_table_entries)):
        use = mapping.mean_stream_words, float(mapping.most_table_entries)
        if not any(stream <= use[0] and table <= use[1] for stream, table in best):
            kept.append(mapping)
            best.append(use)
    return kept


def best_of_every_split(found: list[Mapping]) -> list[Mapping]:
    """Two fastest mappings of every split over branches, passes and block size; best first."""
    best: dict[tuple[Grouping, int, int], list[Mapping]] = {}
    kept = []
    for mapping in sorted(found, key=lambda m: m.cycles):
        own = best.setdefault((_grouping(mapping), mapping.passes, mapping.block_words), [])
        if len(own) < _OF_A_SPLIT:
            own.append(mapping)
            kept.append(mapping)
    return kept


def conv_load(layer: Layer, mapping: Mapping, group: Group) -> ConvLoad:
    """Describe the work of one tile group to the cycle model."""
    plan = group.plan
    assert layer.parts is not None, "convolutions have parts"
    channels = layer.parts.words // len(layer.geometry.patterns)
    return ConvLoad(
        operators=plan.operators.transpose(2, 3, 0, 1),
        words=mapping.words,
        filters=plan.deal.filters,
        windows=channels * layer.geometry.fetches * plan.passes,
        sharing=group.period / group.run,
        tiles=group.tiles,
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


class _Search:
    """Search of the mappings of one layer to `tiles` tiles."""

    def __init__(self, layer: Layer, parts: Parts, tiles: int, config: HardwareConfig) -> None:
        self.layer, self.parts, self.tiles, self.config = layer, parts, tiles, config
        self.groupings = groupings(config, tiles, len(parts.first_part) - 1)
        self.block_words = [
            words
            for words in BLOCK_WORDS
            if config.ring_words // words >= 2 and -(-parts.words // words) <= _MAX_BLOCKS
        ]
        self.stretches = parts.block_counts(max(1, -(-parts.words // _STRETCHES)))
        self.sharing = Sharing(parts)
        self.counts = {words: parts.block_counts(words) for words in self.block_words}

    def _parts(self) -> Parts:
        return self.parts

    def balanced(self) -> list[Mapping]:
        """Deal filters by load; then share filters in the best of every grouping."""
        plain = self.predict(list(self._plain()))
        best: dict[tuple[Grouping, int], Mapping] = {}
        for mapping in sorted(plain, key=lambda m: m.cycles):
            best.setdefault((_grouping(mapping), mapping.block_words), mapping)
        bases = [base for base in best.values() if not self._beaten(base, plain)]
        shared: list[Mapping] = []
        for block_words in self.block_words:
            shared += self._shared([base for base in bases if base.block_words == block_words], block_words)
        slowest = _FAR * min((mapping.cycles for mapping in plain), default=0)
        varied = [base for base in bases if base.cycles <= slowest and not self._beaten(base, plain, _NEAR)]
        return plain + self.predict([*shared, *self._varied(varied)])

    def _varied(self, bases: list[Mapping]) -> Iterator[Mapping]:
        """Other deals of the filters: with few filters per PE chance makes much of a difference."""
        random = np.random.default_rng(0)
        shapes = list(
            {
                Shape(plan.pes, base.passes, self.config.accumulators): 0
                for base in bases
                for plan in base.plans
            }
        )
        asked = []
        for _ in range(min(_VARIATIONS, _VARIED_PARTS // self.parts.count)):
            spread = random.lognormal(0, _VARIATION, (self.parts.count, 1))
            cost = np.round(self.stretches * (16 * spread)).astype(np.int64)
            asked += [(cost, shape) for shape in shapes]
        deals = iter(deals_by_load(self.parts, asked))
        for found in zip(*[deals] * len(shapes), strict=True):
            of_shape = dict(zip(shapes, found, strict=True))
            for base in bases:
                own = {
                    p.pes: of_shape[Shape(p.pes, base.passes, self.config.accumulators)] for p in base.plans
                }
                yield from self._dealt(_grouping(base), own, base.block_words)

    def _dealt(
        self, grouping: Grouping, deals: dict[Pes, Deal | None], block_words: int
    ) -> Iterator[Mapping]:
        """Make a mapping of the deals for all kinds of groups; nothing if one of them has none."""
        counts = self.counts[block_words]
        plans = {
            pes: _plan(pes, self._parts, deal, counts) for pes, deal in deals.items() if deal is not None
        }
        if len(plans) == len(deals):
            yield from self._mapping(grouping, plans, block_words)

    def _beaten(self, base: Mapping, others: list[Mapping], near: float = 1.0) -> bool:
        """Whether another mapping is as good, or nearly, as this one could be with equal loads of its PEs."""
        loads = [conv_load(self.layer, base, group) for group in busiest_groups(base)]
        least = near * max(least_cycles(load, self.config) for load in loads)
        stream, table = base.mean_stream_words, base.most_table_entries
        return any(
            other.cycles <= least and other.mean_stream_words <= stream and other.most_table_entries <= table
            for other in others
        )

    def _plain(self) -> Iterator[Mapping]:
        if not self.block_words:
            return
        asked: list[tuple[Grouping, list[Shape]]] = []
        for grouping in self.groupings:
            kinds = {self._pes(branches) for branches in grouping}
            asked += [
                (grouping, [Shape(pes, passes, self.config.accumulators) for pes in kinds])
                for passes in self._pass_counts(kinds)
            ]
        shapes = list({shape: 0 for _, kinds in asked for shape in kinds})
        found = deals_by_load(self.parts, [(self.stretches, shape) for shape in shapes])
        deals = dict(zip(shapes, found, strict=True))
        for grouping, own in asked:
            for block_words in self.block_words:
                yield from self._dealt(grouping, {shape.pes: deals[shape] for shape in own}, block_words)

    def _shared(self, bases: list[Mapping], block_words: int) -> Iterator[Mapping]:
        """Variants of mappings in which PEs share filters."""
        shapes = {(plan.pes, base.passes): plan for base in bases for plan in base.plans}
        keys = [(*key, cuts) for key in shapes for cuts in _CUTS]
        asked = [(Shape(pes, passes, self.config.accumulators), cuts) for pes, passes, cuts in keys]
        found = self.sharing.variants(self.counts[block_words], block_words, asked)
        made: dict[tuple[Pes, int, int], Plan] = {}
        plan_of: dict[int, Plan] = {}
        for key, shared in zip(keys, found, strict=True):
            if shared is not None:
                if id(shared) not in plan_of:
                    plan_of[id(shared)] = _plan(key[0], shared.build, shared.deal, shared.counts)
                made[key] = plan_of[id(shared)]
        for base in bases:
            seen = [{id(plan) for plan in base.plans}]
            for cuts in _CUTS:
                plans = {plan.pes: made.get((plan.pes, base.passes, cuts), plan) for plan in base.plans}
                same = {id(plan) for plan in plans.values()}
                if same not in seen:
                    seen.append(same)
                    yield from self._mapping(_grouping(base), plans, block_words)

    def in_order(self) -> list[Mapping]:
        """Deal filters in their own order, split by a fixed rule; the others are for want of memory only.

        As many tile groups as possible come first, then fewer; blocks are as long as possible.
        """
        found: list[Mapping] = []
        whole = [g for g in self.groupings if sum(map(len, g)) == self.config.branches] or self.groupings
        whole = whole[::-1] if self.tiles >= self.config.branches else whole
        for grouping in whole if self.block_words else ():
            kinds = {self._pes(branches) for branches in grouping}
            counts = self.counts[self.block_words[0]]
            for passes in range(1, min(_MAX_PASSES, len(self.parts.first_part)) + 1):
                shapes = {pes: Shape(pes, passes, self.config.accumulators) for pes in kinds}
                deals = {pes: deal_in_order(self.parts, shape) for pes, shape in shapes.items()}
                plans = {
                    pes: _plan(pes, self._parts, deal, counts)
                    for pes, deal in deals.items()
                    if deal is not None
                }
                if len(plans) == len(kinds):
                    found += self._mapping(grouping, plans, self.block_words[0])
                    break
        order = {_grouping(mapping): number for number, mapping in enumerate(found)}
        return sorted(self.predict(found), key=lambda mapping: order[_grouping(mapping)])

    def _pes(self, branches: tuple[int, ...]) -> Pes:
        return tuple(self.config.branch_pes(branch) for branch in branches)

    def _pass_counts(self, kinds: set[Pes]) -> list[int]:
        """Numbers of passes to try; more than needed leave accumulators to the next set."""
        parts = self.parts
        filters = len(parts.first_part) - 1
        limit = min(_MAX_PASSES, filters // max(map(len, kinds)))
        fewest = max(-(-parts.count // (sum(pes) * self.config.accumulators)) for pes in kinds)
        for passes in range(fewest, limit + 1):
            shapes = [Shape(pes, passes, self.config.accumulators) for pes in kinds]
            if all(fits(parts, shape) for shape in shapes):
                most = min(-(-parts.count // max(map(sum, kinds))), limit)
                return [passes, *(n for n in (2 * passes,) if n <= most)]
        return []

    def _mapping(self, grouping: Grouping, plans: dict[Pes, Plan], block_words: int) -> Iterator[Mapping]:
        """Spread the tiles; nothing if a group gets none."""
        of_group = [plans[self._pes(branches)] for branches in grouping]
        costs = [_tile_cost(plan, self.parts.words) for plan in of_group]
        groups = spread_tiles(grouping, of_group, costs, self.tiles)
        if groups is not None:
            yield Mapping(groups, block_words, block_sizes(self.parts.words, block_words))

    def predict(self, mappings: list[Mapping]) -> list[Mapping]:
        """Set the cycles of mappings."""
        result = []
        for block_words in self.block_words:
            own = [mapping for mapping in mappings if mapping.block_words == block_words]
            groups = [(index, group) for index, m in enumerate(own) for group in busiest_groups(m)]
            if not groups:
                continue
            loads = [conv_load(self.layer, own[index], group) for index, group in groups]
            cycles = conv_cycles(loads, self.config)
            worst = np.zeros(len(own))
            np.maximum.at(worst, [index for index, _ in groups], cycles)
            result += [
                dataclasses.replace(m, cycles=round(float(c))) for m, c in zip(own, worst, strict=True)
            ]
        return result


def _tile_cost(plan: Plan, words: int) -> int:
    """Cycles of a group for a tile, roughly: operators of the busiest PE, or window words."""
    busiest = int(plan.operators.sum(axis=(2, 3)).max())
    return max(busiest, words * plan.passes)


def _plan(pes: Pes, make_parts: Callable[[], Parts], deal: Deal, counts: CountArray) -> Plan:
    return Plan(pes, make_parts, deal, run_lengths(np.concatenate((counts, np.zeros_like(counts[:1]))), deal))


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
