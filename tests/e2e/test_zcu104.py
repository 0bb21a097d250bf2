"""The full-size configuration: random networks, and ResNet-18 layer by layer."""

from __future__ import annotations

import pytest
from network_case import Case

from espalier.arch.config import load_config
from espalier_sim.build import build_simulator
from espalier_sim.device import SimulatedAccelerator
from espalier_sim.run import RunOptions, run_model
from espalier_sim.verilog import accelerator_verilog

CONFIG = load_config("zcu104")

pytestmark = [pytest.mark.slow, pytest.mark.xdist_group("zcu104"), pytest.mark.timeout(2400)]


@pytest.fixture(scope="module")
def simulator(tools):
    return build_simulator(accelerator_verilog(CONFIG), CONFIG)


@pytest.mark.parametrize("stalls", [None, 8])
def test_random_networks(simulator, stalls):
    with SimulatedAccelerator(CONFIG, stalls, built=simulator) as device:
        for seed in range(50):
            case = Case(seed, CONFIG)
            device.load(case.image)
            case.check(device.infer(case.content))


@pytest.mark.parametrize("stalls", [None, 2])
def test_resnet18_is_bit_exact(simulator, stalls):
    result = run_model(RunOptions("resnet18", stalls=stalls))
    assert result.bit_exact and result.layers_checked == len(result.layers)
    assert result.sparsity > 0.5
    assert abs(result.cycles - result.predicted_cycles) < 0.1 * result.predicted_cycles
