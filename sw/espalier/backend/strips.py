"""Layers in strips of tile rows: which rows each strip needs, rings that hold them, and their order in time.

A *segment* is a convolution, a max-pool, or a convolution and the max-pool that alone reads its output,
worked in strips because a tensor of it does not lie whole in the feature memory. See section 9 of the
architecture page.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from enum import Enum
from functools import cached_property

from espalier.arch.feature_layout import ring_rows, tensor_words
from espalier.arch.program import RING_CODES, ring_words
from espalier.backend.mapping import tile_grid
from espalier.backend.plan import Group, Layer
from espalier.ir.graph import Conv, IntegerGraph, Node, Tensor


class Home(Enum):
    """Where a tensor lives between its writer and its readers."""

    CHIP = "chip"  # whole in the feature memory
    RING = "ring"  # in a ring there: its only reader follows its writer
    DDR = "ddr"  # whole in DDR, strips of it in rings


@dataclass(frozen=True)
class Segment:
    """Nodes that are worked in strips of `height` tile rows of the last one's output.

    load_ahead: LOAD and STORE of the strips before and behind run while a strip is computed, which takes
    larger rings. pool_ahead: the same for a convolution and the max-pool behind it.
    """

    nodes: tuple[int, ...]
    height: int
    load_ahead: bool = True
    pool_ahead: bool = True


@dataclass(frozen=True)
class StripPlan:
    """homes: of tensors that do not live on the chip as a whole. segments: by their first node."""

    homes: Mapping[str, Home]
    segments: Mapping[int, Segment]

    def home(self, tensor: str) -> Home:
        """Where a tensor lives."""
        return self.homes.get(tensor, Home.CHIP)

    @cached_property
    def members(self) -> dict[int, Segment]:
        """Segment of every node that belongs to one."""
        return {node: own for own in self.segments.values() for node in own.nodes}

    def nodes_with(self, node: int) -> tuple[int, ...]:
        """Nodes that are at work together with a node, which comes with them."""
        return self.members[node].nodes if node in self.members else (node,)


NO_STRIPS = StripPlan({}, {})


@dataclass(frozen=True)
class Ring:
    """Words in every bank that a tensor takes during a segment; `ring`: 0 if it lies there whole."""

    words: int
    ring: int


def rows_read(graph: IntegerGraph, node: Node, rows: range, size: int) -> range:
    """Tile rows of a node's input that the tile rows `rows` of its output depend on."""
    source = graph.tensors[node.input]
    kernel = node.weights.shape[2] if isinstance(node, Conv) else node.kernel[0]
    dilation = node.dilation if isinstance(node, Conv) else 1
    top = rows.start * size * node.stride - node.pads[0]
    bottom = (rows.stop * size - 1) * node.stride - node.pads[0] + dilation * (kernel - 1)
    last = tile_grid(source, size)[0] - 1
    first = min(max(top // size, 0), last)
    return range(first, min(max(bottom // size, first), last) + 1)


class SegmentRows:
    """Tile rows of every strip of a segment.

    out: of the last node's output. first: of the first node's output, which a segment of one node has in
    `out` too; may be empty. read: of the first node's input.
    """

    def __init__(self, graph: IntegerGraph, segment: Segment, size: int) -> None:
        nodes = [graph.nodes[index] for index in segment.nodes]
        count = tile_grid(graph.tensors[nodes[-1].output], size)[0]
        starts = range(0, count, segment.height)
        self.out = [range(start, min(start + segment.height, count)) for start in starts]
        self.first = self.out
        self.needed = self.out  # of the first node's output, to write `out`
        if len(nodes) > 1:
            self.needed = [rows_read(graph, nodes[1], rows, size) for rows in self.out]
            stops = [rows.stop for rows in self.needed]
            stops[-1] = tile_grid(graph.tensors[nodes[0].output], size)[0]
            self.first = [range(a, b) for a, b in zip([0, *stops[:-1]], stops, strict=True)]
        self.read: list[range] = []
        for rows in self.first:
            empty = range(self.read[-1].stop, self.read[-1].stop) if self.read else range(0)
            self.read.append(rows_read(graph, nodes[0], rows, size) if rows else empty)

    def live(self, rows: list[range], since: list[range], ahead: bool) -> int:
        """Most tile rows from the oldest one in use (`since`) to the newest (`rows`) of any strip."""
        return max(
            own.stop - since[max(number - ahead, 0)].start for number, own in enumerate(rows) if len(own)
        )


def strip_tiles(graph: IntegerGraph, layer: Layer, group: Group, plan: StripPlan, size: int) -> list[int]:
    """Tiles that a group takes in every strip of a convolution."""
    target = graph.tensors[layer.node.output]
    tiles_y, tiles_x = tile_grid(target, size)
    segment = plan.members.get(layer.index)
    if segment is None:
        return [group.tiles_of(tiles_y * tiles_x)]
    rows = SegmentRows(graph, segment, size).first
    return [group.tiles_of(len(own) * tiles_x) for own in rows if len(own)]


def segment_rings(graph: IntegerGraph, segment: Segment, plan: StripPlan, size: int) -> dict[str, Ring]:
    """Rings of the tensors of a segment that do not live on the chip."""
    rows, first, last = SegmentRows(graph, segment, size), *_ends(graph, segment)
    needs: dict[str, int] = {}

    def need(name: str, count: int) -> None:
        if plan.home(name) != Home.CHIP:
            needs[name] = max(needs.get(name, 0), count)

    need(first.input, rows.live(rows.read, rows.read, segment.load_ahead))
    if isinstance(first, Conv) and first.residual is not None:
        name = first.residual.tensor
        count = rows.live(rows.first, rows.first, segment.load_ahead)
        if name == first.input:  # rows of both kinds are live together
            both = [
                range(min(a.start, b.start), max(a.stop, b.stop))
                for a, b in zip(rows.read, rows.first, strict=True)
            ]
            count = rows.live(both, both, segment.load_ahead)
        need(name, count)
    if first is not last:
        need(first.output, rows.live(rows.first, rows.needed, segment.pool_ahead))
    need(last.output, rows.live(rows.out, rows.out, segment.load_ahead or first is not last))
    return {name: _ring(graph.tensors[name], count, size) for name, count in needs.items()}


def _ends(graph: IntegerGraph, segment: Segment) -> tuple[Node, Node]:
    return graph.nodes[segment.nodes[0]], graph.nodes[segment.nodes[-1]]


def _ring(tensor: Tensor, rows: int, size: int) -> Ring:
    """Smallest ring that holds so many tile rows, or the whole tensor if that takes no more words."""
    tiles_y, tiles_x = tile_grid(tensor, size)
    whole = tensor_words(tiles_y, tiles_x, tensor.channels)
    for code in range(1, RING_CODES):
        words = ring_words(code)
        if words >= whole:
            break
        if ring_rows(tiles_x, tensor.channels, words) >= rows:
            return Ring(words, words)
    return Ring(whole, 0)


@dataclass(frozen=True)
class Step:
    """A descriptor of a segment.

    node: of CONV and POOL, -1 for LOAD and STORE; tensor: of LOAD and STORE. rows: tile rows that are
    written, or moved. follows: number of a LOAD (see `number`) whose rows the windows follow, -1: none;
    after: the convolution's rows are followed.
    """

    node: int
    rows: range
    tensor: str = ""
    store: bool = False
    barrier: bool = False
    wait_store: bool = False
    wait_pool: bool = False
    during_load: bool = False
    more: bool = False
    number: int = 0
    follows: int = -1
    after: bool = False


def schedule(
    graph: IntegerGraph, segment: Segment, plan: StripPlan, size: int, numbers: Iterator[int]
) -> list[Step]:
    """Descriptors of a segment in order; `numbers`: endless, for LOADs, no two alike one after the other.

    What makes them safe is in the architecture page. In short: when a CONV has been taken by all, the
    convolutions before it have ended; when the pool unit has taken a POOL, the one before has ended.
    """
    return _Scheduler(graph, segment, plan, size, numbers).run()


class _Scheduler:
    def __init__(
        self, graph: IntegerGraph, segment: Segment, plan: StripPlan, size: int, numbers: Iterator[int]
    ) -> None:
        self.graph, self.segment, self.plan, self.numbers = graph, segment, plan, numbers
        self.rows = SegmentRows(graph, segment, size)
        self.first, self.last = _ends(graph, segment)
        self.fused = len(segment.nodes) > 1
        residual = self.first.residual if isinstance(self.first, Conv) else None
        self.residual = residual.tensor if residual is not None else ""
        self.stores = plan.home(self.last.output) == Home.DDR
        self.count = len(self.rows.out)
        self.loaded: dict[str, int] = {}  # tile rows loaded so far
        self.steps: list[Step] = []

    def run(self) -> list[Step]:
        """One strip after the other."""
        lag = int(self.fused and self.segment.pool_ahead)
        for number in range(self.count + lag):
            if number < self.count:
                if not self.segment.load_ahead and not self.fused:
                    self._store(number - 1, barrier=True)
                self._compute(number)
            if self.fused and number >= lag:
                self._pool(number - lag)
                self._store(number - lag - 1)
            elif self.segment.load_ahead and not self.fused:
                self._store(number - 1)
        self._store(self.count - 1, barrier=True)
        return self.steps

    def _add(self, step: Step) -> None:
        self.steps.append(step)

    def _store(self, number: int, barrier: bool = False) -> None:
        if self.stores and number >= 0:
            self._add(Step(-1, self.rows.out[number], self.last.output, store=True, barrier=barrier))

    def _compute(self, number: int) -> None:
        """LOAD what the first node needs, and run it."""
        rows, begins = self.rows.first[number], not self.steps
        if not rows:
            return
        # Behind a STORE that has waited for everything nothing is at work that a LOAD could disturb.
        alone = begins or not (self.segment.load_ahead or (self.steps[-1].store and self.steps[-1].barrier))
        follows = -1
        for name, needed in self._wanted(number).items():
            start = max(self.loaded.get(name, 0), needed.start)
            if self.plan.home(name) != Home.DDR or needed.stop <= start:
                continue
            load = Step(-1, range(start, needed.stop), name, barrier=alone, number=next(self.numbers))
            self._add(load)
            self.loaded[name], alone = needed.stop, False
            follows = load.number if name == self.first.input and name != self.residual else -1
        self._add(
            Step(
                self.segment.nodes[0],
                rows,
                barrier=begins and not self.steps,
                wait_store=self.stores and not self.fused,
                wait_pool=self.fused,
                more=any(len(own) for own in self.rows.first[number + 1 :]),
                follows=follows,
            )
        )

    def _wanted(self, number: int) -> dict[str, range]:
        """Tile rows that the first node needs, those of the residual first: windows follow the last LOAD."""
        rows, read = self.rows.first[number], self.rows.read[number]
        if self.residual == self.first.input:
            return {self.first.input: range(min(rows.start, read.start), max(rows.stop, read.stop))}
        return {**({self.residual: rows} if self.residual else {}), self.first.input: read}

    def _pool(self, number: int) -> None:
        # Behind the convolution of another strip, which has been taken by all, its own has ended.
        newest = not self.segment.pool_ahead or not any(len(own) for own in self.rows.first[number + 1 :])
        self._add(
            Step(
                self.segment.nodes[1],
                self.rows.out[number],
                wait_store=self.stores,
                during_load=True,
                more=number < self.count - 1,
                after=newest,
            )
        )
