"""Places of tensors in the feature memory: tensors that never live at the same time share words."""

from __future__ import annotations

import itertools
from collections.abc import Callable
from dataclasses import dataclass
from random import Random

from espalier.arch.config import HardwareConfig
from espalier.arch.feature_banks import small_start
from espalier.arch.feature_layout import BANK_SIDE, tensor_pitch
from espalier.backend.hazards import (
    can_pool_in_place,
    can_write_over_residual,
    layer_waits,
    needs_barrier,
    needs_pool,
    tensor_uses,
)
from espalier.backend.mapping import tile_grid
from espalier.backend.plan import Placement
from espalier.backend.strips import NO_STRIPS, Home, Segment, StripPlan, segment_rings
from espalier.errors import CapacityError
from espalier.ir.graph import Conv, IntegerGraph, Pool
from espalier.passes.lower_padding import tensor_pad


@dataclass(frozen=True)
class _Tensor:
    """Words of a tensor and the nodes that use it; `last` is one beyond all nodes for the graph's output.

    words: in the banks of the first tile row of three, rest_words: in those of the second; the third needs no
    more than the second. segment: the one for which it is there, -1: always; ring: see `Placement`.
    """

    name: str
    words: int
    rest_words: int
    pitch: int
    uses: list[int]
    last: int
    segment: int = -1
    ring: int = 0

    @property
    def key(self) -> str:
        """Key of its placement."""
        return self.name if self.segment < 0 else f"{self.name}@{self.segment}"

    @property
    def first(self) -> int:
        return self.uses[0]


@dataclass(frozen=True)
class _Rows:
    """Tile rows with banks of the same depth: their name, one of the banks, a tensor's words in it."""

    name: str
    bank: int
    words: Callable[[_Tensor], int]

    def end(self, tensor: _Tensor, bases: dict[str, int]) -> int:
        """One beyond the tensor's last word."""
        return bases[tensor.key] + self.words(tensor) if self.words(tensor) else 0


_ROWS = (
    _Rows("first tile row of three", 0, lambda tensor: tensor.words),
    _Rows("second and third tile row of three", BANK_SIDE, lambda tensor: tensor.rest_words),
)

_SHUFFLES = 12

_Unit = list[_Tensor]  # tensors that begin at the same word, the largest first
# Score (the least is the best), first word of every tensor, units.
_Attempt = tuple[tuple[int, int, int, int, int], dict[str, int], list[_Unit]]
_Conflict = Callable[[_Tensor, _Tensor], bool]
_Need = Callable[[IntegerGraph, list[int], int], bool]

# What sharing of words may cost is avoided where there is room.
_APART: tuple[tuple[_Need, ...], ...] = ((needs_barrier, needs_pool), (needs_barrier,), ())


def place_tensors(
    graph: IntegerGraph, config: HardwareConfig, overlap: bool = True, plan: StripPlan = NO_STRIPS
) -> dict[str, Placement]:
    """Place every tensor of the graph.

    A tensor that does not live on the chip has a place for every segment that it is part of, under the name
    `tensor@first node`.

    Several orders are tried, each tensor going to the smallest gap that holds it. Of the attempts that fit,
    the one wins after which layers have least to wait for each other; then the one with the fewest residual
    words in the small parts of banks, where windows go before them (see the hardware's feature memory).

    Raises:
        CapacityError: names the layer at which most words are in use, and how many are missing.

    """
    attempts = _attempts(graph, config, overlap, plan, over_residuals=False)
    if min(attempts, key=lambda attempt: attempt[0])[0][0]:
        attempts += _attempts(graph, config, overlap, plan, over_residuals=True)
    score, bases, units = min(attempts, key=lambda attempt: attempt[0])
    if score[0]:
        _explain(graph, config, [tensor for unit in units for tensor in unit], bases)
    return _placements(graph, bases, units, config)


def _attempts(
    graph: IntegerGraph, config: HardwareConfig, overlap: bool, plan: StripPlan, over_residuals: bool
) -> list[_Attempt]:
    """Place the tensors in several orders; over_residuals: outputs over residual tensors where possible."""
    attempts: list[_Attempt] = []
    residuals = {node.residual.tensor for node in graph.nodes if isinstance(node, Conv) and node.residual}
    for in_place, apart in itertools.product((False, True), _APART if overlap else ((),)):
        units = _units(graph, config, in_place, over_residuals, plan)
        for order in _orders(units):
            bases = _place(order, _conflict(graph, apart))
            tensors = [tensor for unit in units for tensor in unit]
            peak = max(bases[tensor.key] + tensor.words for tensor in tensors)
            missing = sum(_missing(rows, tensors, bases, config) for rows in _ROWS)
            places = _placements(graph, bases, units, config)
            waits = layer_waits(graph, places, overlap, plan)
            barriers = sum(wait.barrier for wait in waits)
            pools = sum(
                wait.wait_pool and isinstance(graph.nodes[index - 1], Pool)
                for index, wait in enumerate(waits)
            )
            slow = sum(
                _small_words(rows, tensor, bases, config)
                for rows in _ROWS
                for tensor in tensors
                if tensor.name in residuals
            )
            score = (missing, barriers, pools, slow, peak)
            attempts.append((score, bases, units))
    return attempts


def peak_words(placements: dict[str, Placement]) -> int:
    """Words of a bank of the first tile row of three that are used at any time; no other bank needs more."""
    return max(place.base + place.words for place in placements.values())


def _units(
    graph: IntegerGraph, config: HardwareConfig, in_place: bool, over_residuals: bool, plan: StripPlan
) -> list[_Unit]:
    """Tensors to be placed; those that are to share words, in place or over a residual tensor, together."""
    units: dict[str, _Unit] = {}
    sources = {
        node.output: node.input
        for index, node in enumerate(graph.nodes)
        if in_place and index not in plan.members and can_pool_in_place(graph, index, config.tile_size)
    }
    for index, node in enumerate(graph.nodes if over_residuals else ()):
        if isinstance(node, Conv) and node.residual and can_write_over_residual(graph, index):
            sources[node.output] = node.residual.tensor
    sources = {name: own for name, own in sources.items() if plan.home(name) == plan.home(own) == Home.CHIP}
    uses = tensor_uses(graph)
    for name in uses:
        if plan.home(name) != Home.CHIP:
            continue
        unit = units[sources[name]] if name in sources else []
        tensor = graph.tensors[name]
        tiles_y, tiles_x = tile_grid(tensor, config.tile_size)
        pitch = unit[0].pitch if unit else tensor_pitch(tiles_x)
        words, rest = (_bank_words(tiles_y - row, tiles_x, pitch, tensor.channels) for row in (0, 1))
        # The nodes of a segment are at work at the same time.
        nodes = sorted({node for use in uses[name] for node in plan.nodes_with(use)})
        last = len(graph.nodes) if name == graph.output else nodes[-1]
        unit.append(_Tensor(name, words, rest, pitch, nodes, last))
        units[name] = unit
    found = list({id(unit): unit for unit in units.values()}.values())
    return found + [
        [ring] for segment in plan.segments.values() for ring in _rings(graph, segment, plan, config)
    ]


def _rings(graph: IntegerGraph, segment: Segment, plan: StripPlan, config: HardwareConfig) -> list[_Tensor]:
    """Tensors that are there for a segment only."""
    result = []
    for name, own in segment_rings(graph, segment, plan, config.tile_size).items():
        tensor = graph.tensors[name]
        tiles_y, tiles_x = tile_grid(tensor, config.tile_size)
        pitch = tensor_pitch(tiles_x)
        rest = own.ring or _bank_words(tiles_y - 1, tiles_x, pitch, tensor.channels)
        nodes = list(segment.nodes)
        result.append(_Tensor(name, own.words, rest, pitch, nodes, nodes[-1], nodes[0], own.ring))
    return result


def _bank_words(tiles_y: int, tiles_x: int, pitch: int, channels: int) -> int:
    """Words of a bank up to a tensor's last one; `tiles_y` counts from the first tile row that lies in it."""
    rows = -(-tiles_y // BANK_SIDE)
    return ((rows - 1) * pitch + tensor_pitch(tiles_x)) * channels if rows > 0 else 0


def _small_words(rows: _Rows, tensor: _Tensor, bases: dict[str, int], config: HardwareConfig) -> int:
    """Words of a tensor in the small part of a bank."""
    start = small_start(config.bank_depth(rows.bank))
    return 0 if start is None else max(0, rows.end(tensor, bases) - max(bases[tensor.key], start))


def _orders(units: list[_Unit]) -> tuple[list[_Unit], ...]:
    def length(unit: _Unit) -> int:
        return unit[-1].last - unit[0].first

    random = Random(0)
    large = sorted(units, key=lambda u: (-u[0].words, u[0].first))
    # The largest first or last, the others in any order.
    shuffled = []
    for _ in range(_SHUFFLES):
        others = random.sample(large[1:], len(large) - 1)
        shuffled += [large[:1] + others, others + large[:1]]
    return (
        large,
        *shuffled,
        sorted(units, key=lambda u: (u[0].first, -u[0].words)),
        sorted(units, key=lambda u: (-u[0].words * (length(u) + 1), u[0].first)),
        sorted(units, key=lambda u: (-length(u), -u[0].words)),
        # What needs less in the second and third row comes last: on top, where those rows end earlier.
        sorted(units, key=lambda u: (u[0].words - u[0].rest_words, u[0].first)),
    )


def _conflict(graph: IntegerGraph, apart: tuple[_Need, ...]) -> _Conflict:
    """Whether two tensors need words of their own; `apart`: reasons besides being alive together."""

    def conflict(one: _Tensor, other: _Tensor) -> bool:
        early, late = (one, other) if one.first <= other.first else (other, one)
        return late.first <= early.last or any(need(graph, early.uses, late.first) for need in apart)

    return conflict


def _place(order: list[_Unit], conflict: _Conflict) -> dict[str, int]:
    """First word of every tensor."""
    placed: list[tuple[int, _Tensor]] = []
    for unit in order:
        busy = [
            (base, base + other.words, tensor.words)
            for base, other in placed
            for tensor in unit
            if conflict(tensor, other)
        ]
        best: tuple[float, int] | None = None
        ring = max(tensor.ring for tensor in unit)  # which is an aligned block
        ends = {0, *(end for _, end, _ in busy)}
        for base in sorted({-(-end // ring) * ring for end in ends} if ring else ends):
            if all(base + words <= start or end <= base for start, end, words in busy):
                gap = min((start - base for start, _, _ in busy if start >= base), default=float("inf"))
                best = min(best or (gap, base), (gap, base))
        assert best is not None, "there is room behind everything"
        placed += [(best[1], tensor) for tensor in unit]
    return {tensor.key: base for base, tensor in placed}


def _placements(
    graph: IntegerGraph, bases: dict[str, int], units: list[_Unit], config: HardwareConfig
) -> dict[str, Placement]:
    result = {}
    for tensor in (tensor for unit in units for tensor in unit):
        tiles_y, tiles_x = tile_grid(graph.tensors[tensor.name], config.tile_size)
        result[tensor.key] = Placement(
            base=bases[tensor.key],
            words=tensor.words,
            pitch=tensor.pitch,
            tiles_y=tiles_y,
            tiles_x=tiles_x,
            pad=tensor_pad(graph, tensor.name, config.tile_size),
            ring=tensor.ring,
        )
    return result


def _missing(rows: _Rows, tensors: list[_Tensor], bases: dict[str, int], config: HardwareConfig) -> int:
    """Words by which the banks of some tile rows are too small."""
    return max(0, max(rows.end(tensor, bases) for tensor in tensors) - config.bank_depth(rows.bank))


def _explain(
    graph: IntegerGraph, config: HardwareConfig, tensors: list[_Tensor], bases: dict[str, int]
) -> None:
    rows = max(_ROWS, key=lambda some: _missing(some, tensors, bases, config))
    steps = range(len(graph.nodes))
    live = {step: [t for t in tensors if t.first <= step <= t.last] for step in steps}
    step = max(steps, key=lambda s: max(rows.end(t, bases) for t in live[s]))
    needed, depth = max(rows.end(t, bases) for t in live[step]), config.bank_depth(rows.bank)
    names = ", ".join(f"{t.name} {rows.words(t)}" for t in live[step])
    raise CapacityError(
        f"feature memory: layer {graph.nodes[step].name} needs {needed} words in each bank of the {rows.name}"
        f" ({names}), the target '{config.name}' has {depth} ({needed - depth} too many);"
        " use a smaller picture or a narrower network"
    )
