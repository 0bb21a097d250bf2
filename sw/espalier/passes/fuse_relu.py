"""Fuse ReLU activations into the node before them."""

from __future__ import annotations

from espalier.ir.float_graph import FloatConv, FloatPool
from espalier.ir.imported_graph import ImportedGraph, ImportedNode, Relu, identity_conv, use_counts


def fuse_relu(graph: ImportedGraph) -> None:
    """Fuse every `Relu`; where the node before it has other readers too, an identity takes the activation."""
    counts = use_counts(graph)
    producers: dict[str, FloatConv | FloatPool] = {}
    nodes: list[ImportedNode] = []
    for node in graph.nodes:
        if isinstance(node, Relu):
            target = producers.get(node.input)
            if target is not None and counts[node.input] == 1:
                target.output = node.output
            else:
                target = identity_conv(node.name, node.input, node.output, graph.shapes[node.output][0])
                nodes.append(target)
            target.relu = True
            producers[node.output] = target
            continue
        if isinstance(node, (FloatConv, FloatPool)):
            producers[node.output] = node
        nodes.append(node)
    graph.nodes = nodes
