"""Masked least squares: the best values for the weights that a mask leaves."""

from __future__ import annotations

import numpy as np
import numpy.typing as npt

from espalier.compress.prune import Mask, Matrix


def masked_least_squares(gram: Matrix, cross: Matrix, mask: Mask) -> npt.NDArray[np.float64]:
    """Solve H_MM w_M = cross_M for every row.

    Args:
        gram: H, float32[n, n], positive definite.
        cross: W* H, float32[K, n].
        mask: bool[K, n].

    Returns:
        Weights, float64[K, n], zero outside the mask.

    """
    weights = np.zeros(cross.shape)
    for row, support in enumerate(mask):
        index = np.flatnonzero(support)
        if index.size:
            block = gram[np.ix_(index, index)].astype(np.float64)
            weights[row, index] = np.linalg.solve(block, cross[row, index].astype(np.float64))
    return weights


def squared_error(
    gram: Matrix, cross: Matrix, weights: npt.NDArray[np.float64], output_energy: float
) -> float:
    """Output error of weights relative to the energy of the wanted outputs, tr(W* H W*^T) or measured."""
    product = weights @ gram
    error = float((product * weights).sum() - 2 * (weights * cross).sum()) + output_energy
    return max(error, 0.0) / max(output_energy, 1e-30)
