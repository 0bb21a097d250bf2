"""Invariants of the integer graph: what every later stage may rely on."""

from __future__ import annotations

from collections.abc import Iterator

import numpy as np

from espalier.arch.operators import MAX_WIDE_WEIGHT
from espalier.arch.program import (
    ACCUMULATOR_BITS,
    FRACTION_BITS,
    MULTIPLIER_BITS,
    MULTIPLIER_SHIFTS,
    RESIDUAL_MULTIPLIER_BITS,
    RESIDUAL_SHIFTS,
)
from espalier.errors import InternalError
from espalier.ir.geometry import node_output_shape
from espalier.ir.graph import Conv, IntegerGraph, Node, Pool, Requantisation, Tensor

POOL_KINDS = ("max", "average", "global")
ACCUMULATOR_HIGH = (1 << (ACCUMULATOR_BITS - 1)) - 1
BYTE = 255


def check_graph(graph: IntegerGraph) -> None:
    """Check shapes, tensor references and value ranges of a graph.

    Raises:
        InternalError: names every violation found.

    """
    problems = list(_tensor_problems(graph))
    known = {graph.input}
    names: set[str] = set()
    for node in graph.nodes:
        where = f"node {node.name}"
        if node.name in names:
            problems.append(f"{where}: the name is taken")
        names.add(node.name)
        found = list(_reference_problems(node, graph, known))
        # Without its tensors nothing else of a node can be judged.
        found = found or list(node_problems(node, graph))
        problems += [f"{where}: {text}" for text in found]
        known.add(node.output)
    if graph.output not in known:
        problems.append(f"output tensor {graph.output} is not computed")
    problems += [f"tensor {name} is not computed" for name in sorted(set(graph.tensors) - known)]
    if problems:
        raise InternalError(f"graph {graph.name}: " + "; ".join(problems))


def weight_range(bits: int) -> tuple[int, int]:
    """Smallest and largest weight of `bits` bits; five bits and more are two digits of four."""
    if bits > 4:
        high = min(MAX_WIDE_WEIGHT, (1 << (bits - 1)) - 1)
        return -high, high
    if bits == 1:
        return -1, 1  # one bit of magnitude: a sign, or nothing
    return -(1 << (bits - 1)), (1 << (bits - 1)) - 1


def _tensor_problems(graph: IntegerGraph) -> Iterator[str]:
    if graph.input not in graph.tensors:
        yield f"input tensor {graph.input} is not described"
    for name, tensor in graph.tensors.items():
        if tensor.name != name:
            yield f"tensor {name}: calls itself {tensor.name}"
        if min(tensor.channels, tensor.height, tensor.width) < 1:
            yield f"tensor {name}: shape {tensor.channels}x{tensor.height}x{tensor.width}"
        if not 0 <= tensor.zero_point <= BYTE:
            yield f"tensor {name}: zero point {tensor.zero_point} is outside 0..255"
        if not (np.isfinite(tensor.scale) and tensor.scale > 0):
            yield f"tensor {name}: scale {tensor.scale}"


def _reference_problems(node: Node, graph: IntegerGraph, known: set[str]) -> Iterator[str]:
    reads = [node.input]
    if isinstance(node, Conv) and node.residual is not None:
        reads.append(node.residual.tensor)
    for name in reads:
        if name not in known or name not in graph.tensors:
            yield f"reads tensor {name}, which does not exist yet"
    if node.output not in graph.tensors:
        yield f"output tensor {node.output} is not described"
    if node.output in known:
        yield f"writes tensor {node.output}, which exists already"


def _shape(tensor: Tensor) -> tuple[int, int, int]:
    return tensor.channels, tensor.height, tensor.width


def node_problems(node: Node, graph: IntegerGraph) -> Iterator[str]:
    """Yield what is wrong with one node whose tensors exist: shapes, ranges, sums that may overflow."""
    source, target = graph.tensors[node.input], graph.tensors[node.output]
    if node.stride not in (1, 2):
        yield f"stride {node.stride}, must be 1 or 2"
        return
    if len(node.pads) != 4 or min(node.pads) < 0:
        yield f"padding {node.pads}"
        return
    if isinstance(node, Conv):
        if (
            node.weights.ndim != 4
            or node.weights.dtype != np.int8
            or node.weights.shape[1] != source.channels
        ):
            yield f"weights {node.weights.dtype}{list(node.weights.shape)} on {source.channels} channels"
            return
    elif node.kind not in POOL_KINDS:
        yield f"pooling of kind {node.kind}"
        return
    expected = node_output_shape(node, _shape(source))
    if expected != _shape(target):
        yield f"computes {expected}, but tensor {target.name} is {_shape(target)}"
    count = target.channels if isinstance(node, Conv) else 1
    ranges = list(_requantisation_problems(node.requantisation, count))
    yield from ranges
    if not ranges:
        yield from (
            _conv_problems(node, graph) if isinstance(node, Conv) else _pool_problems(node, source, target)
        )


def _requantisation_problems(values: Requantisation, count: int) -> Iterator[str]:
    limits = {
        "multiplier": (0, (1 << MULTIPLIER_BITS) - 1),
        "shift": (0, len(MULTIPLIER_SHIFTS) - 1),
        "bias": (-ACCUMULATOR_HIGH - 1, ACCUMULATOR_HIGH),
    }
    for name, (low, high) in limits.items():
        array = getattr(values, name)
        if array.shape != (count,) or array.dtype != np.int64:
            yield f"{name} is {array.dtype}{list(array.shape)}, must be int64[{count}]"
        elif array.min() < low or array.max() > high:
            yield f"{name} {array.min()}..{array.max()} exceeds {low}..{high}"


def _conv_problems(node: Conv, graph: IntegerGraph) -> Iterator[str]:
    if node.dilation < 1:
        yield f"dilation {node.dilation}"
    if not 1 <= node.weight_bits <= 8:
        yield f"weights of {node.weight_bits} bits, must be 1 to 8"
        return
    low, high = weight_range(node.weight_bits)
    if node.weights.min() < low or node.weights.max() > high:
        yield (
            f"weights {node.weights.min()}..{node.weights.max()} exceed {low}..{high}"
            f" ({node.weight_bits} bits)"
        )
    flat = node.weights.reshape(len(node.weights), -1)
    bias = node.requantisation.bias
    largest = np.maximum(flat, 0).sum(axis=1, dtype=np.int64) * BYTE + bias
    smallest = np.minimum(flat, 0).sum(axis=1, dtype=np.int64) * BYTE + bias
    if largest.max() > ACCUMULATOR_HIGH or smallest.min() < -ACCUMULATOR_HIGH - 1:
        yield f"sums {smallest.min()}..{largest.max()} can exceed {ACCUMULATOR_BITS} bits"
    if node.residual is None:
        return
    residual = node.residual
    if _shape(graph.tensors[residual.tensor]) != _shape(graph.tensors[node.output]):
        yield f"residual {residual.tensor} does not have the shape of the output"
    if not 0 <= residual.multiplier < 1 << RESIDUAL_MULTIPLIER_BITS:
        yield f"residual multiplier {residual.multiplier} exceeds {RESIDUAL_MULTIPLIER_BITS} bits"
    if not 0 <= residual.shift < len(RESIDUAL_SHIFTS):
        yield f"residual shift {residual.shift}"


def _pool_problems(node: Pool, source: Tensor, target: Tensor) -> Iterator[str]:
    if node.kind == "max":
        area = 1
        values = node.requantisation
        scale = int(values.multiplier[0]), MULTIPLIER_SHIFTS[int(values.shift[0])] + FRACTION_BITS
        if scale[0] != 1 << scale[1] or values.bias[0] != -source.zero_point:
            yield f"maximum pooling rescales (factor {scale[0]} / {1 << scale[1]}, bias {values.bias[0]})"
        if source.zero_point != target.zero_point:
            yield f"maximum pooling moves the zero point from {source.zero_point} to {target.zero_point}"
        # A window that holds nothing but padding would have no maximum.
        if (
            max(node.pads[0], node.pads[2]) >= node.kernel[0]
            or max(node.pads[1], node.pads[3]) >= node.kernel[1]
        ):
            yield f"padding {node.pads} reaches beyond the kernel {node.kernel}"
    else:
        area = source.height * source.width if node.kind == "global" else node.kernel[0] * node.kernel[1]
    bias = int(node.requantisation.bias[0])
    if area * BYTE + bias > ACCUMULATOR_HIGH:
        yield f"sums of {area} pixels can exceed {ACCUMULATOR_BITS} bits"
