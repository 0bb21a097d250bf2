"""Fold batch normalisation (any scale and shift of channels) into the convolution before it."""

from __future__ import annotations

import numpy as np

from espalier.ir.float_graph import FloatConv
from espalier.ir.imported_graph import Affine, ImportedGraph, ImportedNode, diagonal_conv, use_counts


def fold_affine(graph: ImportedGraph) -> None:
    """Fold every `Affine`; one whose input is not the private output of a convolution becomes one itself."""
    counts = use_counts(graph)
    producers: dict[str, FloatConv] = {}
    nodes: list[ImportedNode] = []
    for node in graph.nodes:
        conv: FloatConv | None = None
        if isinstance(node, Affine):
            before = producers.get(node.input)
            if before is not None and counts[node.input] == 1:
                _fold(before, node)
                producers[node.output] = before
                graph.fused[node.name] = [before.name]
                continue
            conv = diagonal_conv(node.name, node.input, node.output, node.scale, node.shift)
        elif isinstance(node, FloatConv):
            conv = node
        if conv is not None:
            producers[conv.output] = conv
        nodes.append(conv or node)
    graph.nodes = nodes


def _fold(conv: FloatConv, affine: Affine) -> None:
    # In double precision: variances can be tiny, and the result is rounded once.
    scale = affine.scale.astype(np.float64)
    conv.weights = (conv.weights * scale[:, None, None, None]).astype(np.float32)
    conv.bias = (conv.bias * scale + affine.shift).astype(np.float32)
    conv.output = affine.output
