"""Single float nodes on many pictures. Maps are [channels, pictures, height, width], as in `numerics`."""

from __future__ import annotations

import numpy as np
import numpy.typing as npt

from espalier.ir.float_graph import FloatConv, FloatGraph, FloatPool
from espalier.ir.geometry import node_output_shape
from espalier.numerics.floating import float_run
from espalier.numerics.windows import pad, unfold

Stored = npt.NDArray[np.uint8]
Real = npt.NDArray[np.float32]


def patch_matrix(node: FloatConv, maps: Stored | Real, fill: int = 0) -> Real:
    """Gather what each output pixel of a convolution sees, as columns.

    Args:
        node: the convolution.
        maps: [C, N, height, width].
        fill: value of the pixels outside.

    Returns:
        float32[C * kernel_y * kernel_x, N * out_y * out_x], columns in the order [N, out_y, out_x].

    """
    kernel = (node.weights.shape[2], node.weights.shape[3])
    pictures = maps.shape[1]
    padded = pad(maps, node.pads, fill, np.float32)
    pieces = [
        columns.reshape(len(columns), pictures, -1)
        for _, columns in unfold(padded, kernel, node.stride, node.dilation)
    ]
    columns: Real = np.concatenate(pieces, axis=2).reshape(len(pieces[0]), -1)
    return columns


def float_conv(node: FloatConv, maps: Real, residual: Real | None = None) -> Real:
    """Convolution with bias and residual, before the activation: float32[K, N, height, width]."""
    filters, out_y, out_x = node_output_shape(node, (maps.shape[0], maps.shape[2], maps.shape[3]))
    rows = node.weights.reshape(filters, -1) @ patch_matrix(node, maps)
    rows += node.bias[:, None]
    output = rows.reshape(filters, maps.shape[1], out_y, out_x)
    return output if residual is None else output + residual


def float_pool(node: FloatPool, maps: Real) -> Real:
    """Pooling: float32[C, N, height, width]."""
    shape = (maps.shape[0], maps.shape[2], maps.shape[3])
    shapes = {node.input: shape, node.output: node_output_shape(node, shape)}
    single = FloatGraph(node.name, node.input, node.output, [node], shapes)
    return float_run(single, maps.transpose(1, 0, 2, 3))[node.output].transpose(1, 0, 2, 3)
