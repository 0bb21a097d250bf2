"""The simulation itself on a stand-in for the accelerator: bus models, protocol checks, watchdog."""

from __future__ import annotations

import dataclasses

import numpy as np
import pytest
from stand_in import BREAK, BREAK_REGISTER, STAND_IN

from espalier.arch.config import load_config
from espalier.arch.ddr import Ddr
from espalier.arch.registers import Status
from espalier_sim.build import build_simulator
from espalier_sim.simulator import HardwareFault, Simulator

CONFIG = load_config("tiny")
QUICK = Ddr(20, 20)
COUNT = 4096
TARGET = 0x20000

pytestmark = pytest.mark.xdist_group("harness")


def start(seed=None, shift=0, ddr=QUICK, rule=None):
    """A simulator with the copy command prepared."""
    config = dataclasses.replace(CONFIG, ddr=ddr)
    simulator = Simulator(build_simulator({"espalier": STAND_IN}, CONFIG).library, config, 1 << 20)
    simulator.seed_stalls(seed)
    simulator.reset()
    source, target = simulator.memory_base + shift, simulator.memory_base + TARGET
    simulator.memory[shift : shift + COUNT] = np.random.default_rng(1).integers(0, 256, COUNT)
    simulator.allow("readable", source, COUNT)
    simulator.allow("writable", target, COUNT)
    for name, value in (("INPUT", source), ("OUTPUT", target)):
        simulator.write(f"{name}_ADDRESS", value & 0xFFFFFFFF)
        simulator.write(f"{name}_ADDRESS_HIGH", value >> 32)
    simulator.write("PROGRAM_BYTES", COUNT)
    simulator.write("INTERRUPT_ENABLE", 1)
    simulator.write(BREAK_REGISTER, BREAK.get(rule, 0))
    return simulator


def copy(simulator):
    simulator.write("CONTROL", 2)
    assert simulator.run(200_000, 5_000)


@pytest.mark.parametrize("seed", [None, 0, 1, 2, 3])
def test_data_arrives_with_and_without_stalls(seed):
    simulator = start(seed)
    simulator.start_trace()
    copy(simulator)
    simulator.check_protocol()
    source = simulator.memory[:COUNT]
    assert np.array_equal(simulator.memory[TARGET : TARGET + COUNT], 255 - source)
    trace = simulator.trace()
    assert np.array_equal(trace["data"].reshape(-1), source)
    assert trace["layer"].tolist() == [beat // 4 for beat in range(COUNT // 16)]
    simulator.close()


def test_equal_seeds_give_equal_runs():
    cycles = []
    for seed in (5, 5, 6, None):
        simulator = start(seed)
        copy(simulator)
        cycles.append(simulator.cycle)
        simulator.close()
    assert cycles[0] == cycles[1] != cycles[2]
    assert cycles[3] < min(cycles[:3])


def test_latency_is_seen():
    cycles = []
    for latency in (1, 101):
        simulator = start(ddr=Ddr(latency, latency))
        copy(simulator)
        cycles.append(simulator.cycle)
        simulator.close()
    assert cycles[1] - cycles[0] == 2 * 100 * (COUNT // 64)


@pytest.mark.parametrize(
    ("rule", "message"),
    [("LAST", "W: LAST is 1 on beat 3 of 4"), ("PAYLOAD", "W: payload changed"), ("VALID", "AR: VALID fell")],
)
def test_broken_rules_are_reported(rule, message):
    simulator = start(seed=3, rule=rule)
    copy(simulator)
    with pytest.raises(HardwareFault, match=message):
        simulator.check_protocol()
    simulator.check_protocol()  # reported once
    simulator.close()


def test_bursts_over_page_boundaries_are_reported():
    simulator = start(shift=16)
    copy(simulator)
    with pytest.raises(HardwareFault, match="crosses a 4 KiB boundary"):
        simulator.check_protocol()
    simulator.close()


@pytest.mark.parametrize(("kind", "channel"), [("readable", "AR"), ("writable", "AW")])
def test_accesses_outside_the_buffers_are_reported(kind, channel):
    simulator = start()
    place = simulator.memory_base + (TARGET if kind == "writable" else 0)
    simulator.allow(kind, place, COUNT - 64)
    copy(simulator)
    with pytest.raises(HardwareFault, match=f"1 violations.*\n.*{channel} .*outside the buffers"):
        simulator.check_protocol()
    simulator.close()


def test_faulty_memory_answers_with_an_error():
    simulator = start()
    simulator.allow("faulty", simulator.memory_base + 1024, 16)
    copy(simulator)
    assert simulator.read("STATUS") & Status.ERROR
    simulator.close()


def test_a_hang_is_described_instead_of_waited_for():
    simulator = start(rule="DONE")
    simulator.write("CONTROL", 2)
    with pytest.raises(HardwareFault, match=r"no progress for 2000 cycles: .*STATE 0x6.*AR valid 0"):
        simulator.run(10_000_000, 2000)
    simulator.close()
