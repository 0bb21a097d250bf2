"""A PE against its model: sums, order, releases, throughput."""

from __future__ import annotations

import dataclasses
import itertools

import numpy as np
import pytest
from dsp48e2 import Dsp48e2
from pe_bench import Bench
from pe_streams import Shape, random_layer

from espalier.arch.config import load_config
from espalier_hw import lanes
from espalier_hw.pe import PE
from espalier_hw.pe_model import drain_model, model

TINY = load_config("tiny")


def run(shapes, config=TINY, seed=1, primitives="behavioural", **options):
    """Run layers on a PE, check everything that does not depend on time; returns the bench."""
    rng = np.random.default_rng(seed)
    stream, layers = [], []
    for shape in shapes:
        words, layer = random_layer(config, shape, rng)
        stream += words
        layers.append(layer)
    filters = [shape.filters if shape.tiles else 0 for shape in shapes]
    bench = Bench(config, PE(config, primitives), stream, layers, filters, seed, **options).run()
    expected = [drain_model(config, row) for sums in model(config, stream, layers) for row in sums]
    assert bench.drained == expected * bench.inferences
    assert bench.events["release"] == sum(layer.sets * layer.blocks for layer in bench.layers)
    assert bench.events["set_done"] == sum(layer.sets for layer in bench.layers)
    return bench


@pytest.mark.parametrize("filters", range(1, 9))
def test_filters(filters):
    run([Shape(filters=filters, passes=1 + filters % 3, tiles=3, blocks=3, last_words=5)], seed=filters)


SIZES = [
    Shape(filters=3, passes=3, tiles=2, blocks=2, last_words=3),
    Shape(tiles=0),
    Shape(filters=1, passes=1, tiles=5, blocks=3, block_words=16, last_words=16),
    Shape(filters=8, passes=2, tiles=2, blocks=1, last_words=1),
    Shape(tiles=0),
    Shape(filters=1, passes=2, tiles=4, blocks=1, run_length=1),
    Shape(filters=2, passes=1, tiles=3, blocks=4, block_words=16, last_words=9),
]


@pytest.mark.parametrize(("write_gap", "drain_gap"), [(0, 0), (0.8, 0), (0, 0.95), (0.5, 0.5)])
def test_layers_back_to_back(write_gap, drain_gap):
    """Layers of all kinds, resting ones between them, with slow branches and slow output stages."""
    run(SIZES, seed=7, write_gap=write_gap, drain_gap=drain_gap)


def test_every_inference_starts_at_the_first_layer():
    run(SIZES[:4], seed=8, inferences=3)


def test_resting_first_and_last():
    run([Shape(tiles=0), Shape(tiles=0), Shape(filters=2), Shape(tiles=0)])


@pytest.mark.parametrize("filters", [1, 2, 3, 4])
def test_shortest_runs_keep_the_accumulator_distance(filters):
    """Runs as short as the distance rule allows; two filters of two operators are the tightest case."""
    shape = Shape(filters=filters, passes=2, tiles=4, blocks=6, run_length=1)
    # Sets that wait for the output stage leave time to fill the ring, so that blocks then follow at once.
    config = dataclasses.replace(TINY, ring_words=64, accumulators=4)
    bench = run([shape], config, write_gap=0, drain_gap=0.99)
    longest = max(len(list(group)) for _, group in itertools.groupby(enumerate(bench.issue_cycles), gap_key))
    assert longest >= 5 * filters


def gap_key(item):
    """Equal for operators that were issued in consecutive cycles."""
    index, cycle = item
    return cycle - index


def test_largest_sums():
    """All pixels 255 and weights at both ends: the packed fields reach their bounds."""
    run([Shape(filters=2, tiles=2, blocks=4, run_length=60, shortest=40, extreme=True)])


@pytest.mark.parametrize(
    "changes",
    [
        {"tile_size": 5, "dsp_pairs": 12},
        {"tile_size": 5, "dsp_pairs": 13},
        {"tile_size": 4, "dsp_pairs": 0, "ring_words": 16, "accumulators": 4},
        {"tile_size": 4, "dsp_pairs": 8, "ring_words": 64, "accumulators": 32},
    ],
)
def test_configurations(changes):
    """Odd tiles, whose last pair has one lane, and the ends of the ranges."""
    config = dataclasses.replace(TINY, stream_depth_words=256, **changes)
    run([Shape(filters=4, blocks=3, last_words=2), Shape(filters=3, block_words=16)], config)


def test_stream_memory_may_be_full():
    """The last loop ends at the last address of the memory."""
    layer = Shape(filters=2, tiles=3, blocks=2, run_length=8)
    words, _ = random_layer(TINY, layer, np.random.default_rng(3))
    config = dataclasses.replace(TINY, stream_depth_words=64)
    rest = [Shape(tiles=0)] * (64 - len(words))
    rng = np.random.default_rng(3)
    # The resting headers take no random numbers, so that the layer is the one measured above.
    assert sum(len(random_layer(config, shape, rng)[0]) for shape in [*rest, layer]) == 64
    run([*rest, layer], config, seed=3)


@pytest.mark.parametrize("filters", [1, 3])
@pytest.mark.parametrize(("passes", "blocks", "run_length"), [(1, 1, 0), (3, 4, 9)])
def test_one_operator_a_cycle(filters, passes, blocks, run_length):
    """Nothing stalls: no gap between operators over loop ends, blocks, sets and tiles."""
    # The first case is the smallest loop, one word; blocks last longer than their words take to arrive.
    length = run_length or 6 // filters
    shape = Shape(filters, passes, tiles=12, blocks=blocks, last_words=2, run_length=length, shortest=length)
    config = dataclasses.replace(TINY, ring_words=64, accumulators=32)
    bench = run([shape], config, write_gap=0, drain_gap=0)
    first = bench.issue_cycles[0]
    assert bench.issue_cycles == list(range(first, first + len(bench.issue_cycles)))


def test_waits_are_counted():
    """A slow branch leaves the ring empty, a slow output stage leaves no accumulator."""
    shape = Shape(filters=4, tiles=6, blocks=1, last_words=2, run_length=5)
    starved = run([shape], write_gap=0.95, drain_gap=0).events
    assert starved["ring_empty"] > 100
    blocked = run([shape], write_gap=0, drain_gap=0.97).events
    assert blocked["accumulators_full"] > 100
    assert starved["operator_issued"] == blocked["operator_issued"]
    assert starved["null_issued"] == blocked["null_issued"] > 0


def test_vendor_primitives(monkeypatch):
    """A whole PE on DSP slices and added products gives the same sums in the same cycles."""
    shapes = [Shape(filters=3, passes=2, blocks=3, last_words=5), Shape(filters=1), Shape(filters=8)]
    plain = run(shapes)
    monkeypatch.setattr(lanes, "Instance", Dsp48e2)
    vendor = run(shapes, primitives="xilinx")
    assert vendor.issue_cycles == plain.issue_cycles
    assert vendor.cycle == plain.cycle
