"""Padding and unfolding of feature maps, shared by integer and float execution.

Maps are held as [channels, pictures, height, width]: an unfolded map times a weight matrix then is the
output in the same order, without a transposition.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import numpy as np
import numpy.typing as npt

from espalier.ir.geometry import output_map
from espalier.ir.graph import Pads

Array = npt.NDArray[Any]

# Unfolded maps are made in slices of output rows of about this many elements, to stay near the caches.
COLUMN_ELEMENTS = 1 << 20


def pad(maps: Array, pads: Pads, value: float, dtype: npt.DTypeLike) -> Array:
    """Surround [C, N, H, W] with `value` and convert it to `dtype`; no copy if there is nothing to do."""
    if not any(pads):
        return maps.astype(dtype, copy=False)
    top, left, bottom, right = pads
    channels, pictures, height, width = maps.shape
    padded = np.full((channels, pictures, height + top + bottom, width + left + right), value, dtype)
    padded[:, :, top : top + height, left : left + width] = maps
    return padded


def taps(padded: Array, kernel: tuple[int, int], stride: int, dilation: int = 1) -> Iterator[Array]:
    """One view [C, N, rows, columns] per kernel position, in row-major order of the kernel."""
    rows, columns = output_map((padded.shape[2], padded.shape[3]), kernel, stride, (0, 0, 0, 0), dilation)
    for ky in range(kernel[0]):
        for kx in range(kernel[1]):
            top, left = ky * dilation, kx * dilation
            yield padded[
                :,
                :,
                top : top + (rows - 1) * stride + 1 : stride,
                left : left + (columns - 1) * stride + 1 : stride,
            ]


def unfold(
    padded: Array, kernel: tuple[int, int], stride: int, dilation: int = 1
) -> Iterator[tuple[slice, Array]]:
    """Unfold a padded map slice by slice.

    Yields (output rows, matrix [C * kernel_y * kernel_x, N * rows * columns]); rows of the matrix are in
    the order of `weights.reshape(K, -1)`.
    """
    channels, pictures = padded.shape[:2]
    if kernel == (1, 1) and stride == 1:
        yield slice(0, padded.shape[2]), padded.reshape(channels, -1)
        return
    rows, columns = output_map((padded.shape[2], padded.shape[3]), kernel, stride, (0, 0, 0, 0), dilation)
    area = kernel[0] * kernel[1]
    step = max(1, min(rows, COLUMN_ELEMENTS // (channels * area * pictures * columns)))
    for first in range(0, rows, step):
        last = min(rows, first + step)
        matrix = np.empty((channels, area, pictures, last - first, columns), padded.dtype)
        for index, view in enumerate(taps(padded, kernel, stride, dilation)):
            matrix[:, index] = view[:, :, first:last]
        yield slice(first, last), matrix.reshape(channels * area, -1)
