"""Runs the float and the integer network over a set of pictures, in memory that does not grow with it."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import numpy as np
import numpy.typing as npt

from espalier.errors import PictureError
from espalier.evaluation.fidelity import FidelityMeter, LayerFidelity
from espalier.evaluation.pictures import PictureSet
from espalier.evaluation.scores import Paired, in_top, paired
from espalier.ir.float_graph import FloatGraph
from espalier.ir.graph import IntegerGraph
from espalier.numerics.execute import Executor
from espalier.numerics.floating import float_run
from espalier.runtime.preprocess import Preprocessing

Bytes = npt.NDArray[np.uint8]
Say = Callable[[int, int], None]


@dataclass(frozen=True)
class Evaluation:
    """What was found.

    pictures, skipped: how many ran, and could not be read. top1, top5: share right of "float" and "integer",
    as far as they ran and classes are known. difference1, difference5: integer minus float, paired.
    agreement: share of pictures of the same first class. layers: on the first `layer_pictures` pictures.
    """

    pictures: int
    skipped: int
    top1: dict[str, float]
    top5: dict[str, float]
    difference1: Paired | None
    difference5: Paired | None
    agreement: float | None
    layers: list[LayerFidelity]
    layer_pictures: int


def evaluate_pictures(
    integer: IntegerGraph,
    reference: FloatGraph | None,
    pictures: PictureSet,
    preprocessing: Preprocessing,
    layer_pictures: int = 16,
    progress: Say | None = None,
) -> Evaluation:
    """Run `pictures` through the integer network, bit for bit as on the hardware, and the float network.

    Args:
        integer: the compressed network.
        reference: the float network it was made of; None: the integer network alone.
        pictures: what to run.
        preprocessing: of the integer network; the float network sees the same pixels.
        layer_pictures: the first so many pictures are compared in every layer.
        progress: called as progress(pictures done, pictures in all).

    Raises:
        ModelFileError: the networks do not belong together. PictureError: unusable pictures.

    """
    meter = None if reference is None else FidelityMeter(reference, integer)
    runner = _Runner(integer, reference, preprocessing)
    numbers: list[int] = []
    for group, places in pictures.read(preprocessing):
        runner.run(group, meter if len(numbers) < layer_pictures else None)
        numbers += places
        if progress is not None:
            progress(numbers[-1] + 1, len(pictures.files))
    if not numbers:
        raise PictureError("none of the pictures can be read")
    scores = {name: np.concatenate(parts) for name, parts in runner.scores.items()}
    right: dict[str, tuple[npt.NDArray[np.bool_], npt.NDArray[np.bool_]]] = {}
    if pictures.classes is not None:
        classes = np.array(pictures.classes, np.int64)[numbers]
        right = {
            name: (in_top(found, classes, 1), in_top(found, classes, 5)) for name, found in scores.items()
        }
    both = len(right) == 2
    firsts = [found.argmax(axis=1) for found in scores.values()]
    return Evaluation(
        len(numbers),
        len(pictures.skipped),
        {name: float(top1.mean()) for name, (top1, _) in right.items()},
        {name: float(top5.mean()) for name, (_, top5) in right.items()},
        paired(right["float"][0], right["integer"][0]) if both else None,
        paired(right["float"][1], right["integer"][1]) if both else None,
        float((firsts[0] == firsts[1]).mean()) if len(firsts) == 2 else None,
        meter.result() if meter is not None and layer_pictures > 0 else [],
        runner.compared,
    )


class _Runner:
    """Both networks and the scores they have given so far, [n, classes] per group."""

    def __init__(
        self, integer: IntegerGraph, reference: FloatGraph | None, preprocessing: Preprocessing
    ) -> None:
        self.integer, self.reference, self.preprocessing = integer, reference, preprocessing
        self.executor = Executor(integer)
        self.compared = 0
        self.scores: dict[str, list[npt.NDArray[Any]]] = {"integer": []}
        if reference is not None:
            self.scores["float"] = []

    def run(self, group: Bytes, meter: FidelityMeter | None) -> None:
        """Run pictures uint8[n, height, width, colours]; compare every layer if there is a `meter`."""
        stored = self.preprocessing.quantise(group)
        if meter is None:
            found = np.concatenate(list(self.executor.outputs(stored)))
        else:
            tensors = [self.executor.run(picture) for picture in stored]
            found = np.stack([one[self.integer.output] for one in tensors])
        self.scores["integer"].append(found.reshape(len(group), -1))
        if self.reference is None:
            return
        taps = None if meter is None else {node.output for node in self.reference.nodes}
        real = float_run(self.reference, self.preprocessing.normalise(group), taps)
        self.scores["float"].append(real[self.reference.output].reshape(len(group), -1))
        if meter is not None:
            for place, one in enumerate(tensors):
                meter.add(
                    {name: value[place : place + 1] for name, value in real.items()},
                    {name: value[None] for name, value in one.items()},
                )
            self.compared += len(group)
