"""Runs of a PE's loop: how long each is, with the null operators that the hardware demands."""

from __future__ import annotations

import numpy as np

from espalier.arch.operators import ACCUMULATOR_DISTANCE, OPERATORS_PER_WORD
from espalier.backend.plan import CountArray, Deal, IntArray

# At least every second run has an operator, so that more filters than these always keep their distance.
_CLOSE_FILTERS = range(2, 2 * ACCUMULATOR_DISTANCE + 1)


def run_lengths(part_counts: CountArray, deal: Deal) -> CountArray:
    """Operators of every run, nulls included: int32[branches, PEs, passes, blocks, slots].

    part_counts: int32[P + 1, blocks], operators of every part in every block, the last row zero. Runs that
    are left out have length 0, and so have slots beyond the PE's filters. Nulls are added where an empty run
    cannot be left out, where a filter would come again too soon, and in the first run to fill the last word
    of the loop.
    """
    lengths = part_counts[deal.part_at]  # [..., slots, blocks]; index -1 is the row of zeros
    _fill_empty_runs(lengths, deal.filters)
    result: CountArray = np.ascontiguousarray(np.swapaxes(lengths, 3, 4))
    for filters in _CLOSE_FILTERS:
        close = deal.filters == filters
        if close.any():
            runs = result[close][..., :filters]
            result[close, ..., :filters] = _keep_distance(runs.reshape(-1), filters, runs[0, 0].size).reshape(
                runs.shape
            )
    total = result.sum(axis=(2, 3, 4))
    result[:, :, 0, 0, 0] += -total % OPERATORS_PER_WORD
    return result


def _fill_empty_runs(lengths: CountArray, filters: IntArray) -> None:
    """Put a null into every empty run that cannot be left out.

    lengths: int32[branches, PEs, passes, slots, blocks]. Runs cannot be left out in the first block of a set,
    of the first filter, and behind one that is left out. Of two filters the second is left out in the last
    block only: else the first would follow itself without a distance.
    """
    slots = lengths.shape[3]
    empty = lengths == 0
    null = empty.copy()
    for slot in range(1, slots):
        left_out = empty[:, :, :, slot - 1] ^ null[:, :, :, slot - 1]
        null[:, :, :, slot, 1:] &= left_out[..., 1:]
    if slots > 1:
        two = filters == 2
        null[two, :, 1, :-1] = empty[two, :, 1, :-1]
    null &= (np.arange(slots) < filters[:, :, None])[:, :, None, :, None]
    lengths += null


def _keep_distance(runs: CountArray, filters: int, per_set: int) -> CountArray:
    """Lengthen runs so that ACCUMULATOR_DISTANCE operators lie between two runs of a filter.

    runs: int32[sets * per_set], runs of sets of PEs with so many filters, changed in place. In the gap
    between run r of a filter and its next run lie filters - 1 runs; what they lack goes to the last of them
    that is not left out. (If the next run is left out, enough lies before the one after.) Gaps that overlap
    must be filled in order, but all gaps that are first, second ... of such a row can be at the same time.
    """
    until = np.cumsum(runs)
    near = (until[filters - 1 :] - until[: 1 - filters])[:-1] < ACCUMULATOR_DISTANCE
    gaps = np.flatnonzero(near & (runs[:-filters] > 0) & (runs[filters:] > 0))
    gaps = gaps[gaps % per_set < per_set - filters]
    apart = np.diff(gaps, prepend=-filters) >= filters - 1
    first = np.flatnonzero(apart)
    turn = np.arange(len(gaps)) - first[np.cumsum(apart) - 1]
    order = np.argsort(turn, kind="stable")
    for now in np.split(gaps[order], np.cumsum(np.bincount(turn))[:-1]) if len(gaps) else ():
        between = runs[now[:, None] + np.arange(filters - 1, 0, -1)]
        last = now + filters - 1 - (between > 0).argmax(axis=1)
        runs[last] += np.maximum(ACCUMULATOR_DISTANCE - between.sum(axis=1), 0).astype(np.int32)
    return runs
