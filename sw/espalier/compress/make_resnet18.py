"""Make the built-in model: a ResNet-18 for 224x224 pictures with the ten classes of CIFAR-10.

    python -m espalier.compress.make_resnet18 --data DIR --out DIR

DIR of the data holds models/resnet18_cifar10_224.pt (torchvision's names), cifar10/train/NN.webp and
cifar10/test1000.npz. Labels of training pictures are not used: the pictures only show what values occur.
"""

from __future__ import annotations

import argparse
import json
import sys
import time
from collections.abc import Callable
from dataclasses import asdict
from datetime import datetime, timezone
from pathlib import Path
from typing import Any

from espalier.compress import cifar
from espalier.compress.build import CompressOptions, LayerReport, compress
from espalier.compress.evaluate import evaluate, size_of
from espalier.compress.pytorch_resnet import load_state, resnet18
from espalier.errors import UserError
from espalier.ir.float_graph import FloatGraph
from espalier.ir.storage import save_graph

NAME = "resnet18"
PICTURES = 256  # calibration pictures
SIZE = 224
CHECKPOINT = "models/resnet18_cifar10_224.pt"
# Just under 20 % of the multiply-accumulates with about a million operators. The first layer is bound by its
# output stage, so a density of one half costs it hardly a cycle. The last stage is pruned hardest: its
# operators fill the stream memories, and what they leave lets the first two stages give every branch tiles
# of its own.
DENSITIES = {
    "conv1": 0.5,
    "layer1.0.conv1": 0.145,
    "layer1.0.conv2": 0.22,
    "layer1.1.conv1": 0.205,
    "layer1.1.conv2": 0.25,
    "layer2.0.conv1": 0.255,
    "layer2.0.downsample": 0.9,
    "layer2.0.conv2": 0.23,
    "layer2.1.conv1": 0.24,
    "layer2.1.conv2": 0.26,
    "layer3.0.conv1": 0.22,
    "layer3.0.downsample": 0.6,
    "layer3.0.conv2": 0.165,
    "layer3.1.conv1": 0.15,
    "layer3.1.conv2": 0.16,
    "layer4.0.conv1": 0.09,
    "layer4.0.downsample": 0.35,
    "layer4.0.conv2": 0.06,
    "layer4.1.conv1": 0.055,
    "layer4.1.conv2": 0.055,
    "fc": 0.65,
}
METHOD = (
    "layer by layer against the float network's outputs with quantised inputs: pruning mask by ADMM on the"
    " Gram matrix, masked least squares, rounding with error feedback on the support, coordinate descent,"
    " bias correction; no training"
)


def options_for(seed: int) -> CompressOptions:
    """How the built-in model is compressed."""
    return CompressOptions(bits=4, densities=DENSITIES, shrink=False, seed=seed)


def load_float(data: Path) -> FloatGraph:
    """Load the float network with everything that turns a picture into its input and its scores into names.

    Raises:
        UserError: the checkpoint is missing or PyTorch is not installed.

    """
    graph = resnet18(load_state(data / CHECKPOINT), SIZE)
    graph.metadata = {
        "mean": list(cifar.MEAN),
        "std": list(cifar.STD),
        "picture_size": [SIZE, SIZE],
        "space_to_depth": 1,
        "preprocessing": "cifar",
        "labels": list(cifar.LABELS),
    }
    return graph


def make(data: Path, out: Path, pictures: int, seed: int, say: Callable[[str], None]) -> dict[str, Any]:
    """Compress, evaluate and write resnet18.espalier and resnet18.json to `out`; returns the manifest.

    Raises:
        UserError: data are missing, PyTorch is not installed, or `out` cannot be written.

    """
    started = time.monotonic()
    graph = load_float(data)
    options = options_for(seed)

    def progress(name: str, done: int, total: int, report: LayerReport | None) -> None:
        seconds = time.monotonic() - started
        text = f"{seconds:5.0f} s  {done}/{total} {name}"
        if report is not None:
            text += f"  density {report.density:.1%}  error {report.pruning_error:.4f} -> {report.error:.4f}"
        say(text)

    chosen = cifar.training_pictures(data / "cifar10", pictures, seed)
    integer = compress(graph, (cifar.network_input(p, SIZE) for p in chosen), options, progress)
    out.mkdir(parents=True, exist_ok=True)
    save_graph(integer, out / f"{NAME}.espalier")
    tests, labels = cifar.test_pictures(data / "cifar10")
    accuracy = evaluate(graph, integer, (cifar.network_input(p, SIZE) for p in tests), labels)
    size = size_of(integer)
    manifest = {
        "name": NAME,
        "file": f"{NAME}.espalier",
        "topology": "ResNet-18 (ImageNet topology, 7x7/2 stem), 10 classes, 3x224x224 input",
        "source": "trained from scratch on CIFAR-10 pictures enlarged to 224x224, made for this project",
        "licence": "Apache-2.0",
        "test_set": "first 1,000 pictures of the CIFAR-10 test set, enlarged to 224x224",
        "accuracy": asdict(accuracy),
        "size": asdict(size),
        "weight_bits": {name: options.layer_bits.get(name, options.bits) for name in size.density},
        "activation_bits": 8,
        "method": METHOD,
        "calibration_pictures": pictures,
        "seed": seed,
        "date": datetime.now(timezone.utc).date().isoformat(),
    }
    (out / f"{NAME}.json").write_text(json.dumps(manifest, indent=2) + "\n", encoding="utf-8")
    say(
        f"{time.monotonic() - started:5.0f} s  float {accuracy.float_top1:.1%}, integer"
        f" {accuracy.integer_top1:.1%} of {accuracy.pictures} pictures"
    )
    return manifest


def main() -> None:
    """Command line."""
    parser = argparse.ArgumentParser(description="Make the built-in ResNet-18.")
    parser.add_argument("--data", type=Path, required=True, help="folder with models/ and cifar10/")
    parser.add_argument("--out", type=Path, required=True, help="folder for the model and its manifest")
    parser.add_argument("--pictures", type=int, default=PICTURES, help="calibration pictures")
    parser.add_argument("--seed", type=int, default=0, help="of the choice of pictures and pixels")
    arguments = parser.parse_args()

    def say(text: str) -> None:
        print(text, flush=True)

    try:
        make(arguments.data, arguments.out, arguments.pictures, arguments.seed, say)
    except UserError as error:
        sys.exit(f"error: {error}")


if __name__ == "__main__":
    main()
