"""Accumulator to stored byte: section 1 of the architecture, exact and vectorised.

All steps run in float64. That is exact: an accumulator has 27 bits and a multiplier 17, so their product
has 44 and scaling it by a power of two loses nothing.
"""

from __future__ import annotations

from typing import Any

import numpy as np
import numpy.typing as npt

from espalier.arch.program import FIXED_POINT_BITS, FRACTION_BITS, MULTIPLIER_SHIFTS, RESIDUAL_SHIFTS
from espalier.ir.graph import Requantisation, Residual

# Elements worked on at a time, so that the float64 temporaries stay in the second level cache.
BLOCK_ELEMENTS = 1 << 15

FIXED_POINT_LOW = -(1 << (FIXED_POINT_BITS - 1))
FIXED_POINT_HIGH = (1 << (FIXED_POINT_BITS - 1)) - 1
_HALF = 1 << (FRACTION_BITS - 1)
_UNIT = 2.0**-FRACTION_BITS


def residual_table(residual: Residual, zero_point: int) -> npt.NDArray[np.float64]:
    """Tabulate the addend `v` for the 256 stored values of a residual tensor, float64[256] of integers."""
    stored = np.arange(256, dtype=np.int64)
    value = ((stored - zero_point) * residual.multiplier) >> RESIDUAL_SHIFTS[residual.shift]
    table: npt.NDArray[np.float64] = np.clip(value, FIXED_POINT_LOW, FIXED_POINT_HIGH).astype(np.float64)
    return table


def requantise(
    accumulator: npt.NDArray[Any],
    requantisation: Requantisation,
    zero_point: int,
    residual: npt.NDArray[np.uint8] | None = None,
    table: npt.NDArray[np.float64] | None = None,
) -> npt.NDArray[np.uint8]:
    """Turn accumulators [K, ...] (integers, in any dtype that holds them exactly) into stored bytes.

    The arrays of `requantisation` have K elements, or one that serves all channels. `residual` holds the
    stored bytes of the residual tensor in the same shape, `table` its `residual_table`.
    """
    channels = accumulator.shape[0]
    shifts = np.asarray(MULTIPLIER_SHIFTS, np.int64)[requantisation.shift]
    scale = np.ldexp(requantisation.multiplier.astype(np.float64), -shifts)
    offset = requantisation.bias.astype(np.float64) * scale
    scale = np.broadcast_to(scale, (channels,))[:, None]
    offset = np.broadcast_to(offset, (channels,))[:, None]
    flat = accumulator.reshape(channels, -1)
    output = np.empty(flat.shape, np.uint8)
    rows = max(1, BLOCK_ELEMENTS // max(1, flat.shape[1]))
    other = None if residual is None else residual.reshape(flat.shape)
    for first in range(0, channels, rows):
        block = slice(first, first + rows)
        value = np.multiply(flat[block], scale[block], dtype=np.float64)
        value += offset[block]
        if other is not None and table is not None:
            np.floor(value, out=value)
            np.clip(value, FIXED_POINT_LOW, FIXED_POINT_HIGH, out=value)
            value += table[other[block]]
        # Without a residual the saturation to 20 bits and the first floor change nothing: the byte
        # saturates long before, and a floor of a floor of a quotient is the floor of the quotient.
        value += _HALF
        value *= _UNIT
        if other is not None:
            np.floor(value, out=value)
        value += zero_point
        np.clip(value, 0, 255, out=value)
        output[block] = value  # the conversion drops the fraction: a floor, for values that are not negative
    return output.reshape(accumulator.shape)
