"""Exact products of integer matrices with the floating-point units: fast, and proven not to round."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy as np
import numpy.typing as npt

FLOAT32_EXACT = 1 << 24
BYTE = 255


def _bound(weights: npt.NDArray[np.int64]) -> int:
    """Largest magnitude that any partial sum of any row can take, whatever the order of addition."""
    positive = np.where(weights > 0, weights, 0).sum(axis=1)
    negative = np.where(weights < 0, -weights, 0).sum(axis=1)
    return int(max(positive.max(initial=0), negative.max(initial=0))) * BYTE


@dataclass(frozen=True)
class ExactMatrix:
    """A weight matrix [K, R] prepared for exact multiplication with matrices of bytes [R, L].

    `parts` holds (factor, matrix): float32 where all partial sums stay below 2**24, two float32
    matrices of the digits of wider weights where they do not, float64 as a last resort.
    """

    parts: tuple[tuple[int, npt.NDArray[Any]], ...]

    @property
    def dtype(self) -> npt.DTypeLike:
        """Type that the bytes must be converted to."""
        return self.parts[0][1].dtype

    def __matmul__(self, columns: npt.NDArray[Any]) -> npt.NDArray[Any]:
        """Product [K, L] with `columns` [R, L], integers 0..255 of type `dtype`; all results are integers."""
        (_, first), *rest = self.parts
        product: npt.NDArray[Any] = first @ columns
        if not rest:
            return product
        total = product.astype(np.float64)
        for factor, matrix in rest:
            total += (matrix @ columns).astype(np.float64) * factor
        return total


def exact_matrix(weights: npt.NDArray[np.int8]) -> ExactMatrix:
    """Prepare int8 weights [K, ...], flattened to [K, R]."""
    wide = weights.reshape(weights.shape[0], -1).astype(np.int64)
    if _bound(wide) < FLOAT32_EXACT:
        return ExactMatrix(((1, wide.astype(np.float32)),))
    low = (wide + 8) % 16 - 8
    high = (wide - low) // 16
    if max(_bound(low), _bound(high)) < FLOAT32_EXACT:
        return ExactMatrix(((1, low.astype(np.float32)), (16, high.astype(np.float32))))
    return ExactMatrix(((1, wide.astype(np.float64)),))
