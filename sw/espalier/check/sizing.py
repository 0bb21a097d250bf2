"""Float networks as integer networks of assumed weights, to find out what they would cost once compressed.

Nothing is calibrated: scales are made up, weights are random. What memories and cycles depend on is right:
shapes, how many weights there are, how they are spread, and where zero points differ.
"""

from __future__ import annotations

from collections.abc import Mapping

import numpy as np
import numpy.typing as npt

from espalier.backend.synthetic import mean_requantisation, sparse_weights, weight_requantisation
from espalier.compress.allocate import LEAST_DENSITY
from espalier.compress.build import CompressOptions, budget_densities
from espalier.errors import CapacityError
from espalier.ir.float_graph import FloatConv, FloatGraph, FloatPool, Shape
from espalier.ir.graph import Conv, IntegerGraph, Node, Pool, Residual, Tensor

DEFAULT_BITS = CompressOptions().bits
_SEED = 0
_SAMPLE = 20_000  # weights of a layer that its density is chosen by
_SIGNED_ZERO = 128  # zero point of a tensor with a sign
_HALF = 1 << 14  # multiplier of residuals: any will do


def default_densities(graph: FloatGraph, bits: int) -> dict[str, float]:
    """Shares of the weights that `espalier compress` would keep without options, by layer.

    The sizes of the weights stand for the scores that compression finds with pictures.
    """
    scores = {}
    for node in graph.nodes:
        if isinstance(node, FloatConv):
            sample = node.weights.reshape(-1)[:: max(1, node.weights.size // _SAMPLE)].astype(np.float64)
            scores[node.name] = sample**2 / max(float((sample**2).mean()) * node.weights.size, 1e-30)
    try:
        return budget_densities(graph, scores, CompressOptions(bits=bits)) if scores else {}
    except CapacityError:
        return dict.fromkeys(scores, LEAST_DENSITY)


def size_graph(
    graph: FloatGraph, densities: Mapping[str, float], bits: int, most_weights: int
) -> tuple[IntegerGraph, dict[str, int]]:
    """Make an integer graph of the same shapes.

    densities: by convolution. The weights of a layer that has fewer keep their places; a layer with more than
    `most_weights` other than zero gets none at all, to save hours, and is in the second result with how many
    it would have. `graph` may lack nodes between its nodes.
    """
    zeros = {graph.input: _SIGNED_ZERO}
    random = np.random.default_rng(_SEED)
    made: list[Node] = []
    skipped: dict[str, int] = {}
    for node in graph.nodes:
        zero = zeros.get(node.input, 0)
        if isinstance(node, FloatPool):
            zeros[node.output] = 0 if node.relu else zero
            made.append(_pool(node, graph.shapes[node.input], zero))
            continue
        zeros[node.output] = 0 if node.relu else _SIGNED_ZERO
        kept = _kept(node, densities[node.name])
        if kept > most_weights:
            skipped[node.name] = kept
            weights: npt.NDArray[np.int8] = np.zeros(node.weights.shape, np.int8)
        else:
            weights = _weights(node, densities[node.name], bits, random)
        made.append(_conv(node, weights, zero, graph.shapes[node.output], bits))
    tensors = {key: Tensor(key, *shape, 1.0, zeros.get(key, 0)) for key, shape in graph.shapes.items()}
    return IntegerGraph(graph.name, graph.input, graph.output, made, tensors), skipped


def _kept(node: FloatConv, density: float) -> int:
    """Weights other than zero."""
    return min(int(np.count_nonzero(node.weights)), round(density * node.weights.size))


def _weights(node: FloatConv, density: float, bits: int, random: np.random.Generator) -> npt.NDArray[np.int8]:
    own = node.weights != 0
    if np.count_nonzero(own) > density * own.size:
        return sparse_weights(random, node.weights.shape, density, bits)
    # Sparse as it is: an identity that carries a residual, or a network that was pruned before.
    return np.where(own, sparse_weights(random, node.weights.shape, 1.0, bits), 0).astype(np.int8)


def _conv(node: FloatConv, weights: npt.NDArray[np.int8], zero: int, target: Shape, bits: int) -> Conv:
    bias = np.zeros(len(weights), np.int64)
    return Conv(
        name=node.name,
        input=node.input,
        output=node.output,
        weights=weights,
        requantisation=weight_requantisation(weights, zero, bias),
        stride=node.stride,
        pads=node.pads,
        dilation=node.dilation,
        residual=None if node.residual is None else Residual(node.residual, _HALF, 1),
        weight_bits=bits,
        dense_macs=weights.size * target[1] * target[2],
    )


def _pool(node: FloatPool, source: Shape, zero: int) -> Pool:
    kernel = (source[1], source[2]) if node.kind == "global" else node.kernel
    area = 1 if node.kind == "max" else kernel[0] * kernel[1]
    values = mean_requantisation(area, zero)
    return Pool(node.name, node.input, node.output, node.kind, values, kernel, node.stride, node.pads)
