"""A PE against its model: sums, order, releases, throughput."""

from __future__ import annotations

import dataclasses
import itertools

import numpy as np
import pytest
from dsp_slice import DspSlice
from pe_bench import Bench
from pe_streams import Shape, random_layer, random_stream

from espalier.arch.config import load_config
from espalier_hw import lanes
from espalier_hw.pe import PE
from espalier_hw.pe_model import decode_stream, drain_model, model

TINY = load_config("tiny")
NARROW = dataclasses.replace(TINY, pair_spacing_bits=16)


def run(shapes, config=TINY, seed=1, primitives="behavioural", dsp_pairs=TINY.dsp_pairs, **options):
    """Run layers on a PE, check everything that does not depend on time; returns the bench."""
    stream, windows = random_stream(config, shapes, np.random.default_rng(seed))
    pe = PE(config, dsp_pairs, primitives)
    bench = Bench(config, pe, stream, windows, seed, **options).run()
    sums = [row for layer in model(config, stream, windows) for row in layer]
    assert bench.drained == [drain_model(config, dsp_pairs, row) for row in sums] * bench.inferences
    blocks = [shape.block_words for shape in shapes for _ in range(shape.tiles * shape.passes * shape.blocks)]
    assert bench.release_sizes == blocks * bench.inferences
    assert bench.events["set_done"] == sum(s.tiles * s.passes for s in shapes) * bench.inferences
    _, loops = zip(*decode_stream(stream), strict=True)
    operators = sum(len(loop) * shape.tiles for loop, shape in zip(loops, shapes, strict=True))
    assert len(bench.issue_cycles) == operators * bench.inferences
    return bench


@pytest.mark.parametrize("skips", [0, 0.5, 1])
@pytest.mark.parametrize("filters", range(1, 9))
def test_filters(filters, skips):
    shape = Shape(filters=filters, passes=1 + filters % 3, tiles=3, blocks=3, last_words=5, skips=skips)
    run([shape], seed=filters)


SIZES = [
    Shape(filters=3, passes=3, tiles=2, blocks=2, last_words=3),
    Shape(tiles=0),
    Shape(filters=1, passes=1, tiles=5, blocks=3, block_words=16, last_words=16),
    Shape(filters=8, passes=2, tiles=2, blocks=1, last_words=1),
    Shape(filters=4, passes=2, tiles=2, blocks=3, run_length=2, skips=1),
    Shape(tiles=0),
    Shape(filters=1, passes=2, tiles=4, blocks=1, run_length=1),
    Shape(filters=2, passes=1, tiles=3, blocks=4, block_words=16, last_words=9, skips=1),
    Shape(filters=5, passes=1, tiles=3, blocks=4, run_length=3, skips=0.5),
]


@pytest.mark.parametrize(("write_gap", "drain_gap"), [(0, 0), (0.8, 0), (0, 0.95), (0.5, 0.5)])
def test_layers_back_to_back(write_gap, drain_gap):
    """Layers of all kinds, resting ones between them, with slow branches and slow output stages."""
    run(SIZES, seed=7, write_gap=write_gap, drain_gap=drain_gap)


@pytest.mark.parametrize("pauses", [0, 60])
def test_every_inference_starts_at_the_first_layer(pauses):
    run(SIZES[:4], seed=8, inferences=3, pauses=pauses)


@pytest.mark.parametrize("seed", range(8))
def test_random_layers(seed):
    """Layers of any size one after the other; blocks of 16 begin anywhere in the ring and wrap around."""
    rng = np.random.default_rng(100 + seed)
    config = dataclasses.replace(TINY, ring_words=int(rng.choice([16, 32, 64])), accumulators=8)
    shapes = []
    for _ in range(int(rng.integers(4, 9))):
        block_words = int(rng.choice([8, 16]))
        shapes.append(
            Shape(
                filters=int(rng.integers(1, 9)),
                passes=int(rng.integers(1, 4)),
                tiles=int(rng.choice([0, 1, 1, 2, 3])),
                blocks=int(rng.integers(1, 4)),
                block_words=block_words,
                last_words=int(rng.integers(1, block_words + 1)),
                run_length=int(rng.integers(1, 8)),
                skips=float(rng.choice([0, 0.2, 1])),
            )
        )
    gaps = {"write_gap": float(rng.choice([0, 0.5])), "drain_gap": float(rng.choice([0, 0.5, 0.95]))}
    run(shapes, config, seed=seed, inferences=2, pauses=int(rng.choice([0, 30])), **gaps)


@pytest.mark.parametrize("resting", [0, 1])
def test_gap_between_layers(resting):
    """With words and accumulators at hand, three cycles pass between the operators of two layers."""
    # One block a layer, so that the ring can take the words of a layer while the layer before runs.
    shape = Shape(filters=2, tiles=1, blocks=1, last_words=8, run_length=9, shortest=9)
    shapes = [shape, *[Shape(tiles=0)] * resting] * 6
    config = dataclasses.replace(TINY, ring_words=64, accumulators=32)
    cycles = run(shapes, config, write_gap=0, drain_gap=0).issue_cycles
    gaps = [after - before - 1 for before, after in itertools.pairwise(cycles)]
    assert [gap for gap in gaps if gap] == [3] * 5


def test_resting_first_and_last():
    run([Shape(tiles=0), Shape(tiles=0), Shape(filters=2), Shape(tiles=0)])


@pytest.mark.parametrize("skips", [0, 0.5, 1])
@pytest.mark.parametrize("filters", [1, 2, 3, 4, 5, 6])
def test_shortest_runs_keep_the_accumulator_distance(filters, skips):
    """Runs as short as the distance rule allows; two filters of two operators are the tightest case."""
    shape = Shape(filters=filters, passes=2, tiles=4, blocks=6, run_length=1, skips=skips)
    # Sets that wait for the output stage leave time to fill the ring, so that blocks then follow at once.
    config = dataclasses.replace(TINY, ring_words=64, accumulators=4 if filters <= 4 else 8)
    bench = run([shape], config, write_gap=0, drain_gap=0.99)
    longest = max(len(list(group)) for _, group in itertools.groupby(enumerate(bench.issue_cycles), gap_key))
    assert longest >= (5 if skips == 0 else 2) * filters


def gap_key(item):
    """Equal for operators that were issued in consecutive cycles."""
    index, cycle = item
    return cycle - index


@pytest.mark.parametrize("config", [TINY, NARROW], ids=["18", "16"])
def test_largest_sums(config):
    """All pixels 255 and weights at both ends: the packed fields reach their bounds."""
    run([Shape(filters=2, tiles=2, blocks=4, run_length=60, shortest=40, extreme=True)], config)


@pytest.mark.parametrize(
    "changes",
    [
        {"tile_size": 5, "dsp_pairs": 12},
        {"tile_size": 5, "dsp_pairs": 13},
        {"tile_size": 4, "dsp_pairs": 0, "ring_words": 16, "accumulators": 4},
        {"tile_size": 4, "dsp_pairs": 8, "ring_words": 64, "accumulators": 32},
        {"tile_size": 5, "dsp_pairs": 12, "pair_spacing_bits": 16},
    ],
)
def test_configurations(changes):
    """Odd tiles, whose last pair has one lane, and the ends of the ranges."""
    config = dataclasses.replace(TINY, stream_depth_words=256, **changes)
    shapes = [Shape(filters=4, blocks=3, last_words=2), Shape(filters=3, block_words=16)]
    run(shapes, config, dsp_pairs=config.dsp_pairs)


def test_stream_memory_may_be_full():
    """The end of the stream is the last word of the memory."""
    layer = Shape(filters=2, tiles=3, blocks=2, run_length=8)
    words, _ = random_layer(TINY, layer, np.random.default_rng(3))
    config = dataclasses.replace(TINY, stream_depth_words=64)
    # The resting headers take no random numbers, so that the layer is the one measured above.
    rest = [Shape(tiles=0)] * (63 - len(words))
    assert len(random_stream(config, [*rest, layer], np.random.default_rng(3))[0]) == 64
    run([*rest, layer], config, seed=3, inferences=2)


@pytest.mark.parametrize("filters", [1, 3])
@pytest.mark.parametrize(
    ("passes", "blocks", "run_length", "skips"), [(1, 1, 0, 0), (3, 4, 9, 0), (3, 4, 14, 0.7)]
)
def test_one_operator_a_cycle(filters, passes, blocks, run_length, skips):
    """Nothing stalls: no gap between operators over loop ends, blocks, sets and tiles."""
    # The first case is the smallest loop, one word; blocks last longer than their words take to arrive.
    length = run_length or 6 // filters
    shape = Shape(filters, passes, 12, blocks, last_words=2, run_length=length, shortest=length, skips=skips)
    config = dataclasses.replace(TINY, ring_words=64, accumulators=32)
    bench = run([shape], config, write_gap=0, drain_gap=0)
    first = bench.issue_cycles[0]
    assert bench.issue_cycles == list(range(first, first + len(bench.issue_cycles)))


def test_waits_are_counted():
    """A slow branch leaves the ring empty, a slow output stage leaves no accumulator."""
    shape = Shape(filters=4, tiles=6, blocks=1, last_words=2, run_length=5)
    starved = run([shape], write_gap=0.97, drain_gap=0).events
    assert starved["ring_empty"] > 100
    blocked = run([shape], write_gap=0, drain_gap=0.97).events
    assert blocked["accumulators_full"] > 100
    assert starved["operator_issued"] == blocked["operator_issued"]
    assert starved["null_issued"] == blocked["null_issued"] > 0


@pytest.mark.parametrize("config", [TINY, NARROW], ids=["18", "16"])
@pytest.mark.parametrize("dsp_pairs", [0, 6, 8])
def test_vendor_primitives(dsp_pairs, config, monkeypatch):
    """A whole PE on DSP slices and added products gives the same sums in the same cycles."""
    shapes = [
        Shape(filters=3, passes=2, blocks=3, last_words=5, skips=0.5),
        Shape(filters=1),
        Shape(filters=8),
    ]
    plain = run(shapes, config, dsp_pairs=dsp_pairs)
    monkeypatch.setattr(lanes, "Instance", DspSlice)
    vendor = run(shapes, config, dsp_pairs=dsp_pairs, primitives="xilinx")
    assert vendor.issue_cycles == plain.issue_cycles
    assert vendor.cycle == plain.cycle
