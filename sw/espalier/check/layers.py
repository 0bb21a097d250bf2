"""Whether each node of an integer graph runs by itself, and what it becomes."""

from __future__ import annotations

import dataclasses
from collections.abc import Mapping

from espalier.arch.config import HardwareConfig
from espalier.arch.operators import OPERATORS_PER_WORD
from espalier.backend.compiler import DEFAULT_OPTIONS, lower_integer_graph
from espalier.backend.lower import Progress, lower_graph
from espalier.check.verdict import Problem
from espalier.errors import UserError
from espalier.ir.check import node_problems
from espalier.ir.graph import Conv, IntegerGraph, Node

_NARROWER = "use a smaller map or a narrower layer, prune more or use fewer weight bits"


def most_operators(config: HardwareConfig) -> int:
    """Operators that the stream memories of all PEs hold together."""
    return config.pes * config.stream_depth_words * OPERATORS_PER_WORD


def certain_problems(
    graph: IntegerGraph, skipped: Mapping[str, int], config: HardwareConfig
) -> dict[str, list[Problem]]:
    """Problems by node that are known at once: arithmetic that can overflow, far too many weights.

    graph: needs the tensors of every node, not what computes them. skipped: see `sizing.size_graph`.
    """
    room = most_operators(config)
    result = {}
    for node in graph.nodes:
        found = [Problem(f"arithmetic: {text}", _NARROWER) for text in node_problems(node, graph)]
        if weights := skipped.get(node.name, 0):
            text = f"{weights:,} weights other than zero, the stream memories of all PEs hold {room:,}"
            found.append(
                Problem(f"{text} ({weights - room:,} too many)", "prune the layer more or make it narrower")
            )
        if found:
            result[node.name] = found
    return result


def judge_layers(graph: IntegerGraph, config: HardwareConfig, progress: Progress) -> dict[str, list[Problem]]:
    """Problems of the nodes that the compiler refuses in a network of their own, whose memories may overflow.

    graph: as in `certain_problems`, which must have found nothing about the nodes that are left in it.
    """
    result = {}
    for index, node in enumerate(graph.nodes):
        progress(f"judging {node.name}", index, len(graph.nodes))
        try:
            lower_graph(lower_integer_graph(_alone(graph, node), config), config, DEFAULT_OPTIONS)
        except UserError as error:
            result[node.name] = [split_advice(str(error), node.name)]
    return result


def _alone(graph: IntegerGraph, node: Node) -> IntegerGraph:
    """Make a network of one node; a residual costs it nothing of its own."""
    own = dataclasses.replace(node, residual=None) if isinstance(node, Conv) else node
    tensors = {name: graph.tensors[name] for name in (node.input, node.output)}
    return IntegerGraph(node.name, node.input, node.output, [own], tensors)


def split_advice(text: str, layer: str = "", default: str = _NARROWER) -> Problem:
    """Take a message "what is wrong; what to do" apart; the name of the layer in front is known anyway."""
    what, _, todo = text.removeprefix(f"layer {layer}: ").rpartition("; ")
    return Problem(what, todo) if what else Problem(todo, default)


def describe(node: Node) -> tuple[str, str]:
    """Return the unit that runs a node, "conv" or "pool", and the node in words."""
    if isinstance(node, Conv):
        filters, _, rows, columns = node.weights.shape
        kind = f"convolution {rows}x{columns}, {filters} filters"
        kind += f", stride {node.stride}" if node.stride > 1 else ""
        kind += f", dilation {node.dilation}" if node.dilation > 1 else ""
        return "conv", kind + (f", adds {node.residual.tensor}" if node.residual is not None else "")
    size = f"{node.kernel[0]}x{node.kernel[1]}, stride {node.stride}"
    if node.kind == "average":
        return "conv", f"average {size} as a convolution"
    return "pool", "global average" if node.kind == "global" else f"maximum {size}"
