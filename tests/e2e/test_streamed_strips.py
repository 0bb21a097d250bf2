"""Feature maps in strips and operator streams from DDR at the same time, in RTL: both use the read port."""

from __future__ import annotations

import dataclasses

import pytest

from espalier import numerics
from espalier.arch.config import load_config, with_ddr
from espalier.arch.feature_layout import pack_tiles
from espalier.backend.compiler import compile_graph, lower_integer_graph
from espalier.backend.decode import load_sections
from espalier.backend.synthetic import tall_network
from espalier.estimate.report import estimate_program
from espalier.passes.space_to_depth import rearrange_picture
from espalier_sim.build import build_simulator
from espalier_sim.device import SimulatedAccelerator
from espalier_sim.verify import check_layers, check_output, output_tensor
from espalier_sim.verilog import accelerator_verilog

CONFIG = dataclasses.replace(
    load_config("tiny"),
    name="tiny-both",
    streaming=True,
    stream_depth_words=96,
    feature_rings=1,
    feature_depth_words=128,
    feature_depth_rest_words=128,
    program_depth_words=4096,
)
BOTH = (0, 8, 9)  # random networks that need both; the first cuts layers in strips into parts
ALLOWED, ALLOWED_VARYING = 0.02, 0.05  # of the cycles; with a latency that is drawn for every burst

pytestmark = pytest.mark.xdist_group("streamed_strips")


@pytest.fixture(scope="module")
def simulator(tools):
    """The accelerator, compiled."""
    return build_simulator(accelerator_verilog(CONFIG), CONFIG)


class Run:
    """A network, compiled, with its picture and what must come out."""

    def __init__(self, seed, config=CONFIG):
        net = tall_network(seed)
        graph, picture = net.graph(), net.picture()
        self.image = compile_graph(graph, config)
        self.batches = load_sections(self.image.program, config).batches
        factor = self.image.metadata.preprocessing.get("space_to_depth", 1)
        picture = rearrange_picture(picture, factor, graph.tensors["input"].zero_point)
        self.expected = numerics.run(lower_integer_graph(graph, CONFIG), picture)
        self.content = pack_tiles(picture, CONFIG, self.image.input.pad).tobytes()
        self.estimate = estimate_program(self.image.program, config)

    def check(self, device):
        """Run it once; returns its cycles."""
        inference = device.infer(self.content)
        check_layers(self.image, inference, self.expected, CONFIG)
        found = output_tensor(self.image, inference.output, CONFIG)
        check_output(self.image, found, self.expected[self.image.metadata.output])
        assert inference.read_bytes == self.estimate.ddr_read_bytes
        assert inference.write_bytes == self.estimate.ddr_write_bytes
        return inference.cycles


@pytest.mark.parametrize("seed", BOTH)
def test_prediction(simulator, seed):
    run = Run(seed)
    assert run.batches and run.image.scratch_bytes
    with SimulatedAccelerator(CONFIG, built=simulator) as device:
        device.load(run.image)
        for _ in range(2):
            assert abs(run.check(device) - run.estimate.cycles) <= ALLOWED * run.estimate.cycles


@pytest.mark.parametrize("stalls", range(2))
def test_stalls_change_nothing_but_cycles(simulator, stalls):
    with SimulatedAccelerator(CONFIG, built=simulator, stalls=stalls) as device:
        for seed in BOTH:
            run = Run(seed)
            device.load(run.image)
            for _ in range(2):
                run.check(device)


@pytest.mark.parametrize("memory", ["latency=50-500,beat=2", "latency=500", "beat=4"])
def test_slow_memories(simulator, memory):
    config = with_ddr(CONFIG, memory, seed=3)
    run = Run(8, config)
    with SimulatedAccelerator(config, built=simulator) as device:
        device.load(run.image)
        cycles = run.check(device)
    allowed = ALLOWED_VARYING if "-" in memory else ALLOWED
    assert abs(cycles - run.estimate.cycles) <= allowed * cycles
