"""CONTROL.RESET in the middle of layers: the bus stays legal, the next inference is as good as the first."""

from __future__ import annotations

import random

import pytest
from network_case import Case
from test_device import CONFIG, accelerator

from espalier.arch.registers import Control, Status

pytestmark = pytest.mark.xdist_group("tiny")


@pytest.mark.parametrize("seed", [0, 1, 3, 9, 14, 50])
def test_reset_in_the_middle_of_an_inference(tiny_simulator, seed):
    case, rng = Case(seed, CONFIG), random.Random(seed)
    with accelerator(tiny_simulator, stalls=seed) as device:
        simulator = device.simulator
        device.load(case.image)
        length = device.infer(case.content).cycles
        for _ in range(12):
            simulator.write("CONTROL", Control.START)
            simulator.idle(rng.randrange(length + 50))
            simulator.write("CONTROL", Control.RESET)
            for _ in range(1000):
                status = simulator.read("STATUS")
                if not status & Status.BUSY:
                    break
            assert status == 0
            simulator.check_protocol()
            device.load(case.image)
            case.check(device.infer(case.content))
