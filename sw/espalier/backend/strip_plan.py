"""Which tensors live in DDR or in rings, and how high the strips are: fewest predicted cycles that fit."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping

from espalier.arch.config import HardwareConfig
from espalier.arch.feature_layout import tensor_words
from espalier.backend.hazards import can_write_over_residual, tensor_uses
from espalier.backend.mapping import tile_grid
from espalier.backend.memory import place_tensors
from espalier.backend.options import CompileOptions
from espalier.backend.plan import RESIDENT, Layer, Placement
from espalier.backend.residence import LayerCost, choose_residences, input_cycles, whole_cost
from espalier.backend.select import no_block_fits
from espalier.backend.strips import (
    NO_STRIPS,
    Home,
    Segment,
    SegmentRows,
    StripPlan,
    segment_rings,
    strip_tiles,
)
from espalier.errors import CapacityError
from espalier.ir.graph import Conv, IntegerGraph, Pool
from espalier.passes.lower_padding import tensors_read

_STRIP_CYCLES = 60  # that a strip costs besides its work
_DRAIN_CYCLES = 400  # until everything has ended, and the next begins
_WIDTH = 4  # sets of moves that are followed
_PRICES = (10.0, 100.0, 1000.0)  # cycles for a missing word, summed over all layers in which it is missing
_TIGHTER = 16  # words, or parts of all words, that are left for gaps if tensors cannot be placed without


def plan_strips(
    graph: IntegerGraph, layers: list[Layer], config: HardwareConfig, options: CompileOptions
) -> tuple[StripPlan, dict[str, Placement]]:
    """Find homes for all tensors, and their places.

    A network that fits the feature memory keeps all its tensors there. Otherwise tensors move, those whose
    moves cost the fewest predicted cycles.

    Raises:
        CapacityError: the network does not fit however small the strips are, the hardware has no rings, or
            every tensor is to be stored.

    """
    try:
        return NO_STRIPS, place_tensors(graph, config, options.overlap)
    except CapacityError:
        if not config.feature_rings or options.store_all:
            raise
    search, depth = _Search(graph, layers, config), config.feature_depth_words
    while True:
        plan = search.run(depth)
        try:
            return plan, place_tensors(graph, config, options.overlap, plan)
        except CapacityError:
            depth -= max(_TIGHTER, depth // _TIGHTER)
            if search.exhausted or depth <= 0:
                raise


def stream_strips(graph: IntegerGraph, layers: list[Layer], config: HardwareConfig, plan: StripPlan) -> None:
    """Choose anew where streams lie, if some come from DDR, now that layers are cut into strips.

    Raises:
        CapacityError: a block of some layer is too much for a stream memory.

    """
    if not plan.segments or all(layer.residence == RESIDENT for layer in layers):
        return
    costs = strip_costs(graph, layers, config, plan)
    found = choose_residences(
        layers,
        config,
        input_cycles(graph, config) if plan.home(graph.input) == Home.CHIP else 0,
        lambda layer: costs[layer.index],
        lambda layer, group: strip_tiles(graph, layer, group, plan, config.tile_size),
    )
    if found is None:
        raise no_block_fits(config)


def strip_costs(
    graph: IntegerGraph, layers: list[Layer], config: HardwareConfig, plan: StripPlan
) -> list[LayerCost]:
    """Return what layers take with the strips of a plan; of a segment's cycles the first node has all."""
    search = _Search(graph, layers, config)
    costs = [whole_cost(layer) for layer in layers]
    for first, segment in plan.segments.items():
        for index in segment.nodes:
            costs[index] = LayerCost(0.0)
        costs[first] = search.cost(segment, plan)
    return costs


class _Search:
    """Search over the homes of tensors; `exhausted`: the last run could not save enough words."""

    def __init__(self, graph: IntegerGraph, layers: list[Layer], config: HardwareConfig) -> None:
        self.graph, self.layers, self.config = graph, layers, config
        self.uses = tensor_uses(graph)
        self.exhausted = False
        self._known: dict[tuple[str, Segment, tuple[Home, ...]], float] = {}
        self._best: dict[tuple[tuple[int, ...], tuple[Home, ...]], Segment] = {}

    def run(self, depth: int) -> StripPlan:
        """Homes and strips for banks of so many words, the best that the prices of a word lead to."""
        found = [plan for price in _PRICES for plan in self._descend(depth, price)]
        fitting = [plan for plan in found if not self._missing(plan, depth)]
        self.exhausted = not fitting
        if not fitting:
            return min(found, key=lambda plan: self._missing(plan, depth))
        return min((self._improve(plan, depth) for plan in fitting), key=self._cost)

    def _descend(self, depth: int, price: float) -> list[StripPlan]:
        """Move tensors, the _WIDTH best sets of moves at a time, until all words have room.

        price: cycles that a missing word counts as. Returns the plans that fit, or the nearest one.
        """
        states: list[dict[str, Home]] = [{}]
        nearest, seen = self._tightest({}), set()
        found: list[StripPlan] = []
        while states and not found:
            behind: list[tuple[float, int, dict[str, Home]]] = []
            for homes in states:
                for move in self._moves(homes):
                    other = {**homes, **move}
                    key = frozenset(other.items())
                    if key in seen:
                        continue
                    seen.add(key)
                    plan = self._tightest(other)
                    missing = self._missing(plan, depth)
                    if not missing:
                        found.append(self._without_needless(plan, depth))
                    if missing < self._missing(nearest, depth):
                        nearest = plan
                    behind.append((self._cost(plan) + price * missing, len(behind), other))
            states = [homes for *_, homes in sorted(behind)[:_WIDTH]]
        return found or [nearest]

    def _without_needless(self, plan: StripPlan, depth: int) -> StripPlan:
        """Take back moves that are not needed any more."""
        for name in plan.homes:
            other = self._tightest({own: home for own, home in plan.homes.items() if own != name})
            if not self._missing(other, depth) and self._cost(other) <= self._cost(plan):
                plan = other
        return plan

    def _moves(self, homes: Mapping[str, Home]) -> Iterator[Mapping[str, Home]]:
        graph = self.graph
        for name, uses in self.uses.items():
            readers = [graph.nodes[index] for index in uses[1:]]
            whole = any(isinstance(node, Pool) and node.kind == "global" for node in readers)
            writer = graph.nodes[uses[0]] if uses[0] >= 0 else None
            whole |= isinstance(writer, Pool) and writer.kind == "global"
            if whole or name == graph.output:
                continue
            if homes.get(name) is None and self._can_follow(name):
                yield {name: Home.RING}
            if homes.get(name) != Home.DDR:
                yield {name: Home.DDR}

    def _can_follow(self, name: str) -> bool:
        """Whether a convolution's output is read by the max-pool right behind it alone."""
        nodes, uses = self.graph.nodes, self.uses[name]
        if len(uses) != 2 or uses[1] != uses[0] + 1 or uses[0] < 0:
            return False
        pool = nodes[uses[1]]
        return isinstance(nodes[uses[0]], Conv) and isinstance(pool, Pool) and pool.kind == "max"

    def _segments(self, homes: Mapping[str, Home]) -> list[tuple[int, ...]]:
        """Nodes of all segments."""
        result: list[tuple[int, ...]] = []
        for index, node in enumerate(self.graph.nodes):
            if result and index in result[-1]:
                continue
            touched = [node.output, *tensors_read(node)]
            if homes.get(node.output) == Home.RING:
                result.append((index, index + 1))
            elif any(homes.get(name) is not None for name in touched):
                result.append((index,))
        return result

    def _options(self, nodes: tuple[int, ...]) -> list[Segment]:
        """All ways to cut a segment."""
        target = self.graph.tensors[self.graph.nodes[nodes[-1]].output]
        rows = tile_grid(target, self.config.tile_size)[0]
        pools = (True, False) if len(nodes) > 1 else (True,)
        return [
            Segment(nodes, height, load, pool)
            for height in range(1, rows + 1)
            for load in (True, False)
            for pool in pools
        ]

    def _tightest(self, homes: Mapping[str, Home]) -> StripPlan:
        plan = StripPlan(dict(homes), {})
        chosen = {}
        for nodes in self._segments(homes):
            key = nodes, self._homes_of(nodes, plan)
            if key not in self._best:
                options = self._options(nodes)
                self._best[key] = min(
                    options, key=lambda own: (self._words(own, plan), self._cycles(own, plan))
                )
            chosen[nodes[0]] = self._best[key]
        return StripPlan(dict(homes), chosen)

    def _homes_of(self, nodes: tuple[int, ...], plan: StripPlan) -> tuple[Home, ...]:
        """Homes of all tensors of some nodes: nothing else of a plan matters to them."""
        graph = self.graph
        names = [name for n in nodes for name in (graph.nodes[n].output, *tensors_read(graph.nodes[n]))]
        return tuple(plan.home(name) for name in names)

    def _once(self, kind: str, segment: Segment, plan: StripPlan, find: Callable[[], float]) -> float:
        """Look up what has been found before."""
        key = kind, segment, self._homes_of(segment.nodes, plan)
        if key not in self._known:
            self._known[key] = find()
        return self._known[key]

    def _improve(self, plan: StripPlan, depth: int) -> StripPlan:
        """Take the fastest strips that fit, segment by segment."""
        for first, segment in plan.segments.items():
            options = sorted(self._options(segment.nodes), key=lambda own: self._cycles(own, plan))
            for option in options:
                other = StripPlan(plan.homes, {**plan.segments, first: option})
                if not self._missing(other, depth):
                    plan = other
                    break
        return plan

    def _words(self, segment: Segment, plan: StripPlan) -> int:
        size = self.config.tile_size

        def find() -> float:
            return sum(ring.words for ring in segment_rings(self.graph, segment, plan, size).values())

        return int(self._once("words", segment, plan, find))

    def _missing(self, plan: StripPlan, depth: int) -> int:
        """Words that are missing in a bank, over all nodes."""
        total = 0
        live = self._live(plan)
        for words in live:
            total += max(0, words - depth)
        return total

    def _live(self, plan: StripPlan) -> list[int]:
        """Words in use in every bank at every node."""
        graph, size = self.graph, self.config.tile_size
        live = [0] * len(graph.nodes)
        for name, uses in self.uses.items():
            if plan.home(name) != Home.CHIP:
                continue
            tensor = graph.tensors[name]
            words = tensor_words(*tile_grid(tensor, size), tensor.channels)
            nodes = [node for use in uses for node in plan.nodes_with(use)]
            last = len(live) - 1 if name == graph.output else max(nodes)
            for index in range(max(min(nodes), 0), last + 1):
                live[index] += words
        for segment in plan.segments.values():
            for index in segment.nodes:
                live[index] += self._words(segment, plan)
        for index, node in enumerate(graph.nodes):
            if not isinstance(node, Conv) or node.residual is None:
                continue
            homes = plan.home(node.output), plan.home(node.residual.tensor)
            if homes == (Home.CHIP, Home.CHIP) and can_write_over_residual(graph, index):
                tensor = graph.tensors[node.output]
                live[index] -= tensor_words(*tile_grid(tensor, size), tensor.channels)
        return live

    def _cost(self, plan: StripPlan) -> float:
        return sum(self._cycles(segment, plan) for segment in plan.segments.values())

    def cost(self, segment: Segment, plan: StripPlan) -> LayerCost:
        """Cycles of a segment, and those of its LOADs."""
        rows = SegmentRows(self.graph, segment, self.config.tile_size)
        loads, _ = self._transfers(rows, segment, plan)
        return LayerCost(self._cycles(segment, plan), sum(loads))

    def _cycles(self, segment: Segment, plan: StripPlan) -> float:
        return self._once("cycles", segment, plan, lambda: self._predict(segment, plan))

    def _transfers(
        self, rows: SegmentRows, segment: Segment, plan: StripPlan
    ) -> tuple[list[float], list[float]]:
        """Cycles of the bus for the LOADs and for the STOREs of every strip; rows: of the segment."""
        first, last = (self.graph.nodes[segment.nodes[end]] for end in (0, -1))
        residual = first.residual.tensor if isinstance(first, Conv) and first.residual is not None else ""
        loads, stores = [], []
        done = 0
        for own, read, out in zip(rows.first, rows.read, rows.out, strict=True):
            new, done = max(read.stop - max(done, read.start), 0), max(done, read.stop)
            beats = self._beats(first.input, new, plan)
            if residual and residual != first.input:
                beats += self._beats(residual, len(own), plan)
            loads.append(beats)
            stores.append(self._beats(last.output, len(out), plan))
        return loads, stores

    def _predict(self, segment: Segment, plan: StripPlan) -> float:
        """Cycles of a segment."""
        graph, size = self.graph, self.config.tile_size
        rows = SegmentRows(graph, segment, size)
        nodes = [graph.nodes[index] for index in segment.nodes]
        work = [self._work(index) for index in segment.nodes]
        counts = [tile_grid(graph.tensors[node.output], size)[0] for node in nodes]
        loads, stores = self._transfers(rows, segment, plan)
        conv, pool = [], []
        for own, out in zip(rows.first, rows.out, strict=True):
            conv.append(work[0] * len(own) / counts[0])
            pool.append(work[1] * len(out) / counts[1] if len(nodes) > 1 else 0.0)
        exposed = 0.0 if segment.pool_ahead else sum(pool) / 2
        steps = list(zip(loads, stores, conv, pool, strict=True))
        if segment.load_ahead:
            total = sum(max(step) for step in steps) + loads[0] + stores[-1]
        else:
            total = sum(
                max(load, store) + max(own, other) + _DRAIN_CYCLES for load, store, own, other in steps
            )
        return total + exposed + _STRIP_CYCLES * len(steps) + _DRAIN_CYCLES

    def _work(self, index: int) -> float:
        """Cycles of a layer whose tensors are all on the chip."""
        layer = self.layers[index]
        if layer.mapping is not None:
            return float(layer.mapping.cycles)
        target = self.graph.tensors[layer.node.output]
        tiles_y, tiles_x = tile_grid(target, self.config.tile_size)
        taps = sum(pattern.taps.bit_count() for pattern in layer.geometry.patterns)
        columns = sum(not pattern.fetch for pattern in layer.geometry.patterns)
        return float(tiles_y * tiles_x * target.channels * max(taps, columns))

    def _beats(self, name: str, rows: int, plan: StripPlan) -> float:
        """Cycles that the bus needs for so many tile rows of a tensor."""
        if plan.home(name) != Home.DDR:
            return 0.0
        tensor = self.graph.tensors[name]
        return float(
            rows
            * tile_grid(tensor, self.config.tile_size)[1]
            * tensor.channels
            * self.config.word_beats
            * self.config.ddr.beat_cycles
        )
