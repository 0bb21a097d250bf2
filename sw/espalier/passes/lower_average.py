"""Average pooling as convolutions: weights of one, each filter over its own channel.

The requantisation stays as it is: the sum of a window's stored pixels is the same accumulator, and outside
the map both see the zero point. An average over the whole map is left to the pool unit.
"""

from __future__ import annotations

import dataclasses

import numpy as np

from espalier.ir.graph import Conv, IntegerGraph, Node, Pool, Requantisation, Tensor


def lower_average(graph: IntegerGraph) -> IntegerGraph:
    """Replace every node of kind "average" by a convolution or a global average with the same result."""
    nodes: list[Node] = []
    for node in graph.nodes:
        if isinstance(node, Pool) and node.kind == "average":
            nodes.append(_lower(node, graph.tensors[node.input], graph.tensors[node.output]))
        else:
            nodes.append(node)
    return dataclasses.replace(graph, nodes=nodes)


def _lower(node: Pool, source: Tensor, target: Tensor) -> Node:
    if node.kernel == (source.height, source.width) and not any(node.pads):
        return dataclasses.replace(node, kind="global")
    channels = source.channels
    weights = np.zeros((channels, channels, *node.kernel), np.int8)
    weights[np.arange(channels), np.arange(channels)] = 1
    values = node.requantisation
    return Conv(
        node.name,
        node.input,
        node.output,
        weights,
        Requantisation(*(np.repeat(v, channels) for v in (values.multiplier, values.shift, values.bias))),
        node.stride,
        node.pads,
        weight_bits=1,
        dense_macs=channels * node.kernel[0] * node.kernel[1] * target.height * target.width,
    )
