"""Rounding of weights to 1-8 bits: step per filter, error feedback on the support, coordinate descent."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
import numpy.typing as npt

from espalier.arch.operators import DIGIT_HIGH, DIGIT_LOW, MAX_WIDE_WEIGHT
from espalier.compress.patterns import Mask
from espalier.compress.prune import Matrix
from espalier.compress.refit import EXACT_WORK, row_work, supports
from espalier.errors import UserError

Real = npt.NDArray[np.float64]
Levels = npt.NDArray[np.float64]  # whole numbers, kept as floats for the matrix products

_BLOCK = 64  # weights whose errors are passed on together, by one matrix product
_FINE_BITS = 6  # from here on rounding errors are so small that coordinate descent alone makes up for them


@dataclass(frozen=True)
class Grid:
    """The whole numbers that a weight of so many bits may take, times one step per filter."""

    bits: int
    low: int
    high: int
    has_zero: bool = True

    def nearest(self, values: Real) -> Levels:
        """Round to the nearest level; values are in steps."""
        if not self.has_zero:
            return np.where(values >= 0, 1.0, -1.0)
        return np.clip(np.rint(values), self.low, self.high)


def grid_of(bits: int) -> Grid:
    """Levels of 1-8 bits: one bit is -1/+1, two bits are ternary, wide weights end where two digits do.

    Raises:
        UserError: bits outside 1..8.

    """
    if not 1 <= bits <= 8:
        raise UserError(f"weights of {bits} bits: choose from 1 to 8")
    if bits == 1:
        return Grid(1, -1, 1, has_zero=False)
    if bits == 4:
        return Grid(4, DIGIT_LOW, DIGIT_HIGH)
    high = min((1 << (bits - 1)) - 1, MAX_WIDE_WEIGHT)
    return Grid(bits, -high, high)


def search_steps(weights: Real, mask: Mask, importance: Real, grid: Grid, candidates: int = 48) -> Real:
    """Step per filter that rounds its weights with the least error weighted by `importance` (diag of H).

    Returns float64[K]; filters without weights get step 1.
    """
    largest = np.abs(weights).max(axis=1)
    if not grid.has_zero:
        total = (np.abs(weights) * mask * importance).sum(axis=1)
        steps = total / np.maximum((mask * importance).sum(axis=1), 1e-30)
        return np.where(largest > 0, steps, 1.0)
    best = np.where(largest > 0, largest / grid.high, 1.0)
    best_error = np.full(len(weights), np.inf)
    for factor in np.linspace(0.3, 1.05, candidates):
        steps = np.where(largest > 0, largest / grid.high * factor, 1.0)[:, None]
        error = (((grid.nearest(weights / steps) * steps - weights) ** 2) * mask * importance).sum(axis=1)
        better = error < best_error
        best[better], best_error[better] = steps[better, 0], error[better]
    return best


def round_with_feedback(weights: Real, block: Real, steps: Real, grid: Grid) -> Levels:
    """Round filters that share a support, one weight after the other, passing errors on (GPTQ).

    With H = L L^T the output error is |(w - q) L|^2, and column i of L only sees weights from i on: going
    from the last weight to the first, each takes over what the earlier roundings have left in its column.
    That is GPTQ's rule without its inverse. The inputs of most energy are rounded first.

    Args:
        weights: float64[K, m], the filters' weights on the support.
        block: float64[m, m], Gram matrix of the support, positive definite.
        steps: float64[K].
        grid: levels.

    """
    order = np.argsort(np.diag(block), kind="stable")
    lower = np.linalg.cholesky(block[np.ix_(order, order)])
    scaled = weights[:, order] / steps[:, None]
    levels = np.zeros_like(scaled)
    errors = np.zeros_like(scaled)
    left = np.zeros_like(scaled)  # errors @ lower, of the blocks done
    for end in range(len(order), 0, -_BLOCK):
        start = max(0, end - _BLOCK)
        for i in range(end - 1, start - 1, -1):
            push = left[:, i] + errors[:, i + 1 : end] @ lower[i + 1 : end, i]
            levels[:, i] = grid.nearest(scaled[:, i] + push / lower[i, i])
            errors[:, i] = scaled[:, i] - levels[:, i]
        left[:, :start] += errors[:, start:end] @ lower[start:end, :start]
    result = np.zeros_like(levels)
    result[:, order] = levels
    return result


def descend(
    levels: Levels, steps: Real, gram: Matrix, cross: Matrix, mask: Mask, grid: Grid, sweeps: int = 3
) -> tuple[Levels, Real]:
    """Coordinate descent over all filters at once; it never makes the output error larger.

    After each sweep every step is set to its least-squares value for the levels found.

    Returns:
        (levels float64[K, n], steps float64[K]).

    """
    levels, steps = levels.copy(), steps.copy()
    diagonal = np.diag(gram).astype(np.float64)
    members = [np.flatnonzero(mask[:, column]) for column in range(mask.shape[1])]
    for _ in range(sweeps):
        gradient = (levels * steps[:, None]).astype(np.float32) @ gram - cross
        for column, rows in enumerate(members):
            if rows.size == 0:
                continue
            here = levels[rows, column]
            wanted = here - gradient[rows, column] / (diagonal[column] * steps[rows])
            moved = grid.nearest(wanted) - here
            changed = np.flatnonzero(moved)
            if changed.size:
                selected = rows[changed]
                levels[selected, column] += moved[changed]
                delta = (moved[changed] * steps[selected]).astype(np.float32)
                gradient[selected] += delta[:, None] * gram[column][None, :]
        energy = ((levels.astype(np.float32) @ gram) * levels).sum(axis=1)
        fitted = (levels * cross).sum(axis=1) / np.maximum(energy, 1e-30)
        steps = np.where((energy > 0) & (fitted > 0), fitted, steps)
    return levels, steps


def quantise_weights(
    weights: Real, gram: Matrix, cross: Matrix, mask: Mask, bits: int, sweeps: int = 3
) -> tuple[npt.NDArray[np.int8], Real]:
    """Round a layer's masked weights [K, n] to `bits` bits with one step per filter.

    Returns:
        (levels int8[K, n], steps float64[K]).

    """
    grid = grid_of(bits)
    importance = np.diag(gram).astype(np.float64)[None, :]
    steps = search_steps(weights, mask, importance, grid)
    if bits >= _FINE_BITS and row_work(mask) > EXACT_WORK:
        levels = grid.nearest(weights / steps[:, None]) * mask
    else:
        levels = np.zeros(weights.shape)
        for rows, index in supports(mask):
            block = gram[np.ix_(index, index)].astype(np.float64)
            levels[np.ix_(rows, index)] = round_with_feedback(
                weights[np.ix_(rows, index)], block, steps[rows], grid
            )
    levels, steps = descend(levels, steps, gram, cross, mask, grid, sweeps)
    return levels.astype(np.int8), steps


def round_plainly(weights: Real, mask: Mask, bits: int) -> tuple[npt.NDArray[np.int8], Real]:
    """Round masked weights [K, n] to the nearest levels, with the step of least squared error per filter.

    Nothing is made up for: this is what the calibrated methods are measured against.

    Returns:
        (levels int8[K, n], steps float64[K]).

    """
    grid = grid_of(bits)
    kept = np.where(mask, weights, 0.0)
    steps = search_steps(kept, mask, np.ones((1, weights.shape[1])), grid)
    levels = grid.nearest(kept / steps[:, None]) * mask
    return levels.astype(np.int8), steps
