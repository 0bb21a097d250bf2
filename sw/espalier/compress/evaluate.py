"""Accuracy of the float and of the integer network on labelled pictures, paired."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass
from typing import Any

import numpy as np
import numpy.typing as npt

from espalier.compress.calibrate import quantise_maps
from espalier.ir.float_graph import FloatGraph
from espalier.ir.graph import Conv, IntegerGraph
from espalier.numerics.execute import run_output
from espalier.numerics.floating import float_run

_GROUP = 16


@dataclass(frozen=True)
class Accuracy:
    """Shares of pictures: classified rightly by either network, and classified alike by both."""

    pictures: int
    float_top1: float
    integer_top1: float
    agreement: float


def evaluate(
    graph: FloatGraph, integer: IntegerGraph, pictures: Iterable[npt.NDArray[Any]], labels: npt.NDArray[Any]
) -> Accuracy:
    """Run both networks on pictures float32[C, height, width] with known classes.

    The integer network runs bit for bit as on the hardware; of equal scores the first class wins.
    """
    tensor = integer.tensors[integer.input]
    float_classes: list[int] = []
    integer_classes: list[int] = []
    group: list[npt.NDArray[Any]] = []

    def flush() -> None:
        if group:
            batch = np.stack(group)
            scores = float_run(graph, batch)[graph.output].reshape(len(batch), -1)
            stored = run_output(integer, quantise_maps(batch, tensor)).reshape(len(batch), -1)
            float_classes.extend(scores.argmax(axis=1).tolist())
            integer_classes.extend(stored.argmax(axis=1).tolist())
            group.clear()

    for picture in pictures:
        group.append(picture)
        if len(group) == _GROUP:
            flush()
    flush()
    wanted, real, whole = np.asarray(labels), np.array(float_classes), np.array(integer_classes)
    return Accuracy(
        len(wanted),
        float((real == wanted).mean()),
        float((whole == wanted).mean()),
        float((real == whole).mean()),
    )


@dataclass(frozen=True)
class Size:
    """Weights of an integer network: non-zeros, operators they become, share of multiply-accumulates."""

    non_zeros: int
    operators: int
    mac_fraction: float
    density: dict[str, float]


def size_of(graph: IntegerGraph) -> Size:
    """Count what a compressed network costs."""
    non_zeros = operators = 0
    macs = dense = 0.0
    density = {}
    for node in graph.nodes:
        if isinstance(node, Conv):
            count = int(np.count_nonzero(node.weights))
            low = (node.weights.astype(np.int16) + 8) % 16 - 8
            high = (node.weights - low) // 16
            non_zeros += count
            operators += int(np.count_nonzero(low) + np.count_nonzero(high))
            density[node.name] = count / node.weights.size
            macs += density[node.name] * node.dense_macs
            dense += node.dense_macs
    return Size(non_zeros, operators, macs / max(dense, 1.0), density)
