"""Places of tensors in the feature memory: tensors that never live at the same time share words."""

from __future__ import annotations

from dataclasses import dataclass

from espalier.arch.config import HardwareConfig
from espalier.arch.feature_layout import tensor_pitch, tensor_words
from espalier.backend.mapping import tile_grid
from espalier.backend.plan import Placement
from espalier.errors import CapacityError
from espalier.ir.graph import IntegerGraph
from espalier.passes.lower_padding import tensor_pad, tensors_read


@dataclass(frozen=True)
class _Lifetime:
    """Words of a tensor and the first and last step at which they are in use (step i + 1 is node i)."""

    name: str
    words: int
    first: int
    last: int

    def meets(self, other: _Lifetime) -> bool:
        return self.first <= other.last and other.first <= self.last


def place_tensors(graph: IntegerGraph, config: HardwareConfig) -> dict[str, Placement]:
    """Place every tensor of the graph.

    Several orders are tried, each tensor going to the smallest gap that holds it.

    Raises:
        CapacityError: names the layer at which most words are in use, and how many are missing.

    """
    lifetimes = _lifetimes(graph, config)
    orders = (
        sorted(lifetimes, key=lambda t: (-t.words, t.first)),
        sorted(lifetimes, key=lambda t: (t.first, -t.words)),
        sorted(lifetimes, key=lambda t: (-t.words * (t.last - t.first + 1), t.first)),
        sorted(lifetimes, key=lambda t: (t.first - t.last, -t.words)),
    )
    attempts = [_place(order) for order in orders]
    words = {t.name: t.words for t in lifetimes}
    best = min(attempts, key=lambda bases: max(base + words[name] for name, base in bases.items()))
    if max(base + words[name] for name, base in best.items()) > config.feature_depth_words:
        _explain(graph, config, lifetimes, best)
    return {name: _placement(graph, name, best[name], config) for name in best}


def peak_words(placements: dict[str, Placement]) -> int:
    """Words of a bank that are used at any time."""
    return max(place.base + place.words for place in placements.values())


def _lifetimes(graph: IntegerGraph, config: HardwareConfig) -> list[_Lifetime]:
    first = {graph.input: 0}
    last = {graph.input: 0}
    for step, node in enumerate(graph.nodes, start=1):
        first[node.output] = last[node.output] = step
        for name in tensors_read(node):
            last[name] = step
    last[graph.output] = len(graph.nodes) + 1
    result = []
    for name in first:
        tensor = graph.tensors[name]
        words = tensor_words(*tile_grid(tensor, config.tile_size), tensor.channels)
        result.append(_Lifetime(name, words, first[name], last[name]))
    return result


def _place(order: list[_Lifetime]) -> dict[str, int]:
    placed: list[tuple[int, _Lifetime]] = []
    for tensor in order:
        busy = sorted((base, base + other.words) for base, other in placed if other.meets(tensor))
        base, gap, cursor = None, None, 0
        for start, end in busy:
            if start - cursor >= tensor.words and (gap is None or start - cursor < gap):
                base, gap = cursor, start - cursor
            cursor = max(cursor, end)
        placed.append((cursor if base is None else base, tensor))
    return {tensor.name: base for base, tensor in placed}


def _placement(graph: IntegerGraph, name: str, base: int, config: HardwareConfig) -> Placement:
    tensor = graph.tensors[name]
    tiles_y, tiles_x = tile_grid(tensor, config.tile_size)
    return Placement(
        base=base,
        words=tensor_words(tiles_y, tiles_x, tensor.channels),
        pitch=tensor_pitch(tiles_x),
        tiles_y=tiles_y,
        tiles_x=tiles_x,
        pad=tensor_pad(graph, name, config.tile_size),
    )


def _explain(
    graph: IntegerGraph, config: HardwareConfig, lifetimes: list[_Lifetime], bases: dict[str, int]
) -> None:
    steps = range(1, len(graph.nodes) + 1)
    live = {step: [t for t in lifetimes if t.first <= step <= t.last] for step in steps}
    step = max(steps, key=lambda s: max(bases[t.name] + t.words for t in live[s]))
    needed = max(bases[t.name] + t.words for t in live[step])
    tensors = ", ".join(f"{t.name} {t.words}" for t in live[step])
    raise CapacityError(
        f"feature memory: layer {graph.nodes[step - 1].name} needs {needed} words per bank ({tensors}),"
        f" the target '{config.name}' has {config.feature_depth_words}"
        f" ({needed - config.feature_depth_words} too many); use a smaller picture or a narrower network"
    )
