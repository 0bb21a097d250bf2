"""Invariants of an integer graph, checked before compilation and after every pass on it."""

from __future__ import annotations

import numpy as np

from espalier.arch.program import (
    ACCUMULATOR_BITS,
    MULTIPLIER_BITS,
    MULTIPLIER_SHIFTS,
    RESIDUAL_MULTIPLIER_BITS,
    RESIDUAL_SHIFTS,
)
from espalier.errors import InternalError
from espalier.ir.graph import Conv, IntegerGraph, Node, Pool, Requantisation


def check_graph(graph: IntegerGraph) -> None:
    """Check names, shapes, order and ranges.

    Raises:
        InternalError: names the node and what is wrong with it.

    """
    known = {graph.input}
    for name, tensor in graph.tensors.items():
        _require(tensor.name == name, name, f"tensor is called '{tensor.name}'")
        _require(min(tensor.channels, tensor.height, tensor.width) > 0, name, "tensor is empty")
        _require(0 <= tensor.zero_point <= 255, name, f"zero point {tensor.zero_point}")
    _require(graph.input in graph.tensors, graph.name, f"no input tensor '{graph.input}'")
    for node in graph.nodes:
        _require(node.output in graph.tensors, node.name, f"no tensor '{node.output}'")
        _require(node.input in known, node.name, f"input '{node.input}' is not computed before")
        _require(node.output not in known, node.name, f"tensor '{node.output}' is computed twice")
        if isinstance(node, Conv):
            _check_conv(graph, node, known)
        else:
            _check_pool(graph, node)
        known.add(node.output)
    _require(graph.output in known, graph.name, f"output '{graph.output}' is not computed")


def tensors_read(node: Node) -> list[str]:
    """Names of the tensors that a node reads."""
    residual = node.residual if isinstance(node, Conv) else None
    return [node.input] + ([residual.tensor] if residual is not None else [])


def output_size(node: Node, height: int, width: int) -> tuple[int, int]:
    """Rows and columns of a node's output for an input of the given size."""
    if isinstance(node, Pool) and node.kind == "global":
        return 1, 1
    kernel = node.weights.shape[2:] if isinstance(node, Conv) else node.kernel
    dilation = node.dilation if isinstance(node, Conv) else 1
    sizes = [
        (size + node.pads[axis] + node.pads[axis + 2] - dilation * (kernel[axis] - 1) - 1) // node.stride + 1
        for axis, size in enumerate((height, width))
    ]
    return sizes[0], sizes[1]


def _check_conv(graph: IntegerGraph, node: Conv, known: set[str]) -> None:
    source, target = graph.tensors[node.input], graph.tensors[node.output]
    _require(node.weights.ndim == 4, node.name, f"weights have shape {node.weights.shape}")
    _require(node.weights.shape[:2] == (target.channels, source.channels), node.name, "channels do not match")
    _check_size(graph, node)
    _check_requantisation(node.requantisation, target.channels, node.name)
    if node.residual is not None:
        _require(node.residual.tensor in known, node.name, "residual is not computed before")
        other = graph.tensors[node.residual.tensor]
        same = (other.channels, other.height, other.width) == (target.channels, target.height, target.width)
        _require(same, node.name, "residual has another shape than the output")
        _require(
            0 <= node.residual.multiplier < 1 << RESIDUAL_MULTIPLIER_BITS, node.name, "residual multiplier"
        )
        _require(0 <= node.residual.shift < len(RESIDUAL_SHIFTS), node.name, "residual shift")


def _check_pool(graph: IntegerGraph, node: Pool) -> None:
    _require(node.kind in ("max", "average", "global"), node.name, f"pooling kind '{node.kind}'")
    same = graph.tensors[node.input].channels == graph.tensors[node.output].channels
    _require(same, node.name, "channels do not match")
    _check_size(graph, node)
    _check_requantisation(node.requantisation, 1, node.name)


def _check_size(graph: IntegerGraph, node: Node) -> None:
    """Compare the size of the output with kernel, pads and stride."""
    source, target = graph.tensors[node.input], graph.tensors[node.output]
    size = output_size(node, source.height, source.width)
    _require(
        size == (target.height, target.width),
        node.name,
        f"output is {target.height}x{target.width}, kernel, pads and stride make {size[0]}x{size[1]}",
    )


def _check_requantisation(values: Requantisation, count: int, name: str) -> None:
    limit = 1 << (ACCUMULATOR_BITS - 1)
    for field, low, high in (
        ("multiplier", 0, (1 << MULTIPLIER_BITS) - 1),
        ("shift", 0, len(MULTIPLIER_SHIFTS) - 1),
        ("bias", -limit, limit - 1),
    ):
        array = np.asarray(getattr(values, field))
        _require(array.shape == (count,), name, f"{field} has shape {array.shape}, expected ({count},)")
        inside = bool(((array >= low) & (array <= high)).all())
        _require(inside, name, f"{field} {array.min()}..{array.max()} exceeds {low}..{high}")


def _require(condition: bool, where: str, what: str) -> None:
    if not condition:
        raise InternalError(f"integer graph, {where}: {what}")
