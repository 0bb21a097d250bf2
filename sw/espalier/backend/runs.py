"""Runs of a PE's loop: how long each is, with the null operators that the hardware demands."""

from __future__ import annotations

import numpy as np

from espalier.arch.operators import ACCUMULATOR_DISTANCE, OPERATORS_PER_WORD
from espalier.backend.plan import CountArray, Deal


def run_lengths(part_counts: CountArray, deal: Deal) -> CountArray:
    """Operators of every run, nulls included: int32[branches, PEs, passes, blocks, slots].

    part_counts: int32[P + 1, blocks], operators of every part in every block, the last row zero. Slots
    beyond the PE's filters have length 0. Nulls are added where a run is empty, where a filter would come
    again too soon, and in the first run to fill the last word of the loop.
    """
    lengths = np.swapaxes(part_counts[deal.part_at], 3, 4)  # index -1 is the row of zeros
    used = np.arange(lengths.shape[4]) < deal.filters[:, :, None, None, None]
    lengths = np.where(used, np.maximum(lengths, 1), 0).astype(np.int32)
    for filters in range(2, ACCUMULATOR_DISTANCE + 1):
        close = deal.filters == filters
        if close.any():
            lengths[close] = _keep_distance(lengths[close], filters)
    total = lengths.sum(axis=(2, 3, 4))
    lengths[:, :, 0, 0, 0] += -total % OPERATORS_PER_WORD
    return lengths


def _keep_distance(lengths: CountArray, filters: int) -> CountArray:
    """Lengthen runs so that ACCUMULATOR_DISTANCE operators lie between two runs of a filter.

    lengths: int32[PEs, passes, blocks, slots]. Between run r of a filter and its next run lie filters - 1
    runs; what they lack goes to the last of them.
    """
    shape = lengths[..., :filters].shape
    runs = lengths[..., :filters].reshape(*shape[:2], -1).copy()
    for last in range(filters - 1, runs.shape[2] - 1):
        between = runs[:, :, last - filters + 2 : last + 1].sum(axis=2)
        runs[:, :, last] += np.maximum(ACCUMULATOR_DISTANCE - between, 0)
    result = lengths.copy()
    result[..., :filters] = runs.reshape(shape)
    return result
