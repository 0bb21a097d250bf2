"""Places of tensors in the feature memory: tensors that never live at the same time share words."""

from __future__ import annotations

import itertools
from collections.abc import Callable
from dataclasses import dataclass
from random import Random

from espalier.arch.config import HardwareConfig
from espalier.arch.feature_banks import small_start
from espalier.arch.feature_layout import BANK_SIDE, tensor_pitch
from espalier.backend.hazards import can_pool_in_place, layer_waits, needs_barrier, needs_pool, tensor_uses
from espalier.backend.mapping import tile_grid
from espalier.backend.plan import Placement
from espalier.errors import CapacityError
from espalier.ir.graph import Conv, IntegerGraph, Pool
from espalier.passes.lower_padding import tensor_pad


@dataclass(frozen=True)
class _Tensor:
    """Words of a tensor and the nodes that use it; `last` is one beyond all nodes for the graph's output.

    words: in the banks of the first tile row of three, rest_words: in those of the second; the third needs no
    more than the second.
    """

    name: str
    words: int
    rest_words: int
    pitch: int
    uses: list[int]
    last: int

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
        return bases[tensor.name] + self.words(tensor) if self.words(tensor) else 0


_ROWS = (
    _Rows("first tile row of three", 0, lambda tensor: tensor.words),
    _Rows("second and third tile row of three", BANK_SIDE, lambda tensor: tensor.rest_words),
)

_SHUFFLES = 12

_Unit = list[_Tensor]  # tensors that begin at the same word, the largest first
_Conflict = Callable[[_Tensor, _Tensor], bool]
_Need = Callable[[IntegerGraph, list[int], int], bool]

# What sharing of words may cost is avoided where there is room.
_APART: tuple[tuple[_Need, ...], ...] = ((needs_barrier, needs_pool), (needs_barrier,), ())


def place_tensors(graph: IntegerGraph, config: HardwareConfig, overlap: bool = True) -> dict[str, Placement]:
    """Place every tensor of the graph.

    Several orders are tried, each tensor going to the smallest gap that holds it. Of the attempts that fit,
    the one wins after which layers have least to wait for each other; then the one with the fewest residual
    words in the small parts of banks, where windows go before them (see the hardware's feature memory).

    Raises:
        CapacityError: names the layer at which most words are in use, and how many are missing.

    """
    attempts: list[tuple[tuple[int, int, int, int, int], dict[str, int], list[_Unit]]] = []
    residuals = {node.residual.tensor for node in graph.nodes if isinstance(node, Conv) and node.residual}
    for in_place, apart in itertools.product((False, True), _APART if overlap else ((),)):
        units = _units(graph, config, in_place)
        for order in _orders(units):
            bases = _place(order, _conflict(graph, apart))
            tensors = [tensor for unit in units for tensor in unit]
            peak = max(bases[tensor.name] + tensor.words for tensor in tensors)
            missing = sum(_missing(rows, tensors, bases, config) for rows in _ROWS)
            places = _placements(graph, bases, units, config)
            waits = layer_waits(graph, places, overlap)
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
    score, bases, units = min(attempts, key=lambda attempt: attempt[0])
    if score[0]:
        _explain(graph, config, [tensor for unit in units for tensor in unit], bases)
    return _placements(graph, bases, units, config)


def peak_words(placements: dict[str, Placement]) -> int:
    """Words of a bank of the first tile row of three that are used at any time; no other bank needs more."""
    return max(place.base + place.words for place in placements.values())


def _units(graph: IntegerGraph, config: HardwareConfig, in_place: bool) -> list[_Unit]:
    """Tensors to be placed, pooled ones together with what they are pooled from if that is wanted."""
    units: dict[str, _Unit] = {}
    sources = {
        node.output: node.input
        for index, node in enumerate(graph.nodes)
        if in_place and can_pool_in_place(graph, index, config.tile_size)
    }
    uses = tensor_uses(graph)
    for name in uses:
        unit = units[sources[name]] if name in sources else []
        tensor = graph.tensors[name]
        tiles_y, tiles_x = tile_grid(tensor, config.tile_size)
        pitch = unit[0].pitch if unit else tensor_pitch(tiles_x)
        words, rest = (_bank_words(tiles_y - row, tiles_x, pitch, tensor.channels) for row in (0, 1))
        last = len(graph.nodes) if name == graph.output else uses[name][-1]
        unit.append(_Tensor(name, words, rest, pitch, uses[name], last))
        units[name] = unit
    return list({id(unit): unit for unit in units.values()}.values())


def _bank_words(tiles_y: int, tiles_x: int, pitch: int, channels: int) -> int:
    """Words of a bank up to a tensor's last one; `tiles_y` counts from the first tile row that lies in it."""
    rows = -(-tiles_y // BANK_SIDE)
    return ((rows - 1) * pitch + tensor_pitch(tiles_x)) * channels if rows > 0 else 0


def _small_words(rows: _Rows, tensor: _Tensor, bases: dict[str, int], config: HardwareConfig) -> int:
    """Words of a tensor in the small part of a bank."""
    start = small_start(config.bank_depth(rows.bank))
    return 0 if start is None else max(0, rows.end(tensor, bases) - max(bases[tensor.name], start))


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
        for base in sorted({0, *(end for _, end, _ in busy)}):
            if all(base + words <= start or end <= base for start, end, words in busy):
                gap = min((start - base for start, _, _ in busy if start >= base), default=float("inf"))
                best = min(best or (gap, base), (gap, base))
        assert best is not None, "there is room behind everything"
        placed += [(best[1], tensor) for tensor in unit]
    return {tensor.name: base for base, tensor in placed}


def _placements(
    graph: IntegerGraph, bases: dict[str, int], units: list[_Unit], config: HardwareConfig
) -> dict[str, Placement]:
    result = {}
    for tensor in (tensor for unit in units for tensor in unit):
        tiles_y, tiles_x = tile_grid(graph.tensors[tensor.name], config.tile_size)
        result[tensor.name] = Placement(
            base=bases[tensor.name],
            words=tensor.words,
            pitch=tensor.pitch,
            tiles_y=tiles_y,
            tiles_x=tiles_x,
            pad=tensor_pad(graph, tensor.name, config.tile_size),
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
