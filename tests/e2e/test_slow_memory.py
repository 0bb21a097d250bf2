"""Slow, bursty and stalling memories: the same results, and the cycles that the model predicts for them."""

from __future__ import annotations

import numpy as np
import pytest
from network_case import Case

from espalier.arch.config import load_config, with_ddr
from espalier.arch.ddr import NAMED
from espalier.arch.feature_layout import pack_tiles
from espalier.backend.compiler import compile_graph, lower_integer_graph
from espalier.backend.options import CompileOptions
from espalier.backend.synthetic import RandomNetwork
from espalier.numerics import run as reference
from espalier_sim.device import SimulatedAccelerator
from espalier_sim.variants import picture_for, resnet
from espalier_sim.verify import check_layers
from espalier_sim.workload import Workload

CONFIG = load_config("tiny")
ALLOWED = 0.02  # of the cycles

pytestmark = pytest.mark.xdist_group("tiny")


@pytest.mark.parametrize("name", NAMED)
def test_prediction_for_a_memory(tiny_simulator, name):
    graph = resnet((1, 1), 8, 64, density=0.6, classes=10)
    config = with_ddr(CONFIG, name, seed=2)
    image = compile_graph(graph, config)
    workload = Workload(graph.name, image, lower_integer_graph(graph, config))
    tensor = picture_for(workload.graph)
    with SimulatedAccelerator(config, built=tiny_simulator) as device:
        device.load(image)
        calls = [device.infer(workload.input_bytes(tensor, CONFIG)) for _ in range(2)]
    predicted = image.metadata.predicted_cycles
    for call in calls:
        check_layers(image, call, reference(workload.graph, tensor), CONFIG)
        assert abs(call.cycles - predicted) <= ALLOWED * predicted, (call.cycles, predicted)
    assert calls[0].cycles == calls[1].cycles
    if name != "default":
        assert predicted > 1.02 * compile_graph(graph, CONFIG).metadata.predicted_cycles


@pytest.mark.parametrize("name", NAMED)
def test_random_networks_with_stalls_too(tiny_simulator, name):
    config = with_ddr(CONFIG, name, seed=5)
    with SimulatedAccelerator(config, stalls=5, built=tiny_simulator) as device:
        for seed in range(8):
            case = Case(seed, CONFIG)
            device.load(case.image)
            case.check(device.infer(case.content))


def test_layers_leave_what_is_still_being_stored(tiny_simulator):
    """The pool writes over its input, which the memory takes more slowly than the pool unit works."""
    net = RandomNetwork(3, 40, 40)
    net.pool(net.conv("input", 24, (1, 1)), "max", (2, 2), 2)
    graph, picture = net.graph(), net.picture()
    config = with_ddr(CONFIG, "latency=400,beat=16")
    image = compile_graph(graph, config, CompileOptions(store_all=True))
    tensors = [image.metadata.tensors[node.output] for node in graph.nodes]
    assert len({info.base for info in tensors}) == 1
    expected = reference(lower_integer_graph(graph, config), picture)
    with SimulatedAccelerator(config, built=tiny_simulator) as device:
        device.load(image)
        inference = device.infer(pack_tiles(picture, CONFIG, image.input.pad).tobytes())
    check_layers(image, inference, expected, CONFIG)
    stored = np.frombuffer(inference.output, np.uint8)
    for info in tensors:
        found = info.stored(stored, CONFIG.tile_size)
        np.testing.assert_array_equal(found, expected[info.name], err_msg=info.name)
    predicted = image.metadata.predicted_cycles
    assert abs(inference.cycles - predicted) <= ALLOWED * predicted, (inference.cycles, predicted)
