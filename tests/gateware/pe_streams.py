"""Random operator streams and window words for PE tests."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from espalier.arch.fields import pack
from espalier.arch.operators import (
    ACCUMULATOR_DISTANCE,
    HEADER_FIELDS,
    OPERATOR_BITS,
    OPERATOR_FIELDS,
    OPERATORS_PER_WORD,
)

END = pack(HEADER_FIELDS, {"end": 1})


@dataclass(frozen=True)
class Shape:
    """Size of one random layer; `run_length` is the longest run, `last_words` fill the last block.

    skips: probability that a run is left out where that is allowed.
    """

    filters: int = 3
    passes: int = 1
    tiles: int = 2
    blocks: int = 2
    block_words: int = 8
    last_words: int = 8
    run_length: int = 6
    shortest: int = 1
    skips: float = 0.0
    extreme: bool = False  # largest weights and pixels


def random_stream(config, shapes, rng):
    """Stream words of layers, the end included, and of each layer the windows uint8[sets, words, T+3, T]."""
    stream, windows = [], []
    for shape in shapes:
        words, layer = random_layer(config, shape, rng)
        stream += words
        windows.append(layer)
    return [*stream, END], windows


def random_layer(config, shape, rng):
    """One layer: its stream words (header first) and its windows; tiles = 0 makes it rest."""
    if shape.tiles == 0:
        return [pack(HEADER_FIELDS, {})], np.zeros((0, 1, config.word_rows, config.tile_size), np.uint8)
    operators = [op for _ in range(shape.passes) for op in _pass(shape, rng, config.max_weight_sum)]
    # Front padding belongs to the first run.
    padding = [_operator(0, 0, 0) for _ in range(-len(operators) % OPERATORS_PER_WORD)]
    operators = padding + operators
    words = []
    for start in range(0, len(operators), OPERATORS_PER_WORD):
        parts = operators[start : start + OPERATORS_PER_WORD]
        words.append(sum(pack(OPERATOR_FIELDS, op) << (OPERATOR_BITS * i) for i, op in enumerate(parts)))
    fields = {
        "loop_words": len(words),
        "filters": shape.filters,
        "sets": shape.tiles * shape.passes,
        "blocks": shape.blocks,
        "wide_blocks": int(shape.block_words == 16),
    }
    words_per_set = (shape.blocks - 1) * shape.block_words + shape.last_words
    size = (fields["sets"], words_per_set, config.word_rows, config.tile_size)
    windows = np.full(size, 255, np.uint8) if shape.extreme else rng.integers(0, 256, size, np.uint8)
    return [pack(HEADER_FIELDS, fields), *words], windows


def _operator(weight, slot, tap, end_of_run=0):
    return {"weight": int(weight), "slot": int(slot), "tap": int(tap), "end_of_run": end_of_run, "skip": 0}


def _pass(shape, rng, bound):
    """Operators of one pass, within the bound of the packed sums and the distance of the accumulators."""
    sums = np.zeros((shape.filters, 2), int)
    operators = []
    ends, latest = {}, 0  # of every filter's latest run: operators up to its end; filter of the latest run
    for block in range(shape.blocks):
        words = shape.last_words if block == shape.blocks - 1 else shape.block_words
        for index in range(shape.filters):
            # The first of two filters must not follow itself.
            allowed = block > 0 and index > 0 and (shape.filters > 2 or block == shape.blocks - 1)
            if allowed and not operators[-1]["skip"] and rng.random() < shape.skips:
                operators[-1]["skip"] = 1
                continue
            if index in ends and shape.filters > 1:
                lack = ACCUMULATOR_DISTANCE - 1 - (len(operators) - ends[index])
                operators[-1:-1] = [_operator(0, 0, 0) for _ in range(lack)]
                ends[latest] = len(operators)
            length = int(rng.integers(shape.shortest, max(shape.shortest, shape.run_length) + 1))
            for position in range(length):
                sign = int(rng.integers(2))
                weight = int(rng.choice([-7, 7])) if shape.extreme else int(rng.integers(-7, 8))
                sign = int(weight < 0)
                if rng.random() < 0.1 or sums[index, sign] + abs(weight) > bound:
                    weight = 0
                sums[index, sign] += abs(weight)
                operators.append(
                    _operator(weight, rng.integers(words), rng.integers(4), int(position == length - 1))
                )
            ends[index], latest = len(operators), index
    return operators


def word_value(word):
    """A window word uint8[T+3, T] as the integer the ring holds."""
    return int.from_bytes(word.tobytes(), "little")
