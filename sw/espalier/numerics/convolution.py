"""Exact convolution of stored bytes."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
import numpy.typing as npt

from espalier.ir.geometry import output_map
from espalier.ir.graph import Conv
from espalier.numerics.matrix import ExactMatrix, exact_matrix
from espalier.numerics.requantisation import requantise, residual_table
from espalier.numerics.windows import pad, unfold

Bytes = npt.NDArray[np.uint8]


@dataclass(frozen=True)
class PreparedConv:
    """A convolution ready to run: weights as a matrix, zero points of the tensors around it."""

    node: Conv
    matrix: ExactMatrix
    input_zero: int
    output_zero: int
    table: npt.NDArray[np.float64] | None

    def _output_map(self, maps: Bytes) -> tuple[int, int]:
        node = self.node
        kernel = (node.weights.shape[2], node.weights.shape[3])
        return output_map((maps.shape[2], maps.shape[3]), kernel, node.stride, node.pads, node.dilation)

    def __call__(self, maps: Bytes, residual: Bytes | None = None) -> Bytes:
        """uint8[C, N, H, W] to uint8[K, N, rows, columns]; `residual` has the output's shape."""
        node, (rows, columns) = self.node, self._output_map(maps)
        filters, _, *kernel = node.weights.shape
        padded = pad(maps, node.pads, self.input_zero, self.matrix.dtype)
        output = np.empty((filters, maps.shape[1], rows, columns), np.uint8)
        for part, unfolded in unfold(padded, (kernel[0], kernel[1]), node.stride, node.dilation):
            accumulator = (self.matrix @ unfolded).reshape(filters, maps.shape[1], -1, columns)
            other = None if residual is None else residual[:, :, part]
            output[:, :, part] = requantise(
                accumulator, node.requantisation, self.output_zero, other, self.table
            )
        return output

    def accumulate(self, maps: Bytes) -> npt.NDArray[np.int64]:
        """Compute the accumulators without bias, int64[K, N, rows, columns]."""
        node, (rows, columns) = self.node, self._output_map(maps)
        filters, _, *kernel = node.weights.shape
        padded = pad(maps, node.pads, self.input_zero, self.matrix.dtype)
        output = np.empty((filters, maps.shape[1], rows, columns), np.int64)
        for part, unfolded in unfold(padded, (kernel[0], kernel[1]), node.stride, node.dilation):
            output[:, :, part] = (self.matrix @ unfolded).reshape(filters, maps.shape[1], -1, columns)
        return output


def prepare_conv(node: Conv, input_zero: int, output_zero: int, residual_zero: int = 0) -> PreparedConv:
    """Prepare a convolution between tensors with these zero points."""
    table = None if node.residual is None else residual_table(node.residual, residual_zero)
    return PreparedConv(node, exact_matrix(node.weights), input_zero, output_zero, table)


def conv(
    node: Conv,
    picture: Bytes,
    input_zero: int,
    output_zero: int,
    residual: Bytes | None = None,
    residual_zero: int = 0,
) -> Bytes:
    """One convolution of one map: uint8[C, H, W] to uint8[K, rows, columns]."""
    prepared = prepare_conv(node, input_zero, output_zero, residual_zero)
    other = None if residual is None else residual[:, None]
    return prepared(picture[:, None], other)[:, 0]
