"""Masked least squares: the best values for the weights that a mask leaves."""

from __future__ import annotations

from collections.abc import Iterator

import numpy as np
import numpy.typing as npt

from espalier.compress.patterns import Mask
from espalier.compress.prune import Matrix

# Multiplications up to which every support gets a factorisation of its own; beyond, all rows go together.
EXACT_WORK = 2e12
_ITERATIONS, _TOLERANCE = 80, 1e-4


def supports(mask: Mask) -> Iterator[tuple[npt.NDArray[np.intp], npt.NDArray[np.intp]]]:
    """Rows that share a support, as (rows, columns of the support); empty rows are left out."""
    groups: dict[bytes, list[int]] = {}
    for row, support in enumerate(np.packbits(mask, axis=1)):
        groups.setdefault(support.tobytes(), []).append(row)
    for rows in groups.values():
        index = np.flatnonzero(mask[rows[0]])
        if index.size:
            yield np.array(rows), index


def row_work(mask: Mask) -> float:
    """Multiplications of one factorisation per support."""
    return float(sum(float(index.size) ** 3 for _, index in supports(mask)))


def masked_least_squares(gram: Matrix, cross: Matrix, mask: Mask) -> npt.NDArray[np.float64]:
    """Solve H_MM w_M = cross_M for every row.

    Args:
        gram: H, float32[n, n], positive definite.
        cross: W* H, float32[K, n].
        mask: bool[K, n].

    Returns:
        Weights, float64[K, n], zero outside the mask.

    """
    if row_work(mask) > EXACT_WORK:
        return _conjugate_gradients(gram, cross, mask)
    weights = np.zeros(cross.shape)
    for rows, index in supports(mask):
        block = gram[np.ix_(index, index)].astype(np.float64)
        found = np.linalg.solve(block, cross[np.ix_(rows, index)].T.astype(np.float64))
        weights[np.ix_(rows, index)] = found.T
    return weights


def _conjugate_gradients(gram: Matrix, cross: Matrix, mask: Mask) -> npt.NDArray[np.float64]:
    """All rows at once, each in its own support: one product with the Gram matrix per iteration."""
    inverse_diagonal = (1 / np.diag(gram))[None, :]
    weights = np.zeros_like(cross)
    residual = np.where(mask, cross, np.float32(0))
    direction = residual * inverse_diagonal
    power = (residual * direction).sum(axis=1, dtype=np.float64)
    target = _TOLERANCE**2 * power
    for _ in range(_ITERATIONS):
        if (power <= target).all():
            break
        product = np.where(mask, direction @ gram, np.float32(0))
        curvature = (direction * product).sum(axis=1, dtype=np.float64)
        length = (power / np.maximum(curvature, 1e-30)).astype(np.float32)[:, None]
        weights += length * direction
        residual -= length * product
        preconditioned = residual * inverse_diagonal
        following = (residual * preconditioned).sum(axis=1, dtype=np.float64)
        ratio = (following / np.maximum(power, 1e-30)).astype(np.float32)[:, None]
        direction = preconditioned + ratio * direction
        power = following
    return weights.astype(np.float64)


def squared_error(
    gram: Matrix, cross: Matrix, weights: npt.NDArray[np.float64], output_energy: float
) -> float:
    """Output error of weights relative to the energy of the wanted outputs, tr(W* H W*^T) or measured."""
    product = weights @ gram
    error = float((product * weights).sum() - 2 * (weights * cross).sum()) + output_energy
    return max(error, 0.0) / max(output_energy, 1e-30)
