"""Networks that do not fit the feature memory, in RTL: rings, strips in DDR, errors in the middle of it."""

from __future__ import annotations

import dataclasses
from contextlib import nullcontext

import pytest
from driver_networks import classifier_graph
from network_case import Case, tall

from espalier.arch.config import load_config
from espalier.backend.compiler import compile_graph
from espalier.errors import CapacityError
from espalier.runtime import Accelerator
from espalier.runtime.model import Model
from espalier_sim.build import build_simulator
from espalier_sim.device import SimulatedAccelerator
from espalier_sim.rtl_device import SimulatedDevice
from espalier_sim.simulator import HardwareFault
from espalier_sim.verify import check_output
from espalier_sim.verilog import accelerator_verilog

CONFIG = dataclasses.replace(
    load_config("tiny"),
    name="tiny-rings",
    feature_rings=1,
    feature_depth_words=128,
    feature_depth_rest_words=128,
    program_depth_words=4096,
)
ALLOWED = 0.02  # of the cycles of all networks together

pytestmark = pytest.mark.xdist_group("tiny_rings")


@pytest.fixture(scope="module")
def simulator(tools):
    """The accelerator with small banks, compiled."""
    return build_simulator(accelerator_verilog(CONFIG), CONFIG)


def random_cases(count):
    """The first networks that do not fit the banks but can be run."""
    seed = 0
    while count:
        try:
            case = Case(seed, CONFIG, tall)
        except CapacityError:
            case = None
        seed += 1
        if case is not None and case.image.scratch_bytes:
            count -= 1
            yield case


@pytest.mark.parametrize("stalls", [None, 3])
def test_random_networks(simulator, stalls):
    predicted = counted = 0
    with SimulatedAccelerator(CONFIG, stalls=stalls, built=simulator) as device:
        for case in random_cases(5):
            device.load(case.image)
            cycles = {case.run(device) for _ in range(2)}
            if stalls is None:
                assert len(cycles) == 1
            predicted += case.image.metadata.predicted_cycles
            counted += max(cycles)
    if stalls is None:
        assert abs(predicted - counted) <= ALLOWED * counted


@pytest.mark.parametrize("kind", ["rtl", "integer"])
def test_the_driver_gives_a_scratch_buffer(request, kind):
    """With Accelerator, networks with and without one in turn."""
    built = request.getfixturevalue("simulator") if kind == "rtl" else None
    graph = classifier_graph()
    large, small = next(random_cases(1)), Model(compile_graph(graph, CONFIG), CONFIG, graph)
    with SimulatedDevice(CONFIG, stalls=2, built=built) if built else nullcontext("integer") as device:
        with Accelerator(large.image, device) as accelerator:
            picture = large.expected[large.image.metadata.input]
            for _ in range(2):
                found = accelerator.run(picture)
                check_output(large.image, found, large.expected[large.image.metadata.output])
                accelerator.load(small)
                assert accelerator.self_test().passed
                accelerator.load(large.image)
        assert kind == "integer" or not device.heap.live


def test_an_error_in_the_scratch_buffer(simulator):
    """The accelerator says so in the middle of strips; the next call is as if nothing had been."""
    case = next(random_cases(1))
    with SimulatedAccelerator(CONFIG, stalls=1, built=simulator) as device:
        device.load(case.image)
        case.run(device)
        place = device.buffer("SCRATCH").address + case.image.scratch_bytes // 2
        device.simulator.allow("faulty", place, 64)
        with pytest.raises(HardwareFault, match="AXI_WRITE"):
            device.infer(case.content)
        device.simulator.allow("faulty", place, 0)
        device.load(case.image)  # the driver has reset the accelerator
        case.run(device)
