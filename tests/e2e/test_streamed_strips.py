"""Feature maps in strips and operator streams from DDR at the same time, in RTL: both use the read port."""

from __future__ import annotations

import dataclasses

import pytest
from network_case import Case, tall

from espalier.arch.config import load_config, with_ddr
from espalier.backend.decode import load_sections
from espalier_sim.build import build_simulator
from espalier_sim.device import SimulatedAccelerator
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


@pytest.mark.parametrize("seed", BOTH)
def test_prediction(simulator, seed):
    case = Case(seed, CONFIG, tall)
    predicted = case.image.metadata.predicted_cycles
    assert load_sections(case.image.program, CONFIG).batches and case.image.scratch_bytes
    with SimulatedAccelerator(CONFIG, built=simulator) as device:
        device.load(case.image)
        for _ in range(2):
            assert abs(case.run(device) - predicted) <= ALLOWED * predicted


@pytest.mark.parametrize("stalls", range(2))
def test_stalls_change_nothing_but_cycles(simulator, stalls):
    with SimulatedAccelerator(CONFIG, built=simulator, stalls=stalls) as device:
        for seed in BOTH:
            case = Case(seed, CONFIG, tall)
            device.load(case.image)
            for _ in range(2):
                case.run(device)


@pytest.mark.parametrize("memory", ["latency=50-500,beat=2", "latency=500", "beat=4"])
def test_slow_memories(simulator, memory):
    config = with_ddr(CONFIG, memory, seed=3)
    case = Case(8, config, tall)
    with SimulatedAccelerator(config, built=simulator) as device:
        device.load(case.image)
        cycles = case.run(device)
    allowed = ALLOWED_VARYING if "-" in memory else ALLOWED
    assert abs(cycles - case.image.metadata.predicted_cycles) <= allowed * cycles
