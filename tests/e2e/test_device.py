"""Networks on the simulated tiny accelerator, every layer against the integer model."""

from __future__ import annotations

import dataclasses
import os

import numpy as np
import pytest
from network_case import Case

from espalier.arch.config import load_config
from espalier.arch.registers import ErrorCode
from espalier.errors import ModelFileError, VerificationMismatch
from espalier_sim.device import SimulatedAccelerator
from espalier_sim.simulator import HardwareFault

CONFIG = load_config("tiny")
MANY = int(os.environ.get("ESPALIER_E2E_NETWORKS", "300"))

pytestmark = pytest.mark.xdist_group("tiny")


def accelerator(tiny_simulator, **options):
    return SimulatedAccelerator(CONFIG, built=tiny_simulator, **options)


@pytest.mark.parametrize("stalls", [None, 1])
def test_networks_one_after_the_other(tiny_simulator, stalls):
    with accelerator(tiny_simulator, stalls=stalls) as device:
        for seed in range(15):
            case = Case(seed, CONFIG)
            device.load(case.image)
            case.check(device.infer(case.content))


def test_calls_do_not_depend_on_each_other(tiny_simulator):
    case = Case(0, CONFIG)
    with accelerator(tiny_simulator) as device:
        device.load(case.image)
        first = device.infer(case.content)
        device.infer(bytes(255 - byte for byte in case.content))
        again = device.infer(case.content)
    assert (first.output, first.cycles, first.counters) == (again.output, again.cycles, again.counters)
    case.check(again)


def test_stalls_cost_cycles_and_change_nothing_else(tiny_simulator):
    case, runs = Case(2, CONFIG), []
    for stalls in (None, 3, 3, 4):
        with accelerator(tiny_simulator, stalls=stalls) as device:
            device.load(case.image)
            runs.append(device.infer(case.content))
    assert len({run.output for run in runs}) == 1
    assert runs[0].cycles < runs[1].cycles == runs[2].cycles != runs[3].cycles


def test_counters_agree_with_the_compiler(tiny_simulator):
    with accelerator(tiny_simulator) as device:
        for seed in range(8):
            case = Case(seed, CONFIG)
            device.load(case.image)
            run = device.infer(case.content)
            layers = case.image.metadata.layers
            # Layers overlap, so that only the sums over all of them agree.
            for name in ("operators", "null_operators"):
                assert sum(counters[name] for counters in run.counters) == sum(
                    getattr(layer, name) for layer in layers
                ), (seed, name)
            assert sum(counters["cycles"] for counters in run.counters) <= run.cycles
            assert run.read_bytes == case.image.input_bytes


def test_a_layer_can_be_read_back(tiny_simulator):
    case = Case(0, CONFIG)
    with accelerator(tiny_simulator) as device:
        device.load(case.image)
        run = device.infer(case.content)
        for layer in case.image.metadata.layers:
            assert np.array_equal(device.layer_output(run, layer.index), case.expected[layer.output])


def test_the_first_difference_is_named(tiny_simulator):
    case = Case(0, CONFIG)
    name = case.image.metadata.layers[0].output
    changed = case.expected[name].copy()
    channel, row, column = (size - 1 for size in changed.shape)
    changed[channel, row, column] ^= 0x55
    case.expected = {**case.expected, name: changed}
    with accelerator(tiny_simulator) as device:
        device.load(case.image)
        run = device.infer(case.content)
    value = int(changed[channel, row, column])
    place = rf"channel {channel}, pixel \({row}, {column}\)"
    message = rf"layer 0 .*differs in 1 .*{place}: hardware {value ^ 0x55}, model {value}"
    with pytest.raises(VerificationMismatch, match=message):
        case.check(run)


def test_images_of_other_hardware_are_refused(tiny_simulator):
    image = dataclasses.replace(Case(0, CONFIG).image, config_hash=1)
    with (
        accelerator(tiny_simulator) as device,
        pytest.raises(ModelFileError, match=r"for 'tiny' .* the hardware is 'tiny'"),
    ):
        device.load(image)


def test_memory_errors_are_reported(tiny_simulator):
    case = Case(0, CONFIG)
    with accelerator(tiny_simulator) as device:
        device.load(case.image)
        good = device.infer(case.content)
        device.simulator.allow("faulty", device.simulator.memory_base, device.simulator.memory_bytes)
        with pytest.raises(HardwareFault, match=f"error {ErrorCode.AXI_READ.name}"):
            device.infer(case.content)
        device.simulator.allow("faulty", 0, 0)
        device.load(case.image)
        assert device.infer(case.content).output == good.output


@pytest.mark.slow
@pytest.mark.parametrize("first", range(0, MANY, 25))
def test_many_networks(tiny_simulator, first):
    with accelerator(tiny_simulator, stalls=first if first % 2 else None) as device:
        for seed in range(1000 + first, 1000 + min(first + 25, MANY)):
            case = Case(seed, CONFIG)
            device.load(case.image)
            case.check(device.infer(case.content))
