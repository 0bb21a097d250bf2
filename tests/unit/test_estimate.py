"""The cycle model against hand-made cases."""

import numpy as np
import pytest

from espalier.arch.config import load_config
from espalier.backend.compiler import compile_graph
from espalier.backend.synthetic import RandomNetwork
from espalier.estimate.cycles import (
    ConvLoad,
    conv_cycles,
    least_cycles,
)
from espalier.estimate.overheads import Overheads

CONFIG = load_config("tiny")
FREE = Overheads(**dict.fromkeys(Overheads.__dataclass_fields__, 0))


def load_of(operators, tiles=1, windows=1, groups=1, filters=1):
    operators = np.asarray(operators, np.int64)[:, :, None, :]  # [passes][blocks][PEs] of one branch
    return ConvLoad(
        operators=operators,
        words=np.full(operators.shape[1], 8, np.int64),
        filters=np.full((1, operators.shape[3]), filters, np.int64),
        windows=windows,
        sharing=groups,
        tiles=tiles,
        block_words=8,
    )


def cycles_of(*loads, overheads=FREE):
    return conv_cycles(loads, CONFIG, overheads)


def test_one_block_costs_its_words_and_its_operators():
    assert cycles_of(load_of([[[20, 10]]])) == pytest.approx(8 + 20, abs=1)


def test_the_slowest_pe_decides_when_operators_dominate():
    assert cycles_of(load_of([[[50, 10]] * 10])) == pytest.approx(8 + 500, abs=1)


def test_window_words_decide_when_there_are_few_operators():
    assert cycles_of(load_of([[[1, 1]] * 10])) == pytest.approx(80 + 1, abs=1)


def test_reads_shared_by_tile_groups_slow_words_down():
    assert cycles_of(load_of([[[1, 1]] * 10], windows=160, groups=2)) == pytest.approx(320 + 1, abs=1)


def test_drift_is_bounded_by_the_ring():
    even, alternating = cycles_of(load_of([[[10, 10]] * 16]), load_of([[[90, 10]] * 8 + [[10, 90]] * 8]))
    assert alternating > 16 * 50 + 200
    assert even < 8 + 160 + 20


def test_full_accumulators_wait_for_the_output_stage():
    fits, full = cycles_of(load_of([[[2, 2]]] * 6, filters=2), load_of([[[2, 2]]] * 6, filters=8))
    assert full >= 5 * 16 * CONFIG.output_beats
    assert fits < full / 3


def test_a_layer_longer_than_the_accumulators_takes_at_least_its_drain():
    entries = 2 * 8 * 30
    assert cycles_of(load_of([[[1, 1]]], tiles=30, filters=8)) >= entries * CONFIG.output_beats


def test_many_tiles_are_extrapolated_from_a_few():
    short, long = cycles_of(load_of([[[30, 20]] * 3], tiles=60), load_of([[[30, 20]] * 3], tiles=600))
    assert long == pytest.approx(10 * short, rel=0.02)


def test_loads_do_not_touch_each_other():
    loads = [load_of([[[30, 20]] * 4], tiles=5), load_of([[[5, 9], [7, 1], [3, 3], [9, 1]]] * 2, filters=3)]
    loads.append(load_of([[[30, 10, 20, 9]] * 4], tiles=2, windows=40))
    together = cycles_of(*loads, overheads=Overheads())
    assert together.tolist() == [cycles_of(load, overheads=Overheads())[0] for load in loads]


def test_layers_add_up_to_less_than_the_network():
    net = RandomNetwork(8, 20, 20)
    net.conv(net.conv("input", 16), 8)
    metadata = compile_graph(net.graph(), CONFIG).metadata
    layers = sum(layer.predicted_cycles for layer in metadata.layers)
    assert layers < metadata.predicted_cycles < layers + 1000


@pytest.mark.parametrize("seed", range(12))
def test_no_load_takes_less_than_the_least_cycles(seed):
    rng = np.random.default_rng(seed)
    shape = rng.integers(1, 4), rng.integers(1, 20), rng.integers(1, 5)
    loads = [
        load_of(rng.poisson(mean, shape), int(rng.integers(1, 90)), int(rng.integers(1, 80)), 2, filters)
        for mean, filters in ((0.5, 2), (4, 7), (30, 3))
    ]
    least = np.array([least_cycles(load, CONFIG) for load in loads])
    assert (cycles_of(*loads) >= 0.99 * least).all()
    assert (cycles_of(*loads) <= 3 * least + 100).any()


def test_a_long_even_load_takes_the_least_cycles():
    for load in (load_of([[[20, 20]] * 9], tiles=200), load_of([[[1, 1]] * 9], tiles=200, windows=100)):
        assert cycles_of(load) == pytest.approx(least_cycles(load, CONFIG), rel=0.02)
