"""The order of the passes, from the network as written to the float graph."""

from __future__ import annotations

from collections.abc import Callable

from espalier.errors import InternalError
from espalier.ir.float_graph import FloatConv, FloatGraph, FloatNode, FloatPool
from espalier.ir.imported_graph import ImportedGraph
from espalier.passes.fold_affine import fold_affine
from espalier.passes.fold_pad import fold_pad
from espalier.passes.fuse_add import fuse_add
from espalier.passes.fuse_relu import fuse_relu
from espalier.passes.remove_unused import remove_unused

# Scales go first: once a convolution has a residual or an activation they can no longer be folded.
# Additions come before activations, which apply to the sum.
PASSES: tuple[Callable[[ImportedGraph], None], ...] = (
    remove_unused,
    fold_pad,
    fold_affine,
    fuse_add,
    fuse_relu,
    remove_unused,
)


def lower(graph: ImportedGraph) -> FloatGraph:
    """Run all passes over `graph` (which they change) and return the float graph."""
    for step in PASSES:
        step(graph)
    nodes: list[FloatNode] = []
    for node in graph.nodes:
        if not isinstance(node, (FloatConv, FloatPool)):
            raise InternalError(f"network {graph.name}: node {node.name} was not lowered")
        nodes.append(node)
    return FloatGraph(graph.name, graph.input, graph.output, nodes, graph.shapes, graph.metadata)
