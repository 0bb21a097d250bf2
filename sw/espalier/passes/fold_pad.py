"""Fold explicit padding into the convolutions and average poolings that read it."""

from __future__ import annotations

from espalier.ir.float_graph import FloatConv, FloatPool, Shape
from espalier.ir.imported_graph import ImportedGraph, ImportedNode, Pad, identity_conv, reads, use_counts


def fold_pad(graph: ImportedGraph) -> None:
    """Fold every `Pad`; for other readers an identity convolution makes the padded map."""
    paddings: dict[str, Pad] = {}
    left = use_counts(graph)
    for node in graph.nodes:
        if isinstance(node, Pad):
            paddings[node.output] = node
        # A padding of a padding stays a node of its own: nobody writes that on purpose.
        elif node.input in paddings and _takes_zeros(node):
            left[node.input] -= 1
            graph.fused.setdefault(paddings[node.input].name, []).append(node.name)
            _fold(node, paddings[node.input], graph)
    nodes: list[ImportedNode] = []
    for node in graph.nodes:
        if not isinstance(node, Pad):
            nodes.append(node)
        elif left[node.output]:
            conv = identity_conv(node.name, node.input, node.output, graph.shapes[node.output][0])
            conv.pads = node.pads
            nodes.append(conv)
    graph.nodes = nodes
    used = {graph.output, graph.input, *(name for node in nodes for name in (node.output, *reads(node)))}
    graph.shapes = {name: shape for name, shape in graph.shapes.items() if name in used}


def _takes_zeros(node: ImportedNode) -> bool:
    return isinstance(node, FloatConv) or (isinstance(node, FloatPool) and node.kind == "average")


def _fold(node: ImportedNode, padding: Pad, graph: ImportedGraph) -> None:
    if not isinstance(node, (FloatConv, FloatPool)):
        return
    kernel, dilation = (
        (node.weights.shape[2:], node.dilation) if isinstance(node, FloatConv) else (node.kernel, 1)
    )
    source, target = graph.shapes[padding.input], graph.shapes[node.output]
    top, left = node.pads[0] + padding.pads[0], node.pads[1] + padding.pads[1]
    node.input = padding.input
    node.pads = (
        top,
        left,
        _reached(source, target, 1, kernel[0], node.stride, dilation, top),
        _reached(source, target, 2, kernel[1], node.stride, dilation, left),
    )


def _reached(
    source: Shape, target: Shape, axis: int, kernel: int, stride: int, dilation: int, before: int
) -> int:
    """Return the padding at the end that the windows reach."""
    used = (target[axis] - 1) * stride + dilation * (kernel - 1) + 1
    return max(0, used - source[axis] - before)
