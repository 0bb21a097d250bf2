"""Masks: which weights of a layer stay.

The problem is the layer's own: minimise tr((W - W*) H (W - W*)^T) over weights W with a given number of
non-zeros, where H is the Gram matrix of the layer's (quantised) inputs and W* H = `cross` the product of the
wanted outputs with those inputs. Only H and `cross` are needed, never the pictures.
"""

from __future__ import annotations

import numpy as np
import numpy.typing as npt

from espalier.compress.patterns import NONE, Mask, Pattern

Matrix = npt.NDArray[np.float32]


def magnitude_mask(weights: Matrix, gram: Matrix, keep: int, pattern: Pattern = NONE) -> Mask:
    """Keep the weights whose removal alone changes the output most: |w| times the norm of its input."""
    norms = np.sqrt(np.maximum(np.diag(gram), 0)).astype(np.float32)
    return pattern.mask(np.abs(weights) * norms, keep)


def admm_mask(
    gram: Matrix,
    cross: Matrix,
    keep: int,
    levels: int = 6,
    iterations: int = 8,
    rho: float = 0.02,
    growth: float = 3.0,
    pattern: Pattern = NONE,
) -> Mask:
    """Mask by the alternating direction method of multipliers on the Gram matrix.

    Args:
        gram: H, float32[n, n], positive definite (damped).
        cross: W* H, float32[K, n].
        keep: non-zeros of the whole layer; rows may share them out unevenly.
        levels: values of the penalty; each costs one matrix inverse.
        iterations: iterations per level.
        rho: first penalty, relative to the Gram matrix scaled to a unit diagonal.
        growth: factor between levels; growing it forces the two copies of the weights to agree.
        pattern: which sets of weights may stay; the projection onto it is all that ADMM knows of it.

    Returns:
        The support of the sparse copy after the last iteration.

    """
    # With inputs scaled to unit norm the projection keeps the weights that matter most for the output.
    scale = (1 / np.sqrt(np.maximum(np.diag(gram), 1e-12))).astype(np.float32)
    scaled = gram * scale[:, None] * scale[None, :]
    target = cross * scale[None, :]
    identity = np.eye(len(gram), dtype=np.float32)
    sparse = np.zeros_like(target)
    dual = np.zeros_like(target)
    mask = np.zeros(target.shape, dtype=bool)
    for level in range(levels):
        inverse = np.linalg.inv(scaled + np.float32(rho) * identity)
        if level == 0:
            start = target @ inverse
            mask = pattern.mask(np.abs(start), keep)
            sparse = np.where(mask, start, np.float32(0))
        for _ in range(iterations):
            dense = (target + np.float32(rho) * sparse - dual) @ inverse
            moved = dense + dual / np.float32(rho)
            mask = pattern.mask(np.abs(moved), keep)
            sparse = np.where(mask, moved, np.float32(0))
            dual += np.float32(rho) * (dense - sparse)
        rho *= growth
    return mask
