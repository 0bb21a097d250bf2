"""Random layers for one branch: descriptor, patterns, streams and table, and what they must compute."""

from __future__ import annotations

import dataclasses

import numpy as np
from layers import mask_outside, walk_tiles

from espalier.arch.feature_layout import tensor_pitch
from espalier.arch.fields import pack
from espalier.arch.operators import (
    ACCUMULATOR_DISTANCE,
    HEADER_FIELDS,
    OPERATOR_FIELDS,
    OPERATORS_PER_WORD,
    WORD_TAPS,
)
from espalier.arch.program import Opcode
from espalier_hw.requantise import Requantiser
from espalier_hw.residual import ResidualScale


@dataclasses.dataclass
class Layer:
    """One layer of one branch. `tensor` and `residual` are uint8[channels, rows, columns] of whole tiles."""

    common: dict
    branch: dict
    patterns: list
    tensor: np.ndarray
    residual: np.ndarray
    entries: list = dataclasses.field(default_factory=list)
    # operators[pe][pass][filter][block]: list of (weight, slot, tap)
    operators: list = dataclasses.field(default_factory=list)


def random_geometry(rng, config, stride, residual=0, tiles=None):
    """Descriptor with random geometry, patterns and tensors."""
    size = config.tile_size
    out_y, out_x = int(rng.integers(1, 4)), int(rng.integers(2, 4))
    in_y, in_x = stride * out_y, stride * out_x
    channels = int(rng.integers(1, 5))
    patterns = random_patterns(rng, size, stride)
    words = channels * len(patterns)
    block_words = int(rng.choice([8, 16]))
    common = {
        "opcode": Opcode.CONV,
        "layer": int(rng.integers(256)),
        "ordered": int(rng.integers(2)),
        "residual": residual,
        "stride": stride,
        "pattern_count": len(patterns),
        "passes": int(rng.integers(1, 3)),
        "blocks": -(-words // block_words),
        "block_words": block_words,
        "in_base": 3,
        "in_tiles_y": in_y,
        "in_tiles_x": in_x,
        "in_channels": channels + 2,
        "in_pitch": tensor_pitch(in_x),
        "in_pad": int(rng.integers(0, 256)),
        "out_base": 100,
        "out_tiles_y": out_y,
        "out_tiles_x": out_x,
        "out_channels": 64,
        "out_pitch": tensor_pitch(out_x),
        "out_pad": int(rng.integers(0, 256)),
        "out_zero": int(rng.integers(0, 256)),
        "out_rows_last": int(rng.integers(1, size + 1)),
        "out_columns_last": int(rng.integers(1, size + 1)),
        "residual_base": 200,
        "residual_pitch": tensor_pitch(out_x) + 1,
        "residual_zero": int(rng.integers(0, 256)),
        "residual_multiplier": int(rng.integers(0, 1 << 16)),
        "residual_shift": int(rng.integers(1, 4)),
    }
    # Some of the tiles, starting anywhere, as one of several branches would do it.
    start, total = int(rng.integers(0, 2)), out_y * out_x
    run, rest = int(rng.integers(1, 3)), int(rng.integers(0, 3))
    own = [tile for tile in range(start, total) if (tile - start) % (run + rest) < run]
    branch = {
        "tile_y0": start // out_x,
        "tile_x0": start % out_x,
        "tiles": len(own) if tiles is None else tiles,
        "run": run,
        "jump_y": (rest + 1) // out_x,
        "jump_x": (rest + 1) % out_x,
        "channels": channels,
        "group_mask": int(rng.integers(1, 512)),
    }
    tensor = rng.integers(0, 256, (channels + 2, in_y * size, in_x * size), dtype=np.uint8)
    added = rng.integers(0, 256, (64, out_y * size, out_x * size), dtype=np.uint8)
    return Layer(common, branch, patterns, tensor, added)


def random_patterns(rng, size, stride):
    """Patterns with taps inside the region; some reuse the window of the one before."""
    columns = range(2 - size, 2) if stride == 2 else range(-(size // 2), size - size // 2)
    patterns = []
    for index in range(int(rng.integers(1, 8))):
        row_offset = int(rng.integers(-size, 2 * size - stride * (size - 1)))
        fresh = {
            "tile_dy": int(rng.integers(-2, 3)),
            "tile_dx": int(rng.integers(-2, 3)),
            "row_offset": row_offset,
            "fetch": 1,
        }
        pattern = {**patterns[-1], "fetch": 0} if index and rng.random() < 0.4 else fresh
        usable = [k for k in range(WORD_TAPS) if pattern["row_offset"] + stride * (size - 1 + k) < 2 * size]
        pattern["column_offset"] = int(rng.choice(list(columns)))
        chosen = rng.choice(usable, rng.integers(1, len(usable) + 1), replace=False)
        pattern["taps"] = sum(1 << int(k) for k in chosen)
        patterns.append(pattern)
    return patterns


def add_filters(rng, config, layer, pes):
    """Random operators for every PE, and a table that adds up neighbouring filters as parts."""
    common, branch = layer.common, layer.branch
    words = branch["channels"] * common["pattern_count"]
    order = []
    for pe in range(pes):
        filters = int(rng.integers(1, config.accumulators + 1))
        shortest = ACCUMULATOR_DISTANCE if 1 < filters <= ACCUMULATOR_DISTANCE else 1
        layer.operators.append(
            [
                [random_runs(rng, layer, words, shortest) for _ in range(filters)]
                for _ in range(common["passes"])
            ]
        )
        order += [pe] * filters
    for _ in range(common["passes"]):
        rng.shuffle(order)
        first, bias = 1, 0
        for position, pe in enumerate(order):
            bias = int(rng.integers(-(1 << 15), 1 << 15)) if first else bias
            last = int(rng.random() < 0.6 or position == len(order) - 1)
            layer.entries.append(
                {
                    "multiplier": int(rng.integers(0, 1 << 17)),
                    "shift": int(rng.integers(1, 4)),
                    "bias": bias,
                    "out_channel": int(rng.integers(0, 64)),
                    "pe": pe,
                    "first": first,
                    "last": last,
                    "high_digit": int(rng.integers(0, 2)),
                    "end_of_pass": int(position == len(order) - 1),
                }
            )
            first = last
    branch["table_entries"] = len(layer.entries)


def random_runs(rng, layer, words, shortest):
    """The runs of one filter in one pass, one list of (weight, slot, tap) for each block."""
    block_words, patterns = layer.common["block_words"], layer.patterns
    runs = []
    for block in range(layer.common["blocks"]):
        run = []
        for word in range(block * block_words, min(words, (block + 1) * block_words)):
            mask = patterns[word % len(patterns)]["taps"]
            run += [
                (int(rng.integers(-7, 8)), word % block_words, tap)
                for tap in range(WORD_TAPS)
                if mask >> tap & 1 and rng.random() < 0.4
            ]
        rng.shuffle(run)
        runs.append([tuple(int(v) for v in op) for op in run] + [(0, 0, 0)] * max(0, shortest - len(run)))
    return runs


def stream_words(layer, pe):
    """Header and loop of one PE; a resting branch has the header alone."""
    common = layer.common
    if not layer.branch["tiles"]:
        return [pack(HEADER_FIELDS, {"blocks": common["blocks"]})]
    passes = layer.operators[pe]
    filters = len(passes[0])
    flat = [
        (*operator, int(index == len(runs[block]) - 1))
        for filters_of_pass in passes
        for block in range(layer.common["blocks"])
        for runs in filters_of_pass
        for index, operator in enumerate(runs[block])
    ]
    flat = [(0, 0, 0, 0)] * (-len(flat) % OPERATORS_PER_WORD) + flat
    packed = [
        pack(OPERATOR_FIELDS, dict(zip(("weight", "slot", "tap", "end_of_run"), operator, strict=True)))
        for operator in flat
    ]
    loop = [
        sum(value << 12 * lane for lane, value in enumerate(packed[at : at + OPERATORS_PER_WORD]))
        for at in range(0, len(packed), OPERATORS_PER_WORD)
    ]
    header = {
        "loop_words": len(loop),
        "filters": filters,
        "sets": common["passes"] * layer.branch["tiles"],
        "blocks": common["blocks"],
        "wide_blocks": int(common["block_words"] == 16),
    }
    return [pack(HEADER_FIELDS, header), *loop]


def pixel(layer, channel, y, x):
    """A pixel of the input, the pad value outside the map."""
    _, rows, columns = layer.tensor.shape
    inside = 0 <= y < rows and 0 <= x < columns
    return int(layer.tensor[channel, y, x]) if inside else layer.common["in_pad"]


def tap_pixels(layer, size, tile, channel, pattern, tap):
    """What the lanes of output tile (y, x) see: int64[T, T]."""
    stride = layer.common["stride"]
    top = (stride * tile[0] + pattern["tile_dy"]) * size + pattern["row_offset"]
    left = (stride * tile[1] + pattern["tile_dx"]) * size + pattern["column_offset"]
    return np.array(
        [
            [pixel(layer, channel, top + stride * (r + tap), left + stride * c) for c in range(size)]
            for r in range(size)
        ],
        dtype=np.int64,
    )


def expected_writes(config, layer):
    """((tile y, tile x, channel), uint8[T, T]) of all words in the order in which they are written."""
    size, branch, common = config.tile_size, layer.branch, layer.common
    channels = range(branch["channels"])
    writes = []
    for tile in walk_tiles(common, branch):
        views = {
            (channel, index, tap): tap_pixels(layer, size, tile, channel, pattern, tap)
            for channel in channels
            for index, pattern in enumerate(layer.patterns)
            for tap in range(WORD_TAPS)
            if pattern["taps"] >> tap & 1
        }
        writes += convolve(layer, tile, channels, views)
    return writes


def convolve(layer, tile, channels, views):
    """Writes of one tile of a convolution."""
    common, writes, total = layer.common, [], 0
    count = len(layer.patterns)
    turn = [iter(()) for _ in layer.operators]
    pass_index, fresh_pass = 0, True
    for entry in layer.entries:
        if fresh_pass:
            turn = [iter(passes[pass_index]) for passes in layer.operators]
        runs, lanes = next(turn[entry["pe"]]), 0
        for block, run in enumerate(runs):
            for weight, slot, tap in run:
                word = block * common["block_words"] + slot
                if weight:
                    lanes = lanes + weight * views[channels[word // count], word % count, tap]
        total = (0 if entry["first"] else total) + lanes * (16 if entry["high_digit"] else 1)
        if entry["last"]:
            writes.append(finish(layer, tile, entry["out_channel"], total, entry))
        fresh_pass = bool(entry["end_of_pass"])
        pass_index += fresh_pass
    return writes


def finish(layer, tile, channel, total, entry):
    """Requantise a tile of sums."""
    common = layer.common
    size = layer.residual.shape[1] // common["out_tiles_y"]
    scaled = np.zeros((size, size), dtype=np.int64)
    if common["residual"]:
        scaled = ResidualScale.model(
            residual_tile(layer, size, *tile, channel),
            common["residual_zero"],
            common["residual_multiplier"],
            common["residual_shift"],
        )
    total = total + np.zeros((size, size), dtype=np.int64)
    pixels = Requantiser.model(
        total, entry.get("bias", 0), entry["multiplier"], entry["shift"], scaled, common["out_zero"]
    )
    return (*tile, channel), mask_outside(pixels, *tile, common)


def residual_tile(layer, size, y, x, channel):
    """Tile (y, x) of the residual tensor."""
    return layer.residual[channel, y * size : (y + 1) * size, x * size : (x + 1) * size]
