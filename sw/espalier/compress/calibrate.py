"""Calibration: activation ranges and Gram matrices, gathered picture by picture in bounded memory."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass
from typing import Any

import numpy as np
import numpy.typing as npt

from espalier.compress.execute import Real, Stored, patch_matrix
from espalier.compress.prune import Matrix
from espalier.errors import PictureError, UserError
from espalier.ir.float_graph import FloatConv, Shape
from espalier.ir.graph import Tensor

_SAMPLES = 400_000  # values per tensor that the range search looks at
_LEVELS = 255
_MOST_SHRINKAGE = 0.9
_HALF_LOW, _HALF_HIGH = 0.1, 6e4  # largest values between which half precision holds a tensor well


@dataclass(frozen=True)
class RangeOptions:
    """How a tensor's range is chosen: "max", "percentile" or "mse" (least squared error)."""

    method: str = "mse"
    percentile: float = 99.99


def compact(maps: npt.NDArray[np.floating[Any]]) -> npt.NDArray[np.floating[Any]]:
    """Hold real values in half precision where its range allows: as targets, 11 bits are plenty."""
    largest = float(np.abs(maps).max(initial=0.0))
    return maps.astype(np.float16 if _HALF_LOW < largest < _HALF_HIGH else np.float32)


def stack_pictures(pictures: Iterable[npt.NDArray[Any]], shape: Shape) -> npt.NDArray[np.floating[Any]]:
    """Collect calibration pictures: float16 or float32[C, N, height, width].

    Raises:
        PictureError: no picture, a wrong shape, or values that are not numbers.

    """
    kept = []
    for index, picture in enumerate(pictures):
        if tuple(picture.shape) != tuple(shape):
            raise PictureError(
                f"calibration picture {index} has shape {tuple(picture.shape)},"
                f" the network takes {tuple(shape)}"
            )
        if not np.isfinite(picture).all():
            raise PictureError(f"calibration picture {index} holds values that are not finite numbers")
        kept.append(compact(picture))
    if not kept:
        raise PictureError("no calibration pictures: give at least one, better 100 to 500")
    return np.stack(kept, axis=1)


def sample(values: npt.NDArray[Any], generator: np.random.Generator) -> npt.NDArray[np.float64]:
    """Draw a random sample of a tensor's values, with its extremes."""
    flat = values.reshape(-1)
    if flat.size > _SAMPLES:
        chosen = flat[generator.integers(0, flat.size, _SAMPLES)]
        flat = np.concatenate([chosen, [flat.min(), flat.max()]])
    return flat.astype(np.float64)


def choose_range(
    name: str, shape: Shape, values: npt.NDArray[np.float64], non_negative: bool, options: RangeOptions
) -> Tensor:
    """Scale and zero point of a tensor from a sample of its values.

    Args:
        name: of the tensor.
        shape: channels, height, width.
        values: float64[n].
        non_negative: the tensor comes out of a ReLU: zero point 0.
        options: how the range is chosen.

    Raises:
        UserError: unknown method.

    """
    low = 0.0 if non_negative else min(float(values.min()), 0.0)
    high = max(float(values.max()), 0.0)
    if options.method == "percentile":
        high = max(float(np.percentile(values, options.percentile)), 0.0)
        low = 0.0 if non_negative else min(float(np.percentile(values, 100 - options.percentile)), 0.0)
    elif options.method not in ("max", "mse"):
        raise UserError(f"range method '{options.method}': choose max, percentile or mse")
    factors = np.linspace(0.3, 1.0, 36) if options.method == "mse" else np.ones(1)
    best = (np.inf, 1.0, 0)
    for factor in factors:
        scale = max((high - low) * factor / _LEVELS, 1e-8)
        zero = round(float(np.clip(-low * factor / scale, 0, _LEVELS)))
        stored = np.clip(np.rint(values / scale) + zero, 0, _LEVELS)
        error = float((((stored - zero) * scale - values) ** 2).mean())
        if error < best[0]:
            best = (error, scale, zero)
    return Tensor(name, *shape, scale=best[1], zero_point=best[2])


def quantise_maps(maps: npt.NDArray[Any], tensor: Tensor) -> Stored:
    """Turn real values into stored values."""
    stored: Real = np.rint(maps.astype(np.float32) / np.float32(tensor.scale)) + tensor.zero_point
    return np.clip(stored, 0, _LEVELS).astype(np.uint8)


def real_maps(stored: Stored, tensor: Tensor) -> Real:
    """Turn stored values into real values."""
    return (stored.astype(np.float32) - tensor.zero_point) * np.float32(tensor.scale)


@dataclass
class LayerStatistics:
    """All that pruning and rounding need to know of a layer; inputs and outputs are centred.

    gram: float32[n, n], mean of x x^T; cross: float32[K, n], mean of y x^T; energy: mean of |y|^2 in all.
    """

    gram: Matrix
    cross: Matrix
    input_mean: npt.NDArray[np.float64]
    output_mean: npt.NDArray[np.float64]
    energy: float


class GramAccumulator:
    """Sums x x^T and y x^T of a layer over chunks of pictures; memory does not grow with their number."""

    def __init__(self, node: FloatConv, positions: int, generator: np.random.Generator) -> None:
        """Prepare for a layer.

        Args:
            node: the layer.
            positions: output pixels per picture that enter the sums; neighbours say almost the same.
            generator: chooses the pixels.

        """
        self.node, self.positions, self.generator = node, positions, generator
        filters = len(node.weights)
        inputs = node.weights[0].size
        self.gram = np.zeros((inputs, inputs), dtype=np.float32)
        self.cross = np.zeros((filters, inputs), dtype=np.float32)
        self.input_sum = np.zeros(inputs)
        self.output_sum = np.zeros(filters)
        self.energy = np.zeros(filters)
        self.count = 0
        self.pictures = 0
        self.picture_energy = 0.0  # sum of |x x^T|^2 over pictures, for `_shrinkage`

    def add(self, stored: Stored, tensor: Tensor, wanted: Real) -> None:
        """Take in a chunk of pictures.

        Args:
            stored: inputs of the layer, uint8[C, N, height, width].
            tensor: their scale and zero point.
            wanted: outputs before activation and residual, float32[K, N, out_y, out_x].

        """
        columns = patch_matrix(self.node, stored, tensor.zero_point)
        outputs = wanted.reshape(len(wanted), -1)
        starts = np.arange(stored.shape[1]) * (columns.shape[1] // stored.shape[1])
        chosen = self.positions * stored.shape[1]
        if chosen < columns.shape[1]:
            index = np.sort(self.generator.choice(columns.shape[1], chosen, replace=False))
            columns, outputs = columns[:, index], outputs[:, index]
            starts = np.searchsorted(index, starts)
        columns -= np.float32(tensor.zero_point)
        columns *= np.float32(tensor.scale)
        with np.errstate(over="ignore", invalid="ignore"):  # `finish` looks at the result
            self.gram += columns @ columns.T
            self.cross += outputs @ columns.T
        self.input_sum += columns.sum(axis=1, dtype=np.float64)
        self.output_sum += outputs.sum(axis=1, dtype=np.float64)
        self.energy += (outputs.astype(np.float64) ** 2).sum(axis=1)
        self.count += columns.shape[1]
        self._add_spread(columns, starts)

    def _add_spread(self, columns: Real, starts: npt.NDArray[np.integer[Any]]) -> None:
        """Take in how much the pictures of a chunk differ; `starts`: first column of each."""
        centred = columns - (self.input_sum / self.count).astype(np.float32)[:, None]
        for part in np.split(centred, starts[1:], axis=1):
            # |X X^T| = |X^T X|: the smaller one is enough.
            small = part.T @ part if part.shape[1] < len(part) else part @ part.T
            self.picture_energy += float(np.vdot(small, small))
        self.pictures += len(starts)

    def _shrinkage(self, gram: Matrix) -> float:
        """Weight of the identity that brings the sample Gram matrix nearest to the true one (Ledoit, Wolf).

        The samples are whole pictures: pixels of one picture say almost the same.
        """
        energy = float(np.vdot(gram, gram).real)
        spread = self.picture_energy / self.count**2 - energy / self.pictures
        distance = energy - float(np.diag(gram).mean()) ** 2 * len(gram)
        return float(np.clip(spread / max(distance, 1e-30), 0.0, _MOST_SHRINKAGE))

    def finish(self, damping: float, shrink: bool = True) -> LayerStatistics:
        """Centre the sums; damping (relative to the mean diagonal) pulls the weights to the original ones.

        With `shrink` there is as much damping as the pictures call for, `damping` at least: with few pictures
        and many inputs the sums hold directions without energy by chance, which would take up any error.

        Raises:
            UserError: the sums overflowed.

        """
        if not (np.isfinite(self.gram).all() and np.isfinite(self.cross).all()):
            raise UserError(
                f"layer '{self.node.name}': the float network overflows, squares of its activations are"
                " beyond float32; scale weights or pictures down"
            )
        input_mean = self.input_sum / self.count
        output_mean = self.output_sum / self.count
        gram: Matrix = np.divide(self.gram, self.count, dtype=np.float32)
        gram -= np.outer(input_mean, input_mean).astype(np.float32)
        cross: Matrix = np.divide(self.cross, self.count, dtype=np.float32)
        cross -= np.outer(output_mean, input_mean).astype(np.float32)
        energy = float((self.energy / self.count - output_mean**2).sum())
        if shrink:
            weight = self._shrinkage(gram)
            damping = max(damping, weight / (1 - weight))
        # Never less than what rounding has left of inputs that hardly vary.
        rounding = 1e-4 * float(np.diag(self.gram).mean()) / self.count
        amount = np.float32(max(damping * float(np.diag(gram).mean()), rounding) + 1e-12)
        flat = self.node.weights.reshape(len(self.node.weights), -1)
        gram[np.diag_indices_from(gram)] += amount
        cross += amount * flat
        energy += float(amount * (flat.astype(np.float64) ** 2).sum())
        return LayerStatistics(gram, cross, input_mean, output_mean, energy)
