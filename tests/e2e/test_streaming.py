"""Networks whose operator streams come from DDR, on the tiny accelerator with small stream memories."""

from __future__ import annotations

import dataclasses
import random

import pytest
from network_case import Case

from espalier.arch.config import load_config, with_ddr
from espalier.arch.ddr import NAMED
from espalier.arch.registers import Control, ErrorCode, Status
from espalier.backend.decode import load_sections
from espalier.estimate.report import estimate_program
from espalier_sim.build import build_simulator
from espalier_sim.device import SimulatedAccelerator
from espalier_sim.verilog import accelerator_verilog

CONFIG = dataclasses.replace(load_config("tiny"), streaming=True, stream_depth_words=96)
STREAMED = (7, 8, 10, 13, 15)  # random networks that do not fit
ALLOWED = 0.02  # of the cycles, between prediction and hardware

pytestmark = pytest.mark.xdist_group("streaming")


@pytest.fixture(scope="module")
def simulator(tools):
    """The accelerator, compiled."""
    return build_simulator(accelerator_verilog(CONFIG), CONFIG)


def case_of(seed, config=CONFIG):
    """Network number `seed` and its batches."""
    case = Case(seed, config)
    return case, load_sections(case.image.program, config).batches


@pytest.mark.parametrize("seed", STREAMED)
def test_prediction(simulator, seed):
    case, batches = case_of(seed)
    assert len(batches) > 20
    with SimulatedAccelerator(CONFIG, built=simulator) as device:
        device.load(case.image)
        runs = [device.infer(case.content) for _ in range(2)]
    expected = estimate_program(case.image.program, CONFIG)
    for run in runs:
        case.check(run)
        assert run.read_bytes == expected.ddr_read_bytes
        assert run.write_bytes == expected.ddr_write_bytes
        assert abs(run.cycles - expected.cycles) <= ALLOWED * run.cycles
    assert runs[0].read_bytes == case.image.input_bytes + case.image.metadata.streamed_bytes
    assert runs[0].cycles == runs[1].cycles


@pytest.mark.parametrize("stalls", range(4))
def test_stalls_change_nothing_but_cycles(simulator, stalls):
    with SimulatedAccelerator(CONFIG, built=simulator, stalls=stalls) as device:
        for seed in (*STREAMED, *range(20 + 5 * stalls, 25 + 5 * stalls)):
            case, _ = case_of(seed)
            device.load(case.image)
            for _ in range(2):
                case.check(device.infer(case.content))


@pytest.mark.parametrize("memory", sorted(NAMED))
def test_slow_memories(simulator, memory):
    """Bit-exact, and in as many cycles as predicted."""
    config = with_ddr(CONFIG, memory, seed=3)
    case, _ = case_of(8, config)
    with SimulatedAccelerator(config, built=simulator) as device:
        device.load(case.image)
        run = device.infer(case.content)
    case.check(run)
    assert abs(run.cycles - case.image.metadata.predicted_cycles) <= ALLOWED * run.cycles


@pytest.mark.parametrize("seed", STREAMED[:3])
def test_reset_in_the_middle_of_batches(simulator, seed):
    (case, _), rng = case_of(seed), random.Random(seed)
    with SimulatedAccelerator(CONFIG, built=simulator, stalls=seed) as device:
        device.load(case.image)
        length = device.infer(case.content).cycles
        for _ in range(4):
            device.simulator.write("CONTROL", Control.START)
            device.simulator.idle(rng.randrange(length))
            device.simulator.write("CONTROL", Control.RESET)
            for _ in range(1000):
                status = device.simulator.read("STATUS")
                if not status & Status.BUSY:
                    break
            assert status == 0
            device.simulator.check_protocol()
            device.load(case.image)
            case.check(device.infer(case.content))


@pytest.mark.parametrize("which", [0, 1, 30])
def test_bus_error_in_a_batch(simulator, which):
    """Reported like that of any other read; the program stays and runs when the memory is well again."""
    case, batches = case_of(8)
    start = case.image.load_bytes + 16 * sum(batch.beats for batch in batches[:which])
    with SimulatedAccelerator(CONFIG, built=simulator, stalls=which) as device:
        device.load(case.image)
        case.check(device.infer(case.content))
        low, high = (device.simulator.read(f"PROGRAM_ADDRESS{part}") for part in ("", "_HIGH"))
        device.simulator.allow("faulty", (high << 32 | low) + start + 16 * 5, 16)
        device.simulator.write("CONTROL", Control.START)
        for _ in range(20_000):
            if not (status := device.simulator.read("STATUS")) & Status.BUSY:
                break
        assert status == Status.ERROR | Status.LOADED
        assert device.simulator.read("ERROR_CODE") == ErrorCode.AXI_READ
        device.simulator.check_protocol()
        device.simulator.allow("faulty", 0, 0)
        device.simulator.write("CONTROL", Control.CLEAR_INTERRUPT)
        case.check(device.infer(case.content))
