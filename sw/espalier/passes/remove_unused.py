"""Remove nodes and tensors that the output does not depend on."""

from __future__ import annotations

from espalier.ir.imported_graph import ImportedGraph, ImportedNode, reads


def remove_unused(graph: ImportedGraph) -> None:
    """Keep what the output needs, and the input."""
    needed = {graph.output}
    kept: list[ImportedNode] = []
    for node in reversed(graph.nodes):
        if node.output in needed:
            needed.update(reads(node))
            kept.append(node)
    graph.nodes = kept[::-1]
    needed.add(graph.input)
    graph.shapes = {name: shape for name, shape in graph.shapes.items() if name in needed}
