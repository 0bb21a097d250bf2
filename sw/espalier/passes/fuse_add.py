"""Fuse additions of two tensors into a convolution, as its residual."""

from __future__ import annotations

from espalier.ir.float_graph import FloatConv
from espalier.ir.imported_graph import Add, ImportedGraph, ImportedNode, identity_conv, use_counts
from espalier.passes.order import sort_nodes


def fuse_add(graph: ImportedGraph) -> None:
    """Fuse every `Add`; where neither operand is the private output of a convolution, an identity is added.

    If both are, the larger convolution takes the sum (the smaller one is the shortcut), or the later one.
    """
    counts = use_counts(graph)
    positions = {node.output: index for index, node in enumerate(graph.nodes)}
    producers: dict[str, FloatConv] = {}
    nodes: list[ImportedNode] = []
    for node in graph.nodes:
        if isinstance(node, Add):
            candidates = [
                (producers[name].weights.size, positions[name], name, other)
                for name, other in ((node.input, node.other), (node.other, node.input))
                if name in producers and producers[name].residual is None and counts[name] == 1
            ]
            if candidates:
                *_, name, other = max(candidates)
                conv = producers[name]
                conv.residual, conv.output = other, node.output
                graph.fused[node.name] = [conv.name]
            else:
                conv = identity_conv(node.name, node.input, node.output, graph.shapes[node.output][0])
                conv.residual = node.other
                nodes.append(conv)
            producers[node.output] = conv
            continue
        if isinstance(node, FloatConv):
            producers[node.output] = node
        nodes.append(node)
    graph.nodes = nodes
    # A convolution that took a sum may now stand before the producer of its residual.
    sort_nodes(graph)
