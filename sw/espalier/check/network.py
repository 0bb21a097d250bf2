"""The check of an integer graph: the compiler is the judge; where it refuses, everything that is wrong."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field

from espalier.arch.config import HardwareConfig
from espalier.backend.compiler import compile_graph, lower_integer_graph
from espalier.backend.image import ImageMetadata
from espalier.backend.lower import Progress
from espalier.backend.memory import place_tensors
from espalier.check.layers import certain_problems, describe, judge_layers, split_advice
from espalier.check.memory import least_memory, memory_problems, used_memory
from espalier.check.verdict import Assumption, MemoryVerdict, Problem
from espalier.errors import CapacityError, UserError
from espalier.ir.graph import IntegerGraph

# How the compiler's messages about memories begin: those need no second problem for the same memory.
_NAMES = {"feature": "feature memory", "stream": "stream memory", "table": "requantisation table"}


@dataclass
class Findings:
    """What is known of the layers of a network, by name, and of all together."""

    layers: dict[str, tuple[str, str]] = field(default_factory=dict)
    problems: dict[str, list[Problem]] = field(default_factory=dict)
    cycles: dict[str, int] = field(default_factory=dict)
    network: list[Problem] = field(default_factory=list)
    memories: list[MemoryVerdict] = field(default_factory=list)
    total: int | None = None
    notes: list[str] = field(default_factory=list)


def check_network(
    graph: IntegerGraph,
    skipped: Mapping[str, int],
    complete: bool,
    config: HardwareConfig,
    assumption: Assumption | None,
    progress: Progress,
) -> Findings:
    """Compile a network, or find out why that is impossible.

    complete: False if nodes are missing between its nodes. skipped: see `sizing.size_graph`. assumption: what
    the weights were made with, if they were.
    """
    found = Findings({node.name: describe(node) for node in graph.nodes})
    found.problems = certain_problems(graph, skipped, config)
    refusal: UserError | None = None
    if complete and not found.problems:
        try:
            _add_compiled(found, compile_graph(graph, config, progress=progress).metadata)
        except UserError as error:
            refusal = error
        else:
            return found
    _explain(found, graph, refusal, config, progress)
    least = least_memory(graph, skipped, config)
    named = [memory for memory, name in _NAMES.items() for p in found.network if p.what.startswith(name)]
    more = [memory for memory in least if memory.memory not in named]
    found.network += memory_problems(more, assumption)
    found.memories = least
    return found


def _add_compiled(found: Findings, metadata: ImageMetadata) -> None:
    """Take memories and cycles from what the compiler made."""
    found.memories = used_memory(metadata)
    found.total = metadata.predicted_cycles
    found.cycles = {layer.name: layer.predicted_cycles for layer in metadata.layers}
    found.notes += [
        f"layer {layer.name} is added: a copy of {layer.input} for maximum pooling, padded otherwise"
        for layer in metadata.layers
        if layer.name not in found.layers
    ]


def _explain(
    found: Findings,
    graph: IntegerGraph,
    refusal: UserError | None,
    config: HardwareConfig,
    progress: Progress,
) -> None:
    """Find everything that is wrong, `refusal` being what the compiler said if it was asked."""
    if refusal is not None and not str(refusal).startswith("layer "):
        # A memory: then every layer runs by itself. Feature memory is placed last, if at all.
        texts = [str(refusal)]
        try:
            if not config.feature_rings:  # with rings, what does not fit goes to DDR
                place_tensors(lower_integer_graph(graph, config), config)
        except CapacityError as error:
            texts += [str(error)] if str(error) not in texts else []
        found.network += [split_advice(text) for text in texts]
        return
    left = [node for node in graph.nodes if node.name not in found.problems]
    rest = IntegerGraph(graph.name, graph.input, graph.output, left, graph.tensors)
    found.problems.update(judge_layers(rest, config, progress))
    if refusal is not None and not found.problems:
        found.network.append(split_advice(str(refusal)))
