"""Execution order."""

from __future__ import annotations

from espalier.errors import InternalError
from espalier.ir.imported_graph import ImportedGraph, ImportedNode, reads


def sort_nodes(graph: ImportedGraph) -> None:
    """Order the nodes so that each comes after the producers of its inputs; otherwise as they were."""
    known = {graph.input}
    waiting = list(graph.nodes)
    ordered: list[ImportedNode] = []
    while waiting:
        node = next((node for node in waiting if known.issuperset(reads(node))), None)
        if node is None:
            raise InternalError(f"network {graph.name}: nodes {[n.name for n in waiting]} wait in a circle")
        waiting.remove(node)
        ordered.append(node)
        known.add(node.output)
    graph.nodes = ordered
