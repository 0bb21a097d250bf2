"""A PE for the emulator: what its operators add up, and the rules that they have to keep."""

from __future__ import annotations

import numpy as np

from espalier.arch.config import HardwareConfig
from espalier.arch.operators import ACCUMULATOR_DISTANCE, DIGIT_HIGH
from espalier.backend.decode import Descriptor, OperatorStream
from espalier.backend.emulate_pool import Bytes, Fail, IntArray


def pe_sums(
    step: Descriptor,
    branch: dict[str, int],
    stream: OperatorStream,
    words: list[list[Bytes]],
    tiles: IntArray,
    config: HardwareConfig,
    fail: Fail,
) -> IntArray:
    """Accumulators of a PE: int64[passes, accumulators, tiles, T*T].

    words: uint8[channels, tiles, T*T] by pattern and tap; tiles: numbers of output tiles, of the branch.
    """
    fields = step.fields
    passes, blocks, patterns = fields["passes"], fields["blocks"], fields["pattern_count"]
    run, runs = stream.run[:-1], int(stream.run[-1])
    if stream.filters < 1 or runs != passes * blocks * stream.filters or not stream.end_of_run[-1]:
        fail(f"a PE has {runs} runs, expected {passes * blocks * stream.filters}")
    _check_skips(stream, blocks, fail)
    _check_distance(stream, passes, blocks, fail)
    which, block, slot = np.unravel_index(run, (passes, blocks, stream.filters))
    word = block * fields["block_words"] + stream.slot
    real = stream.weight != 0
    if (np.abs(stream.weight) > DIGIT_HIGH).any():
        fail("an operator's weight has more than three bits and a sign")
    if (word[real] >= branch["channels"] * patterns).any() or (stream.slot >= fields["block_words"]).any():
        fail("an operator names a word beyond its block")
    channel, pattern = np.divmod(word, patterns)
    sums = np.zeros((config.accumulators * passes, len(tiles), config.lanes_per_pe))
    for index in range(patterns):
        for tap in np.unique(stream.tap[real & (pattern == index)]):
            chosen = np.flatnonzero(real & (pattern == index) & (stream.tap == tap))
            matrix = np.zeros((len(sums), branch["channels"]))
            np.add.at(
                matrix,
                ((which * config.accumulators + slot)[chosen], channel[chosen]),
                stream.weight[chosen],
            )
            pixels = words[index][tap][: branch["channels"], tiles]
            flat = pixels.reshape(branch["channels"], -1).astype(np.float64)
            sums += (matrix @ flat).reshape(sums.shape)
    limit = 1 << (config.pair_spacing_bits - 1)
    if sums.max(initial=0) >= limit or sums.min(initial=0) < -limit:
        fail("a partial sum overflows")
    return sums.astype(np.int64).reshape(passes, config.accumulators, *sums.shape[1:])


def _check_skips(stream: OperatorStream, blocks: int, fail: Fail) -> None:
    """Only the end of a run leaves out a run: not of the first block of a set, and of the same block."""
    skipping = np.flatnonzero(stream.skip)
    if not stream.end_of_run[skipping].all():
        fail("an operator inside a run leaves out a run")
    block, slot = np.divmod(stream.run[skipping], stream.filters)
    if (block % blocks == 0).any():
        fail("a run of the first block of a set is left out")
    if (slot + 1 == stream.filters).any():
        fail("the first run of a block is left out")


def _check_distance(stream: OperatorStream, passes: int, blocks: int, fail: Fail) -> None:
    """Operators between the runs of one filter, see ACCUMULATOR_DISTANCE."""
    if stream.filters == 1:
        return
    ends = np.flatnonzero(stream.end_of_run)
    starts = np.concatenate(([0], ends[:-1] + 1))
    block, slot = np.divmod(stream.run[ends], stream.filters)
    accumulator = block // blocks * stream.filters + slot
    order = np.argsort(accumulator, kind="stable")
    between = starts[order][1:] - ends[order][:-1] - 1
    same = np.diff(accumulator[order]) == 0
    if (between[same] < ACCUMULATOR_DISTANCE).any():
        fail("two runs of a filter are too close")
