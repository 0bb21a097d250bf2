"""Networks that do not fit the feature memory, in RTL: rings, strips in DDR, errors in the middle of it."""

from __future__ import annotations

import dataclasses
from contextlib import nullcontext

import pytest
from driver_networks import classifier_graph

from espalier import numerics
from espalier.arch.config import load_config
from espalier.arch.feature_layout import pack_tiles
from espalier.backend.compiler import compile_graph, lower_integer_graph
from espalier.backend.synthetic import tall_network
from espalier.errors import CapacityError
from espalier.estimate.report import estimate_program
from espalier.passes.space_to_depth import rearrange_picture
from espalier.runtime import Accelerator
from espalier.runtime.model import Model
from espalier_sim.build import build_simulator
from espalier_sim.device import SimulatedAccelerator
from espalier_sim.rtl_device import SimulatedDevice
from espalier_sim.simulator import HardwareFault
from espalier_sim.verify import check_layers, check_output, output_tensor
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


class Run:
    """A network, compiled, with its picture and what must come out."""

    def __init__(self, net):
        graph, picture = net.graph(), net.picture()
        self.image = compile_graph(graph, CONFIG)
        factor = self.image.metadata.preprocessing.get("space_to_depth", 1)
        picture = rearrange_picture(picture, factor, graph.tensors["input"].zero_point)
        self.expected = numerics.run(lower_integer_graph(graph, CONFIG), picture)
        self.content = pack_tiles(picture, CONFIG, self.image.input.pad).tobytes()

    def check(self, device):
        """Run it once; returns its cycles."""
        inference = device.infer(self.content)
        check_layers(self.image, inference, self.expected, CONFIG)
        found = output_tensor(self.image, inference.output, CONFIG)
        check_output(self.image, found, self.expected[self.image.metadata.output])
        estimate = estimate_program(self.image.program, CONFIG)
        assert inference.read_bytes == estimate.ddr_read_bytes
        assert inference.write_bytes == estimate.ddr_write_bytes
        return inference.cycles


def random_runs(count):
    """The first networks that do not fit the banks but can be run."""
    seed = 0
    while count:
        try:
            run = Run(tall_network(seed))
        except CapacityError:
            run = None
        seed += 1
        if run is not None and run.image.scratch_bytes:
            count -= 1
            yield run


@pytest.mark.parametrize("stalls", [None, 3])
def test_random_networks(simulator, stalls):
    predicted = counted = 0
    with SimulatedAccelerator(CONFIG, stalls=stalls, built=simulator) as device:
        for run in random_runs(5):
            device.load(run.image)
            cycles = {run.check(device) for _ in range(2)}
            if stalls is None:
                assert len(cycles) == 1
            predicted += run.image.metadata.predicted_cycles
            counted += max(cycles)
    if stalls is None:
        assert abs(predicted - counted) <= ALLOWED * counted


@pytest.mark.parametrize("kind", ["rtl", "integer"])
def test_the_driver_gives_a_scratch_buffer(request, kind):
    """With Accelerator, networks with and without one in turn."""
    built = request.getfixturevalue("simulator") if kind == "rtl" else None
    graph = classifier_graph()
    large, small = next(random_runs(1)), Model(compile_graph(graph, CONFIG), CONFIG, graph)
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
    run = next(random_runs(1))
    with SimulatedAccelerator(CONFIG, stalls=1, built=simulator) as device:
        device.load(run.image)
        run.check(device)
        place = device.buffer("SCRATCH").address + run.image.scratch_bytes // 2
        device.simulator.allow("faulty", place, 64)
        with pytest.raises(HardwareFault, match="AXI_WRITE"):
            device.infer(run.content)
        device.simulator.allow("faulty", place, 0)
        device.load(run.image)  # the driver has reset the accelerator
        run.check(device)
