"""What the lanes of edge tiles outside the map hold: one value per tensor that all its readers agree on.

Convolution and average pooling want the zero point there, max-pooling wants stored 0. Where readers of one
tensor disagree, max-pooling gets a copy of it.
"""

from __future__ import annotations

import dataclasses

import numpy as np

from espalier.arch.program import FRACTION_BITS, MULTIPLIER_SHIFTS
from espalier.ir.graph import Conv, IntegerGraph, Node, Pool, Requantisation, Tensor


def tensors_read(node: Node) -> list[str]:
    """Names of the tensors that a node reads."""
    residual = node.residual if isinstance(node, Conv) else None
    return [node.input] + ([residual.tensor] if residual is not None else [])


def reader_pad(graph: IntegerGraph, node: Node) -> int:
    """Give the value that a node expects outside its input's map."""
    if isinstance(node, Pool) and node.kind == "max":
        return 0
    return graph.tensors[node.input].zero_point


def lower_padding(graph: IntegerGraph, tile_size: int) -> IntegerGraph:
    """Insert copies so that all readers of a tensor that look beyond its map expect the same value there."""
    nodes: list[Node] = []
    tensors = dict(graph.tensors)
    copies: dict[str, str] = {}
    for node in graph.nodes:
        expected = tensor_pad(graph, node.input, tile_size)
        if not _looks_beyond(graph, node, tile_size) or reader_pad(graph, node) == expected:
            nodes.append(node)
            continue
        if node.input not in copies:
            copies[node.input] = name = _free_name(f"{node.input}.copy", tensors)
            tensors[name] = dataclasses.replace(tensors[node.input], name=name)
            nodes.append(_copy(node.input, name, tensors[name].zero_point))
        nodes.append(dataclasses.replace(node, input=copies[node.input]))
    return dataclasses.replace(graph, nodes=nodes, tensors=tensors)


def tensor_pad(graph: IntegerGraph, tensor: str, tile_size: int) -> int:
    """Give the value outside the map of a tensor; the zero point unless max-pooling alone looks there."""
    wanted = {
        reader_pad(graph, node)
        for node in graph.nodes
        if node.input == tensor and _looks_beyond(graph, node, tile_size)
    }
    zero_point = graph.tensors[tensor].zero_point
    return zero_point if zero_point in wanted or not wanted else wanted.pop()


def _looks_beyond(graph: IntegerGraph, node: Node, tile_size: int) -> bool:
    """Whether a valid output pixel depends on a lane of an edge tile that lies outside the map."""
    source, target = graph.tensors[node.input], graph.tensors[node.output]
    if isinstance(node, Pool) and node.kind == "global":
        return False  # sums whole tiles, whatever the lanes hold: the bias takes it off again
    kernel = node.weights.shape[2:] if isinstance(node, Conv) else node.kernel
    dilation = node.dilation if isinstance(node, Conv) else 1
    for axis, (size, out) in enumerate(((source.height, target.height), (source.width, target.width))):
        last = (out - 1) * node.stride + dilation * (kernel[axis] - 1) - node.pads[axis]
        if size % tile_size and last >= size:
            return True
    return False


def _copy(source: str, target: str, zero_point: int) -> Pool:
    """Make a max-pool of one pixel with a scale of exactly one."""
    multiplier = np.array([1 << (FRACTION_BITS + MULTIPLIER_SHIFTS[0])])
    values = Requantisation(multiplier, np.array([0]), np.array([-zero_point]))
    return Pool(name=target, input=source, output=target, kind="max", requantisation=values)


def _free_name(wanted: str, taken: dict[str, Tensor]) -> str:
    while wanted in taken:
        wanted += "_"
    return wanted
