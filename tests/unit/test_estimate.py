"""The cycle model against hand-made cases."""

import numpy as np
import pytest

from espalier.arch.config import load_config
from espalier.backend.compiler import compile_graph
from espalier.backend.synthetic import RandomNetwork
from espalier.estimate.cycles import ConvLoad, conv_cycles, load_cycles, pool_cycles, store_cycles
from espalier.estimate.overheads import Overheads

CONFIG = load_config("tiny")
FREE = Overheads(**dict.fromkeys(Overheads.__dataclass_fields__, 0))


def load_of(operators, tiles=1, windows=1, residuals=0, groups=1, filters=1):
    operators = np.asarray(operators, np.int64)[:, :, None, :]  # [passes][blocks][PEs] of one branch
    pes = operators.shape[3]
    drains = [[np.repeat(np.arange(pes), filters)]] * operators.shape[0]
    return ConvLoad(
        operators=operators,
        words=np.full(operators.shape[1], 8, np.int64),
        filters=np.full((1, pes), filters, np.int64),
        drains=drains,
        windows=windows,
        residuals=residuals,
        sharing=groups,
        tile_rows=np.arange(tiles),
        block_words=8,
    )


def test_one_block_costs_its_words_its_operators_and_its_drain():
    assert conv_cycles(load_of([[[20, 10]]]), CONFIG, overheads=FREE) == 8 + 20 + 2 * CONFIG.output_beats


def test_the_slowest_pe_decides_when_operators_dominate():
    load = load_of([[[50, 10]] * 10])
    assert conv_cycles(load, CONFIG, overheads=FREE) == 8 + 500 + 2 * CONFIG.output_beats


def test_window_words_decide_when_there_are_few_operators():
    load = load_of([[[1, 1]] * 10])
    assert conv_cycles(load, CONFIG, overheads=FREE) == 80 + 1 + 2 * CONFIG.output_beats


def test_reads_shared_by_tile_groups_slow_words_down():
    load = load_of([[[1, 1]] * 10], windows=80, residuals=80, groups=2)
    assert conv_cycles(load, CONFIG, overheads=FREE) == 320 + 1 + 2 * CONFIG.output_beats


def test_drift_is_bounded_by_the_ring():
    even = load_of([[[10, 10]] * 40])
    alternating = load_of([[[90, 10]] * 8 + [[10, 90]] * 8])
    assert conv_cycles(alternating, CONFIG, overheads=FREE) > 16 * 50 + 200
    assert conv_cycles(even, CONFIG, overheads=FREE) < 8 + 400 + 20


def test_full_accumulators_wait_for_the_output_stage():
    fits = load_of([[[2, 2]]] * 6, filters=2)
    full = load_of([[[2, 2]]] * 6, filters=8)
    assert conv_cycles(full, CONFIG, overheads=FREE) >= 6 * 16 * CONFIG.output_beats
    assert conv_cycles(fits, CONFIG, overheads=FREE) < conv_cycles(full, CONFIG, overheads=FREE)


def test_many_tiles_are_extrapolated_from_a_few():
    short = conv_cycles(load_of([[[30, 20]] * 3], tiles=12), CONFIG, overheads=FREE)
    long = conv_cycles(load_of([[[30, 20]] * 3], tiles=120), CONFIG, overheads=FREE)
    assert long == pytest.approx(10 * short, rel=0.02)


def test_rows_that_arrive_late_hold_the_layer_back():
    ready = np.array([0.0, 1000.0, 2000.0])
    load = load_of([[[30, 20]]], tiles=3)
    assert conv_cycles(load, CONFIG, ready, FREE) == 2000 + 8 + 30 + 2 * CONFIG.output_beats


def test_pool_is_bound_by_rows_columns_or_windows():
    assert pool_cycles(40, 9, 3, 1, FREE) == 40 * 9
    assert pool_cycles(40, 3, 4, 1, FREE) == 40 * 4
    assert pool_cycles(40, 1, 1, 2, FREE) == 40 * 2


def test_a_transfer_takes_a_cycle_per_beat():
    assert load_cycles(1000, CONFIG, FREE) == 1000
    assert load_cycles(1000, CONFIG) > 1000
    assert store_cycles(100, 4, FREE) == 400
    assert store_cycles(100, 1) > 100


def test_layers_add_up_to_less_than_the_network():
    net = RandomNetwork(8, 20, 20)
    net.conv(net.conv("input", 16), 8)
    metadata = compile_graph(net.graph(), CONFIG).metadata
    layers = sum(layer.predicted_cycles for layer in metadata.layers)
    assert layers < metadata.predicted_cycles < layers + 1000
