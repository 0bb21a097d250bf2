"""Fuse ReLU activations into the node before them."""

from __future__ import annotations

from espalier.ir.float_graph import FloatConv, FloatPool
from espalier.ir.imported_graph import ImportedGraph, ImportedNode, Relu, identity_conv, use_counts


def fuse_relu(graph: ImportedGraph) -> None:
    """Fuse every `Relu`; where the node before it has other readers too, an identity takes the activation.

    Maximum pooling changes no value, so it cannot take one; the node before it can, with the same result.
    """
    counts = use_counts(graph)
    producers: dict[str, FloatConv | FloatPool] = {}
    nodes: list[ImportedNode] = []
    for node in graph.nodes:
        if isinstance(node, Relu):
            before = producers.get(node.input)
            target = _private_producer(node.input, producers, counts)
            if before is not None and target is not None:
                before.output = node.output
                graph.fused[node.name] = [target.name]
            else:
                before = target = identity_conv(
                    node.name, node.input, node.output, graph.shapes[node.output][0]
                )
                nodes.append(target)
            target.relu = True
            producers[node.output] = before
            continue
        if isinstance(node, (FloatConv, FloatPool)):
            producers[node.output] = node
        nodes.append(node)
    graph.nodes = nodes


def _private_producer(
    tensor: str, producers: dict[str, FloatConv | FloatPool], counts: dict[str, int]
) -> FloatConv | FloatPool | None:
    """Node that computes a tensor's values, before maximum pooling, if nobody else sees them."""
    node = producers.get(tensor)
    if node is None or counts[tensor] != 1:
        return None
    if isinstance(node, FloatPool) and node.kind == "max":
        return _private_producer(node.input, producers, counts)
    return node
