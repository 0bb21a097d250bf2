"""What compression decides (scales, levels, steps, biases), and the integer graph made of it."""

from __future__ import annotations

from dataclasses import dataclass, field

import numpy as np
import numpy.typing as npt

from espalier.arch.program import (
    ACCUMULATOR_BITS,
    FRACTION_BITS,
    MULTIPLIER_BITS,
    MULTIPLIER_SHIFTS,
    RESIDUAL_MULTIPLIER_BITS,
    RESIDUAL_SHIFTS,
)
from espalier.errors import UserError
from espalier.ir.float_graph import FloatConv, FloatGraph, FloatPool
from espalier.ir.graph import Conv, IntegerGraph, Node, Pool, Requantisation, Residual, Tensor

# Bias steps per output step of a filter that has no weights left: only its bias counts.
_EMPTY_FILTER_RESOLUTION = 64


@dataclass
class LayerWeights:
    """Weights of one convolution: real weight = levels * steps[filter].

    levels: int8[K, C, kernel_y, kernel_x]; steps: float64[K]; bias: float64[K], real units.
    """

    levels: npt.NDArray[np.int8]
    steps: npt.NDArray[np.float64]
    bias: npt.NDArray[np.float64]
    bits: int


@dataclass
class Parameters:
    """Scales of all tensors and weights of all convolutions, by name."""

    tensors: dict[str, Tensor] = field(default_factory=dict)
    layers: dict[str, LayerWeights] = field(default_factory=dict)


def fixed_point(ratio: float, bits: int, shifts: tuple[int, ...], where: str) -> tuple[int, int]:
    """Express ratio as multiplier / 2**shifts[index] with the most precision.

    Returns:
        (multiplier, index).

    Raises:
        UserError: the ratio is too large for the multiplier or not a number.

    """
    for index in reversed(range(len(shifts))):
        scaled = ratio * 2.0 ** shifts[index]
        if np.isfinite(scaled) and round(scaled) < 1 << bits:
            return round(scaled), index
    raise UserError(
        f"{where}: scale ratio {ratio:g} is outside the requantiser's range (below"
        f" {(1 << bits) / 2 ** shifts[0]:g}): the ranges of its tensors differ too much; calibrate with"
        " pictures like those of the application"
    )


def requantisation(layer: LayerWeights, source: Tensor, output: Tensor, where: str) -> Requantisation:
    """Multipliers, shifts and integer biases of a convolution, including the input's zero point.

    Raises:
        UserError: a scale ratio does not fit the requantiser.

    """
    flat = layer.levels.reshape(len(layer.levels), -1).astype(np.int64)
    empty = ~flat.any(axis=1)
    steps = np.where(empty, output.scale / source.scale / _EMPTY_FILTER_RESOLUTION, layer.steps)
    coded = [
        fixed_point(
            float(source.scale * step / output.scale) * (1 << FRACTION_BITS),
            MULTIPLIER_BITS,
            MULTIPLIER_SHIFTS,
            where,
        )
        for step in steps
    ]
    bias = np.rint(layer.bias / (source.scale * steps)) - source.zero_point * flat.sum(axis=1)
    limit = (1 << (ACCUMULATOR_BITS - 1)) - 1 - 255 * np.abs(flat).sum(axis=1)
    return Requantisation(
        multiplier=np.array([multiplier for multiplier, _ in coded], dtype=np.int64),
        shift=np.array([index for _, index in coded], dtype=np.int64),
        bias=np.clip(bias, -limit, limit).astype(np.int64),
    )


def make_conv(node: FloatConv, layer: LayerWeights, parameters: Parameters, dense_macs: int) -> Conv:
    """Integer convolution of a float node.

    Raises:
        UserError: a scale ratio does not fit the requantiser.

    """
    source, output = parameters.tensors[node.input], parameters.tensors[node.output]
    residual = None
    if node.residual is not None:
        ratio = parameters.tensors[node.residual].scale / output.scale * (1 << FRACTION_BITS)
        where = f"residual of layer '{node.name}'"
        residual = Residual(
            node.residual, *fixed_point(ratio, RESIDUAL_MULTIPLIER_BITS, RESIDUAL_SHIFTS, where)
        )
    return Conv(
        name=node.name,
        input=node.input,
        output=node.output,
        weights=layer.levels,
        requantisation=requantisation(layer, source, output, f"layer '{node.name}'"),
        stride=node.stride,
        pads=node.pads,
        dilation=node.dilation,
        residual=residual,
        weight_bits=layer.bits,
        dense_macs=dense_macs,
    )


def make_pool(node: FloatPool, parameters: Parameters) -> Pool:
    """Integer pooling of a float node.

    Raises:
        UserError: a scale ratio does not fit the requantiser.

    """
    source, output = parameters.tensors[node.input], parameters.tensors[node.output]
    kernel = (source.height, source.width) if node.kind == "global" else node.kernel
    pixels = 1 if node.kind == "max" else kernel[0] * kernel[1]
    ratio = source.scale / (output.scale * pixels) * (1 << FRACTION_BITS)
    multiplier, shift = fixed_point(ratio, MULTIPLIER_BITS, MULTIPLIER_SHIFTS, f"pooling '{node.name}'")
    requantise = Requantisation(
        multiplier=np.array([multiplier], dtype=np.int64),
        shift=np.array([shift], dtype=np.int64),
        bias=np.array([-source.zero_point * pixels], dtype=np.int64),
    )
    return Pool(node.name, node.input, node.output, node.kind, requantise, kernel, node.stride, node.pads)


def dense_macs(graph: FloatGraph, node: FloatConv) -> int:
    """Multiply-accumulates of a convolution with all its weights."""
    _, height, width = graph.shapes[node.output]
    return int(node.weights.size) * height * width


def integer_graph(graph: FloatGraph, parameters: Parameters) -> IntegerGraph:
    """Make the integer graph of a float graph with the given scales and weights.

    Raises:
        UserError: a scale ratio does not fit the requantiser.

    """
    nodes: list[Node] = []
    for node in graph.nodes:
        if isinstance(node, FloatConv):
            layer = parameters.layers[node.name]
            nodes.append(make_conv(node, layer, parameters, dense_macs(graph, node)))
        else:
            nodes.append(make_pool(node, parameters))
    return IntegerGraph(
        graph.name, graph.input, graph.output, nodes, dict(parameters.tensors), dict(graph.metadata)
    )
