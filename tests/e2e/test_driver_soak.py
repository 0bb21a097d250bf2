"""Many inferences in one process: models swapped, random pictures, stalls and host latencies."""

from __future__ import annotations

import asyncio
import random
from pathlib import Path

import numpy as np
import pytest
from driver_networks import CONFIG, classifier

from espalier.arch.config import load_config
from espalier.runtime import Accelerator, load_model
from espalier_sim.random_networks import random_network
from espalier_sim.rtl_device import SimulatedDevice

pytestmark = pytest.mark.xdist_group("tiny")
PER_MODEL = 50
PAGE = 4096


def resident():
    """Bytes of memory that this process has."""
    return int(Path("/proc/self/statm").read_text(encoding="utf-8").split()[1]) * PAGE


def outputs(accelerator, tensors, rng):
    """Run tensors in one of the ways there are."""
    way = rng.randrange(3)
    if way == 0:
        return [accelerator.run(tensor) for tensor in tensors]
    if way == 1:
        return list(accelerator.run_many(tensors))
    return [asyncio.run(accelerator.run_async(tensor)) for tensor in tensors]


def soak(device, models, count, rng):
    """Return the memory of the process after every model."""
    memory, done = [], 0
    references = [model.reference() for model in models]
    with Accelerator(models[0], device) as accelerator:
        while done < count:
            index = rng.randrange(len(models))
            device.simulator.seed_stalls(rng.choice([None, rng.randrange(1 << 30)]))
            device._host_latency = rng.choice([(0, 0), (5, 5), (0, 900)])
            accelerator._interrupt = rng.random() < 0.7
            accelerator.load(models[index])
            left = min(PER_MODEL, count - done)
            while left:
                tensors = [accelerator.random_tensor(rng.randrange(1 << 30)) for _ in range(min(left, 5))]
                for tensor, found in zip(tensors, outputs(accelerator, tensors, rng), strict=True):
                    assert np.array_equal(found, references[index](tensor)), (done, models[index].name)
                    done += 1
                left -= len(tensors)
            memory.append(resident())
    assert not device.heap.live and len(device.heap._free) == 1, "no buffer is left"
    return memory


def networks(count):
    """Classifiers and random networks."""
    models = [classifier(seed, filters=4 + seed) for seed in range(count)]
    return models + [load_model(random_network(seed)[0], "tiny") for seed in range(20, 20 + count)]


def test_a_hundred(tiny_simulator):
    with SimulatedDevice(CONFIG, stalls=1, built=tiny_simulator) as device:
        soak(device, networks(2), 100, random.Random(1))


@pytest.mark.slow
@pytest.mark.timeout(3600)
def test_a_thousand(tiny_simulator):
    with SimulatedDevice(CONFIG, stalls=2, built=tiny_simulator) as device:
        memory = soak(device, networks(4), 1000, random.Random(2))
    # Caches of the Python side fill in the beginning; after that it is flat.
    assert max(memory[10:]) - memory[9] < 16 << 20, memory


@pytest.mark.slow
@pytest.mark.timeout(3600)
@pytest.mark.xdist_group("zcu104")
def test_a_hundred_on_zcu104(tools):
    """Ten pictures ten times each through the built-in ResNet-18."""
    config = load_config("zcu104")
    with SimulatedDevice(config) as device, Accelerator("resnet18", device, target="zcu104") as own:
        tensors = [own.random_tensor(seed) for seed in range(10)]
        reference = own.model.reference()
        wanted = [reference(tensor) for tensor in tensors]
        for number, found in enumerate(own.run_many(tensors * 10)):
            assert np.array_equal(found, wanted[number % 10]), number
