"""Exact pooling of stored bytes."""

from __future__ import annotations

import numpy as np
import numpy.typing as npt

from espalier.ir.graph import Pool
from espalier.numerics.requantisation import requantise
from espalier.numerics.windows import pad, taps

Bytes = npt.NDArray[np.uint8]


def pool_maps(node: Pool, maps: Bytes, input_zero: int, output_zero: int) -> Bytes:
    """uint8[C, N, H, W] to uint8[C, N, rows, columns].

    Maximum pooling pads with stored 0, which never wins; average pooling with the zero point, which is a
    real zero and counts in the divisor.
    """
    if node.kind == "global":
        total = maps.sum(axis=(2, 3), dtype=np.int64, keepdims=True)
        return requantise(total, node.requantisation, output_zero)
    views = taps(
        pad(maps, node.pads, 0 if node.kind == "max" else input_zero, np.uint8), node.kernel, node.stride
    )
    if node.kind == "max":
        largest = next(views).copy()
        for view in views:
            np.maximum(largest, view, out=largest)
        return requantise(largest, node.requantisation, output_zero)
    total = next(views).astype(np.int64)
    for view in views:
        total += view
    return requantise(total, node.requantisation, output_zero)


def pool(node: Pool, picture: Bytes, input_zero: int, output_zero: int) -> Bytes:
    """One pooling of one map: uint8[C, H, W] to uint8[C, rows, columns]."""
    return pool_maps(node, picture[:, None], input_zero, output_zero)[:, 0]
