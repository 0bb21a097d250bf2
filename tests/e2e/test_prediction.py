"""Predicted cycles against those that the simulated hardware counts, layer by layer."""

from __future__ import annotations

import pytest
from network_case import Case

from espalier.arch.config import load_config
from espalier.backend.compiler import compile_graph, lower_integer_graph
from espalier.backend.options import CompileOptions
from espalier_sim.deviations import LONG_LAYER
from espalier_sim.device import SimulatedAccelerator
from espalier_sim.variants import picture_for, resnet, vgg
from espalier_sim.workload import Workload

CONFIG = load_config("tiny")
ALLOWED = 0.01  # of the cycles

pytestmark = pytest.mark.xdist_group("tiny")


def check(image, inference):
    """Compare the total and all long layers; returns how many of these there are."""
    off = {"total": (image.metadata.predicted_cycles, inference.cycles)}
    for layer, counters in zip(image.metadata.layers, inference.counters, strict=True):
        if counters["cycles"] > LONG_LAYER:
            off[layer.name] = layer.predicted_cycles, counters["cycles"]
    for name, (predicted, counted) in off.items():
        # Nothing is said of a handful of cycles: the smallest networks take less than a hundred.
        assert abs(predicted - counted) <= max(ALLOWED * counted, 1), (name, predicted, counted)
    return len(off) - 1


@pytest.mark.parametrize("options", [{}, {"reorder": False}, {"overlap": False}], ids=str)
@pytest.mark.parametrize("shape", ["residual", "plain"])
def test_networks_with_many_layers(tiny_simulator, shape, options):
    graph = {
        "residual": lambda: resnet((2, 1), 8, 64, density=0.6, classes=10),
        "plain": lambda: vgg((8, 0, 12, 16, 0), 40, 0.3, 10),
    }[shape]()
    image = compile_graph(graph, CONFIG, CompileOptions(**options))
    workload = Workload(graph.name, image, lower_integer_graph(graph, CONFIG))
    content = workload.input_bytes(picture_for(workload.graph), CONFIG)
    with SimulatedAccelerator(CONFIG, built=tiny_simulator) as device:
        device.load(image)
        long_layers = check(image, device.infer(content))
    assert long_layers > 1


def test_random_networks(tiny_simulator):
    long_layers = 0
    with SimulatedAccelerator(CONFIG, built=tiny_simulator) as device:
        # In the last one a window waits for the last word of a pooling layer with another one behind it.
        for seed in [*range(30), 1166]:
            case = Case(seed, CONFIG)
            device.load(case.image)
            long_layers += check(case.image, device.infer(case.content))
    assert long_layers > 20
