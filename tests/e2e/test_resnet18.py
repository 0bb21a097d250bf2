"""The built-in ResNet-18 on the zcu104 preset: many pictures in one process, with and without stalls."""

from __future__ import annotations

import numpy as np
import pytest
from PIL import Image

from espalier.arch.config import load_config
from espalier.models.builtin import PICTURE
from espalier_sim.device import SimulatedAccelerator
from espalier_sim.verify import check_layers, check_output, output_tensor
from espalier_sim.workload import load_workload

PICTURES = 20
SEED = 20


def variants(folder):
    """Write different pictures: random crops of the built-in one, some of them mirrored or recoloured."""
    rng = np.random.default_rng(SEED)
    source = Image.open(PICTURE).convert("RGB")
    for index in range(PICTURES):
        side = int(rng.integers(80, min(source.size)))
        left, top = (int(rng.integers(0, size - side + 1)) for size in source.size)
        pixels = np.asarray(source.crop((left, top, left + side, top + side)))
        if index % 3 == 1:
            pixels = pixels[:, ::-1]
        if index % 3 == 2:
            pixels = 255 - pixels[..., ::-1]
        path = folder / f"{index:02d}.png"
        Image.fromarray(np.ascontiguousarray(pixels)).save(path)
        yield path


@pytest.mark.slow
@pytest.mark.xdist_group("zcu104")
@pytest.mark.timeout(3600)
@pytest.mark.parametrize("stalls", [None, 1])
def test_twenty_pictures(tmp_path, stalls):
    config = load_config("zcu104")
    workload = load_workload("resnet18", config)
    tensors = [workload.picture(path) for path in variants(tmp_path)]
    outputs, cycles = [], []
    with SimulatedAccelerator(config, stalls) as accelerator:
        accelerator.load(workload.image)
        for tensor in [*tensors, tensors[0]]:
            inference = accelerator.infer(workload.input_bytes(tensor, config))
            expected = workload.reference(tensor, config)
            assert check_layers(workload.image, inference, expected, config) == len(inference.counters)
            scores = output_tensor(workload.image, inference.output, config)
            check_output(workload.image, scores, expected[workload.image.metadata.output])
            outputs.append(scores)
            cycles.append(inference.cycles)
    assert len({scores.tobytes() for scores in outputs}) > PICTURES // 2, "the pictures must differ"
    assert np.array_equal(outputs[0], outputs[-1])
    if stalls is None:
        assert len(set(cycles)) == 1, "without stalls the cycles do not depend on the picture"
