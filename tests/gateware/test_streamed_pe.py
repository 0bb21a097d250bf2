"""A PE whose operators come in batches while it runs, against the model of a PE that has them all."""

from __future__ import annotations

import dataclasses

import numpy as np
import pytest
from pe_streams import Shape, random_stream
from streamed_pe_bench import StreamedBench, chained

from espalier.arch.config import load_config
from espalier.arch.program import MOST_BATCHES_AHEAD
from espalier.backend.plan import Residence
from espalier_hw.pe import PE
from espalier_hw.pe_model import drain_model, model

CONFIG = dataclasses.replace(
    load_config("tiny"), streaming=True, branches=1, pes_per_branch=1, lut_branches=0, lut_pes=0
)
LAYERS = [
    Shape(filters=3, passes=2, tiles=2, blocks=3, last_words=3, run_length=20),
    Shape(tiles=0),
    Shape(filters=1, passes=1, tiles=5, blocks=3, block_words=16, last_words=16, run_length=40),
    Shape(filters=8, passes=2, tiles=1, blocks=2, last_words=1, run_length=12),
    Shape(filters=4, passes=2, tiles=2, blocks=3, run_length=2, skips=1),
    Shape(filters=1, passes=1, tiles=3, blocks=2, run_length=1),
    Shape(filters=5, passes=1, tiles=3, blocks=4, run_length=20, skips=0.5),
]
# Batches of each of these layers, 0: it is resident.
SPLITS = {
    "resident": (0, 0, 0, 0, 0, 0, 0),
    "loops": (1, 1, 1, 1, 1, 1, 1),
    "cut": (3, 2, 5, 4, 6, 2, 12),
    "mixed": (0, 1, 4, 2, 1, 3, 0),
    "one block each": (12, 3, 15, 4, 12, 6, 12),
}
SMALL = [("loops", 64), ("cut", 64), ("mixed", 96)]


def run(shapes, batches, depth, seed=1, **options):
    """Run layers, check their sums; returns the bench."""
    config = dataclasses.replace(CONFIG, stream_depth_words=depth)
    stream, windows = random_stream(config, shapes, np.random.default_rng(seed))
    resident, loads = chained(config, stream, [Residence(count) for count in batches])
    assert len(loads) == sum(batches)
    bench = StreamedBench(
        config, PE(config, config.dsp_pairs), stream, windows, resident, loads, seed=seed, **options
    ).run()
    sums = [row for layer in model(config, stream, windows) for row in layer]
    assert bench.drained == [drain_model(config, config.dsp_pairs, row) for row in sums] * bench.inferences
    return bench


@pytest.mark.parametrize("batch_gap", [0, 60])
@pytest.mark.parametrize(("split", "depth"), [*((name, 4096) for name in SPLITS), *SMALL])
def test_batches(split, depth, batch_gap):
    """A small memory is written over again and again."""
    bench = run(LAYERS, SPLITS[split], depth, inferences=2, batch_gap=batch_gap, pauses=20)
    waits = [batch.left for batch in bench.batches]
    assert waits == sorted(waits)
    assert all(number - left <= MOST_BATCHES_AHEAD for number, left in enumerate(waits))
    if depth < 4096:
        assert waits[-1] > len(waits) - MOST_BATCHES_AHEAD  # for room, not because of the counters


@pytest.mark.parametrize(("write_gap", "drain_gap"), [(0, 0), (0.8, 0), (0, 0.95)])
def test_a_memory_that_holds_one_batch(write_gap, drain_gap):
    """Every batch takes the place of the one before, which must have been read to its last word."""
    shapes = [Shape(filters=6, passes=2, tiles=2, blocks=4, run_length=45, shortest=40)] * 2
    bench = run(shapes, (16, 16), 64, write_gap=write_gap, drain_gap=drain_gap, batch_gap=30)
    assert [batch.left for batch in bench.batches][:4] == [0, 1, 2, 3]


@pytest.mark.parametrize("seed", range(6))
def test_random_splits(seed):
    rng = np.random.default_rng(seed)
    shapes, batches = [], []
    for _ in range(6):
        shape = Shape(
            filters=int(rng.integers(1, 9)), passes=int(rng.integers(1, 4)), tiles=int(rng.integers(0, 4)),
            blocks=int(rng.integers(1, 4)), last_words=int(rng.integers(1, 9)),
            run_length=int(rng.integers(1, 9)), skips=float(rng.choice([0, 0.5])),
        )  # fmt: skip
        shapes.append(shape)
        most = max(1, shape.passes * shape.tiles * shape.blocks)
        batches.append(int(rng.integers(0, most + 1)))
    run(shapes, batches, 400, seed, inferences=2, batch_gap=int(rng.choice([0, 100])), pauses=30)


def test_batches_in_time_cost_no_cycle():
    """Nothing stalls at the change from a batch to the next one."""
    shape = Shape(filters=2, passes=1, tiles=6, blocks=2, last_words=2, run_length=40, shortest=40)
    options = {"write_gap": 0, "drain_gap": 0, "batch_gap": 0}
    bench = run([shape], (6,), 4096, **options)
    first = bench.issue_cycles[0]
    assert bench.issue_cycles == list(range(first, first + len(bench.issue_cycles)))
