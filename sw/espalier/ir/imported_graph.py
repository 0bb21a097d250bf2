"""A network as it was written, before fusion: convolutions and pooling, and what passes fuse into them."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Any

import numpy as np
import numpy.typing as npt

from espalier.ir.float_graph import FloatConv, FloatPool, Shape
from espalier.ir.graph import Pads


@dataclass
class Affine:
    """out = input * scale + shift, both float32[channels] (a batch normalisation, for example)."""

    name: str
    input: str
    output: str
    scale: npt.NDArray[np.float32]
    shift: npt.NDArray[np.float32]


@dataclass
class Relu:
    """out = max(input, 0)."""

    name: str
    input: str
    output: str


@dataclass
class Add:
    """out = input + other, tensors of one shape."""

    name: str
    input: str
    other: str
    output: str


@dataclass
class Pad:
    """out = input surrounded by zeros."""

    name: str
    input: str
    output: str
    pads: Pads


ImportedNode = FloatConv | FloatPool | Affine | Relu | Add | Pad


@dataclass
class ImportedGraph:
    """Nodes in execution order; `shapes` gives (channels, height, width) of every tensor by name.

    fused: name of every node that passes took out, and of those that do its work now.
    """

    name: str
    input: str
    output: str
    nodes: list[ImportedNode]
    shapes: dict[str, Shape]
    metadata: dict[str, Any] = field(default_factory=dict)
    fused: dict[str, list[str]] = field(default_factory=dict)


def reads(node: ImportedNode) -> tuple[str, ...]:
    """Names of the tensors a node reads, with repetition."""
    if isinstance(node, Add):
        return node.input, node.other
    if isinstance(node, FloatConv) and node.residual is not None:
        return node.input, node.residual
    return (node.input,)


def use_counts(graph: ImportedGraph) -> dict[str, int]:
    """How often every tensor is read; being the output of the network counts as one reading."""
    counts = dict.fromkeys(graph.shapes, 0)
    counts[graph.output] += 1
    for node in graph.nodes:
        for name in reads(node):
            counts[name] += 1
    return counts


def diagonal_conv(
    name: str, source: str, output: str, scale: npt.NDArray[np.float32], shift: npt.NDArray[np.float32]
) -> FloatConv:
    """Make a 1x1 convolution that scales and shifts every channel by itself."""
    weights = np.diag(scale).astype(np.float32)[:, :, None, None]
    return FloatConv(name, source, output, weights, shift.astype(np.float32))


def identity_conv(name: str, source: str, output: str, channels: int) -> FloatConv:
    """Make a 1x1 convolution that changes nothing, as a place for an activation or a residual."""
    return diagonal_conv(name, source, output, np.ones(channels, np.float32), np.zeros(channels, np.float32))
