"""Integer graphs with random weights, for tests and for benchmarks without a trained network."""

from __future__ import annotations

from random import Random

import numpy as np
import numpy.typing as npt

from espalier.arch.operators import MAX_WIDE_WEIGHT
from espalier.arch.program import FRACTION_BITS, MULTIPLIER_BITS, MULTIPLIER_SHIFTS
from espalier.ir.graph import Conv, IntegerGraph, Node, Pads, Pool, Requantisation, Residual, Tensor

IntArray = npt.NDArray[np.int64]

_MEAN_PIXEL = 80.0  # rough root mean square of a stored pixel, so that outputs use the range of a byte
_SPREAD = 50.0  # of the outputs


class RandomNetwork:
    """Builds a graph layer by layer; every method returns the name of the tensor that it makes."""

    def __init__(
        self, channels: int, height: int, width: int, zero_point: int = 0, seed: int = 0, name: str = "random"
    ) -> None:
        self.random = np.random.default_rng(seed)
        self.name = name
        self.nodes: list[Node] = []
        self.tensors = {"input": Tensor("input", channels, height, width, 1.0, zero_point)}

    def conv(
        self,
        source: str,
        filters: int,
        kernel: tuple[int, int] = (3, 3),
        stride: int = 1,
        pads: Pads = (0, 0, 0, 0),
        dilation: int = 1,
        density: float = 0.3,
        bits: int = 4,
        residual: str | None = None,
        zero_point: int = 0,
    ) -> str:
        """Add a convolution; `density` is the share of weights other than zero."""
        tensor = self.tensors[source]
        weights = sparse_weights(self.random, (filters, tensor.channels, *kernel), density, bits)
        values = weight_requantisation(weights, tensor.zero_point, self.random.integers(-1000, 1000, filters))
        height = _length(tensor.height, kernel[0], stride, pads[0] + pads[2], dilation)
        width = _length(tensor.width, kernel[1], stride, pads[1] + pads[3], dilation)
        name = self._tensor("conv", filters, height, width, zero_point)
        added = Residual(residual, int(self.random.integers(1, 1 << 15)), 1) if residual is not None else None
        self.nodes.append(Conv(name, source, name, weights, values, stride, pads, dilation, added, bits))
        return name

    def pool(
        self,
        source: str,
        kind: str,
        kernel: tuple[int, int] = (2, 2),
        stride: int = 1,
        pads: Pads = (0, 0, 0, 0),
    ) -> str:
        """Add a pooling layer of kind "max", "average" or "global"; scale and zero point stay the same."""
        tensor = self.tensors[source]
        if kind == "global":
            kernel = tensor.height, tensor.width
        area = 1 if kind == "max" else kernel[0] * kernel[1]
        values = mean_requantisation(area, tensor.zero_point)
        height = 1 if kind == "global" else _length(tensor.height, kernel[0], stride, pads[0] + pads[2], 1)
        width = 1 if kind == "global" else _length(tensor.width, kernel[1], stride, pads[1] + pads[3], 1)
        name = self._tensor(kind, tensor.channels, height, width, tensor.zero_point)
        self.nodes.append(Pool(name, source, name, kind, values, kernel, stride, pads))
        return name

    def graph(self) -> IntegerGraph:
        """Finish the graph; the last layer is its output."""
        return IntegerGraph(self.name, "input", self.nodes[-1].output, self.nodes, self.tensors)

    def picture(self) -> npt.NDArray[np.uint8]:
        """Draw a random picture for the graph: uint8[channels, height, width]."""
        tensor = self.tensors["input"]
        shape = (tensor.channels, tensor.height, tensor.width)
        return self.random.integers(0, 256, shape, dtype=np.uint8)

    def _tensor(self, kind: str, channels: int, height: int, width: int, zero_point: int) -> str:
        name = f"{kind}{len(self.nodes)}"
        self.tensors[name] = Tensor(name, channels, height, width, 1.0, zero_point)
        return name


def sparse_weights(
    random: np.random.Generator, shape: tuple[int, ...], density: float, bits: int
) -> npt.NDArray[np.int8]:
    """Weights of normal distribution, the small ones pruned; filters and channels differ in spread.

    shape: K, C, kernel_y, kernel_x; density: share of weights other than zero.
    """
    spread = random.lognormal(0, 0.25, (shape[0], 1, 1, 1)) * random.lognormal(0, 0.25, (1, shape[1], 1, 1))
    size = np.abs(random.standard_normal(shape)) * spread
    limit = min((1 << (bits - 1)) - 1, MAX_WIDE_WEIGHT) if bits > 1 else 1
    weights = np.clip(np.round(size / np.quantile(size, 0.999) * limit), 1, limit)
    kept = size > np.quantile(size, 1 - density) if density < 1 else np.ones(shape, np.bool_)
    return np.where(kept, weights * random.choice([-1, 1], shape), 0).astype(np.int8)


def weight_requantisation(weights: npt.NDArray[np.int8], zero_point: int, bias: IntArray) -> Requantisation:
    """Scales with which the outputs of integer weights use the range of a byte.

    zero_point: of the input; bias: int64[K], on top of its correction.
    """
    norm = np.sqrt((weights.astype(np.float64) ** 2).sum(axis=(1, 2, 3))) * _MEAN_PIXEL + 1
    multiplier, shift = _fixed_point(_SPREAD / norm)
    return Requantisation(multiplier, shift, bias - zero_point * weights.sum(axis=(1, 2, 3), dtype=np.int64))


def mean_requantisation(area: int, zero_point: int) -> Requantisation:
    """Scale of a mean over `area` pixels, or of a maximum (1): scale and zero point stay the same."""
    multiplier, shift = _fixed_point(np.array([1.0 / area]))
    return Requantisation(multiplier, shift, np.array([-zero_point * area]))


def _length(size: int, kernel: int, stride: int, pads: int, dilation: int) -> int:
    return (size + pads - dilation * (kernel - 1) - 1) // stride + 1


def _fixed_point(scale: npt.NDArray[np.float64]) -> tuple[npt.NDArray[np.int64], npt.NDArray[np.int64]]:
    """Find the most precise multiplier and shift index: multiplier / 2**shift = scale * 2**FRACTION_BITS."""
    exact = scale[:, None] * 2.0 ** (FRACTION_BITS + np.array(MULTIPLIER_SHIFTS))
    fits = exact < (1 << MULTIPLIER_BITS) - 1
    shift = np.where(fits.any(axis=1), len(MULTIPLIER_SHIFTS) - 1 - fits[:, ::-1].argmax(axis=1), 0)
    multiplier = np.minimum(np.round(exact[np.arange(len(scale)), shift]), (1 << MULTIPLIER_BITS) - 1)
    return multiplier.astype(np.int64), shift


def tall_network(seed: int) -> RandomNetwork:
    """Make a random network whose maps have many tile rows; equal seeds give equal networks.

    Convolutions of kernels 1-5 and stride 1-2, residuals, max-pooling behind convolutions and elsewhere.
    """
    random = Random(seed)
    net = RandomNetwork(
        random.randint(1, 24), random.randint(40, 90), random.randint(8, 24), random.choice([0, 50]), seed
    )
    names = ["input"]
    for _ in range(random.randint(2, 5)):
        source = names[-1] if random.random() < 0.8 else random.choice(names[-2:])
        tensor = net.tensors[source]
        smaller = min(tensor.height, tensor.width)
        kind = random.choice(["conv", "residual", "max", "conv, max", "conv, max"])
        if kind == "max" and smaller > 6:
            names.append(net.pool(source, "max", (3, 3), 2, (1, 1, 1, 1)))
        elif kind == "residual":
            size = tensor.height, tensor.width
            other = random.choice([n for n in names if (net.tensors[n].height, net.tensors[n].width) == size])
            filters = net.tensors[other].channels
            names.append(net.conv(source, filters, pads=(1, 1, 1, 1), density=0.3, residual=other))
        else:
            kernel, bits = random.choice([1, 3, 5]), random.choice([4, 8])
            stride = random.choice([1, 2]) if smaller > 14 else 1
            pads = (kernel // 2,) * 4
            filters = random.randint(4, 32)
            names.append(net.conv(source, filters, (kernel, kernel), stride, pads, density=0.3, bits=bits))
            if kind == "conv, max" and min(net.tensors[names[-1]].height, net.tensors[names[-1]].width) > 6:
                pool, stride = random.choice([2, 3]), random.choice([1, 2])
                names.append(net.pool(names[-1], "max", (pool, pool), stride, (pool // 3,) * 4))
    return net
