"""What counters of the hardware become: rows of layers, losses, tables."""

from __future__ import annotations

import dataclasses
import json
from types import SimpleNamespace

import pytest

from espalier.arch.config import load_config
from espalier.arch.registers import COUNTERS
from espalier.backend.image import LayerInfo
from espalier_sim.bench_losses import MEANINGS, STEPS, losses
from espalier_sim.deviations import Deviations, deviations
from espalier_sim.performance_page import table
from espalier_sim.result import LayerResult, RunResult, layer_results, worst_stall

CONFIG = load_config("tiny")


def layer(name, kind="conv", **counters):
    """Result of a layer whose compiled work is 100 operators on all lanes."""
    zero = {spec.name: 0 for spec in dataclasses.fields(LayerInfo)}
    info = LayerInfo(
        **zero | {"name": name, "kind": kind, "operators": 100, "effective_macs": 100 * CONFIG.lanes_per_pe}
    )
    counted = dict.fromkeys([name for name, _ in COUNTERS], 0) | counters
    return layer_results(SimpleNamespace(layers=[info]), [counted], CONFIG)[0]


def run(layers, cycles):
    values = dict.fromkeys([spec.name for spec in dataclasses.fields(RunResult)], 0)
    macs = sum(own.effective_macs for own in layers)
    own = {
        "layers": layers,
        "cycles": cycles,
        "pes": CONFIG.pes,
        "utilisation": macs / (CONFIG.lanes * cycles),
    }
    return RunResult(**values | own)


def test_a_row_with_the_work_of_other_layers_has_no_utilisation():
    own = layer("own", cycles=40, operators=103, null_operators=4)
    assert own.utilisation == pytest.approx(100 / (CONFIG.pes * 40))
    assert own.busy == pytest.approx(103 / (CONFIG.pes * 40))
    for operators in (80, 99, 120):
        assert layer("foreign", cycles=40, operators=operators).utilisation is None
    assert layer("nothing", "max", cycles=0).busy == 0.0


def test_losses_add_up_and_are_told_apart_by_place():
    rows = [
        layer("first", cycles=100, operators=110, ring_empty=20),
        layer("pool", "max", cycles=10, ring_empty=5, accumulators_full=7),
        layer("middle", cycles=100, operators=110, null_operators=15, ring_empty=10),
        layer("last", cycles=50, operators=120, ring_empty=40),
        layer("average", "global", cycles=10, ring_empty=25),
        layer("classifier", cycles=10, operators=5, ring_empty=25),
    ]
    found = losses(run(rows, cycles=300))
    pes = CONFIG.pes
    assert found["ideal"] == pytest.approx(600 / pes)
    assert found["lanes"] == pytest.approx((345 - 600) / pes)
    assert [found[name] for name in ("nulls", "words", "accumulators", "start")] == pytest.approx(
        [15 / pes, 15 / pes, 7 / pes, 20 / pes]
    )
    assert sum(found.values()) == pytest.approx(300)
    assert found.keys() == MEANINGS.keys() == dict(STEPS).keys()


def test_a_network_of_one_layer():
    found = losses(run([layer("only", cycles=90, operators=100, ring_empty=30)], cycles=100))
    assert found["start"] == pytest.approx(30 / CONFIG.pes) and found["words"] == 0.0
    assert sum(found.values()) == pytest.approx(100)


def test_deviations_are_those_of_long_layers_and_of_the_total():
    rows = [
        layer("short", cycles=500),
        layer("exact", cycles=1000),
        layer("early", cycles=2000),
        layer("late", "max", cycles=800),
    ]
    predicted = {"short": 100, "exact": 1000, "early": 1990, "late": 802}
    rows = [dataclasses.replace(own, predicted_cycles=predicted[own.name]) for own in rows]
    result = dataclasses.replace(run(rows, cycles=5000), predicted_cycles=4990)
    assert deviations(result) == Deviations(-0.002, 3, "early", -0.005)
    assert deviations(run(rows[:1], cycles=500)) == Deviations(-1.0, 0, "", 0.0)
    assert deviations(dataclasses.replace(result, layers=rows[1:2])) == Deviations(-0.002, 1, "", 0.0)


def test_results_survive_json():
    result = run([layer("one", cycles=40, operators=1, ring_full=3)], cycles=50)
    again = RunResult.from_json(json.loads(json.dumps(result.as_json())))
    assert again == result and isinstance(again.layers[0], LayerResult)
    assert worst_stall(again.layers[0]) == "ring_full 3" and worst_stall(layer("idle")) == "none"


def test_tables_have_as_many_rules_as_columns():
    assert table(["a", "b"], [[1, 2]]).splitlines() == ["| a | b |", "| --- | ---: |", "| 1 | 2 |"]
