"""On-chip memories: what a compiled network takes, and what one that does not compile needs at least."""

from __future__ import annotations

from collections.abc import Mapping

import numpy as np

from espalier.arch.config import HardwareConfig
from espalier.arch.feature_layout import tensor_words, tile_counts
from espalier.arch.operators import OPERATORS_PER_WORD
from espalier.backend.image import ImageMetadata
from espalier.check.verdict import Assumption, MemoryVerdict, Problem
from espalier.ir.graph import Conv, IntegerGraph, Node

FEATURE, STREAM, TABLE = "feature", "stream", "table"

_PARTS = {FEATURE: "each bank", STREAM: "fullest PE", TABLE: "fullest branch"}
_ADVICE = {
    FEATURE: "use a smaller picture or a narrower network",
    STREAM: "prune more or use fewer weight bits",
    TABLE: "use fewer filters",
}


def used_memory(metadata: ImageMetadata) -> list[MemoryVerdict]:
    """Memories of a compiled network."""
    details = {}
    if metadata.layers:
        stream = max(metadata.layers, key=lambda layer: layer.stream_words)
        table = max(metadata.layers, key=lambda layer: layer.table_entries)
        details[STREAM] = f"most for {stream.name}: {stream.stream_words}"
        details[TABLE] = f"most for {table.name}: {table.table_entries}"
    return [
        MemoryVerdict(
            own.memory,
            own.used,
            own.available,
            _PARTS.get(own.memory, ""),
            detail=details.get(own.memory, ""),
        )
        for own in metadata.memory
    ]


def least_memory(
    graph: IntegerGraph, skipped: Mapping[str, int], config: HardwareConfig
) -> list[MemoryVerdict]:
    """Words that a network needs in any case: one copy of its filters, spread evenly, and its largest layer.

    graph: nodes may be missing between its nodes; skipped: weights that it lacks, see `sizing.size_graph`.
    """
    needs = {node.name: _layer_words(graph, node, config) for node in graph.nodes}
    layer = max(needs, key=needs.__getitem__)
    convs = [node for node in graph.nodes if isinstance(node, Conv)]
    operators = sum(skipped.values()) + sum(int(np.count_nonzero(node.weights)) for node in convs)
    streams = -(-operators // (OPERATORS_PER_WORD * config.pes))
    entries = -(-sum(len(node.weights) for node in convs) // config.branches)
    stream = MemoryVerdict(STREAM, streams, config.stream_depth_words, "mean PE", at_least=True)
    return [  # with streaming no stream is too long
        MemoryVerdict(
            FEATURE, needs[layer], config.feature_depth_words, _PARTS[FEATURE], True, f"layer {layer}"
        ),
        *([] if config.streaming else [stream]),
        MemoryVerdict(TABLE, entries, config.table_depth_words, "mean branch", at_least=True),
    ]


def _layer_words(graph: IntegerGraph, node: Node, config: HardwareConfig) -> int:
    """Words of input and output together, of the larger one if a pool may write over its input.

    The network's input is not counted: the compiler may rearrange it.
    """
    words = [
        tensor_words(*tile_counts(tensor.height, tensor.width, config.tile_size), tensor.channels)
        for name in (node.input, node.output)
        if name != graph.input
        for tensor in (graph.tensors[name],)
    ]
    return sum(words) if isinstance(node, Conv) else max(words)


def memory_problems(memories: list[MemoryVerdict], assumption: Assumption | None) -> list[Problem]:
    """One problem for every memory that is too small for what is needed at least."""
    found = []
    for memory in memories:
        if memory.fits is not False:
            continue
        text = (
            f"{memory.name}: at least {memory.needed} words are needed, the target has {memory.available}"
            f" ({memory.needed - memory.available} too many)"
        )
        todo = _ADVICE[memory.memory]
        if memory.memory == STREAM and assumption is not None:
            room = assumption.density * memory.available / memory.needed
            todo += f"; at most {room:.1%} of the weights fit (--density)"
        found.append(Problem(text, todo))
    return found
