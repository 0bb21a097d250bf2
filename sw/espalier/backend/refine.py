"""Choices judged by the whole program: splits of layers, and the order of nodes that could change places.

`select_mappings` knows what a layer takes between others. What it cannot know is how layers overlap: sums
that come one after the other can be written, while a faster split may end with all of them at once.
"""

from __future__ import annotations

import dataclasses

from espalier.arch.config import HardwareConfig
from espalier.backend.emit import emit
from espalier.backend.lower import Progress
from espalier.backend.options import CompileOptions
from espalier.backend.plan import Layer, Mapping
from espalier.backend.residence import input_cycles
from espalier.backend.select import place_chosen
from espalier.backend.strip_plan import plan_strips
from espalier.errors import CapacityError
from espalier.ir.graph import Conv, IntegerGraph, Node

# Splits that are tried for a layer: no slower by themselves than this, at most so many.
_SLOWER, _MOST = 1.3, 12


def refine(
    graph: IntegerGraph,
    layers: list[Layer],
    config: HardwareConfig,
    options: CompileOptions,
    progress: Progress | None = None,
) -> tuple[IntegerGraph, list[Layer]]:
    """Change one thing at a time, and keep it if the program gets faster; never slower than before.

    graph, layers: with mappings chosen, which fit. Returns the graph in its new order, and its layers.
    """
    search = _Search(graph, layers, config, options)
    places = range(1, len(layers) - 1)
    trials = sum(len(_others(layer)) for layer in layers) + len(places)
    done = 0
    for index in places:
        search.swap(index)
        done += 1
        search.report(progress, done, trials)
    for index in range(len(layers)):
        for split in _others(search.layers[index]):
            search.split(index, split)
            done += 1
            search.report(progress, done, trials)
    place_chosen(search.layers, config, search.begin)
    return search.graph, search.layers


class _Search:
    """The best program so far. cycles: of it. begin: see `select_mappings`."""

    def __init__(
        self, graph: IntegerGraph, layers: list[Layer], config: HardwareConfig, options: CompileOptions
    ) -> None:
        self.graph, self.layers, self._config, self._options = graph, layers, config, options
        self.begin = input_cycles(graph, config)
        self.cycles = self._predict(graph, layers)

    def swap(self, index: int) -> None:
        """Let a node and the one behind it change places, if they can."""
        first, second = self.graph.nodes[index : index + 2]
        if not (isinstance(first, Conv) and isinstance(second, Conv)) or _reads(second, first.output):
            return
        nodes, layers = list(self.graph.nodes), list(self.layers)
        nodes[index : index + 2] = second, first
        layers[index : index + 2] = layers[index + 1], layers[index]
        layers = [dataclasses.replace(layer, index=number) for number, layer in enumerate(layers)]
        self._keep_if_faster(dataclasses.replace(self.graph, nodes=nodes), layers)

    def split(self, index: int, mapping: Mapping) -> None:
        """Give a layer another mapping."""
        layers = [dataclasses.replace(layer) for layer in self.layers]
        layers[index] = dataclasses.replace(layers[index], mapping=mapping)
        self._keep_if_faster(self.graph, layers)

    def report(self, progress: Progress | None, done: int, trials: int) -> None:
        """Say how far it is."""
        if progress is not None:
            progress(f"refining, {self.cycles:,} cycles", done, trials)

    def _keep_if_faster(self, graph: IntegerGraph, layers: list[Layer]) -> None:
        cycles = self._predict(graph, layers)
        if cycles < self.cycles:
            self.graph, self.layers, self.cycles = graph, layers, cycles

    def _predict(self, graph: IntegerGraph, layers: list[Layer]) -> float:
        """Cycles of a program; infinite if it does not fit the memories."""
        if not place_chosen(layers, self._config, self.begin):
            return float("inf")
        try:
            plan, placements = plan_strips(graph, layers, self._config, self._options)
        except CapacityError:
            return float("inf")
        image = emit(graph, layers, placements, self._config, self._options, plan)
        return image.metadata.predicted_cycles


def _others(layer: Layer) -> list[Mapping]:
    """List the splits of a layer that may be worth a trial."""
    if layer.mapping is None:
        return []
    limit = _SLOWER * layer.mapping.cycles
    return [own for own in layer.splits if own is not layer.mapping and own.cycles <= limit][:_MOST]


def _reads(node: Node, tensor: str) -> bool:
    residual = node.residual.tensor if isinstance(node, Conv) and node.residual is not None else None
    return tensor in (node.input, residual)
