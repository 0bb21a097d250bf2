"""Small random networks that reach into the corners of hardware and compiler."""

from __future__ import annotations

from dataclasses import dataclass, field, replace

import numpy as np
from numpy.typing import NDArray

from espalier.arch.program import FRACTION_BITS, MULTIPLIER_BITS, MULTIPLIER_SHIFTS, RESIDUAL_SHIFTS
from espalier.ir.check import weight_range
from espalier.ir.geometry import node_output_shape
from espalier.ir.graph import Conv, IntegerGraph, Node, Pads, Pool, Requantisation, Residual, Tensor

_SPREAD = 60.0  # standard deviation that outputs should have, so that few of them saturate
_PIXEL_DEVIATION = 74.0  # of uniform bytes
_LARGEST_MAP = 21  # pixels


def random_network(seed: int, layers: int | None = None) -> tuple[IntegerGraph, NDArray[np.uint8]]:
    """Make a network of one to four layers and a picture for it; equal seeds give equal networks.

    Kernels 1-7, stride 1-2, dilation, 1-64 channels, maps that are not whole tiles, density 0-100 %, weights
    of 1-8 bits, residuals, all kinds of pooling, zero points anywhere.
    """
    rng = np.random.default_rng(seed)
    height, width = (int(value) for value in rng.integers(1, _LARGEST_MAP + 1, 2))
    picture = Tensor("picture", _channels(rng), height, width, 1.0, _zero_point(rng))
    builder = _Builder(rng, picture)
    for _ in range(layers or int(rng.integers(1, 5))):
        builder.add_layer()
    graph = IntegerGraph(
        f"random{seed}", "picture", builder.tensor.name, builder.nodes, builder.tensors, {"labels": []}
    )
    pixels = rng.integers(0, 256, (picture.channels, height, width), dtype=np.uint8)
    if rng.random() < 0.2:
        pixels[...] = rng.choice([0, 255])  # the largest sums there are
    return graph, pixels


@dataclass
class _Builder:
    rng: np.random.Generator
    tensor: Tensor
    nodes: list[Node] = field(default_factory=list)
    tensors: dict[str, Tensor] = field(default_factory=dict)

    def __post_init__(self) -> None:
        self.tensors[self.tensor.name] = self.tensor

    def add_layer(self) -> None:
        """Append a convolution (mostly) or a pooling layer."""
        choice = self.rng.random()
        if choice < 0.7:
            self._append(self._conv())
        elif choice < 0.93:
            self._append(self._pool())
        else:
            self._append(self._global())

    def _append(self, node: Node) -> None:
        source = self.tensor
        channels, height, width = node_output_shape(node, (source.channels, source.height, source.width))
        same = isinstance(node, Pool) and node.kind == "max"
        zero_point = source.zero_point if same else _zero_point(self.rng)
        self.tensor = Tensor(node.output, channels, height, width, 1.0, zero_point)
        self.tensors[node.output] = self.tensor
        self.nodes.append(node)

    def _window(self, largest: int, stride: int, dilation: int = 1) -> tuple[tuple[int, int], Pads]:
        """Kernel and pads that leave at least one output pixel and no window of padding alone."""
        kernel, pads = [], []
        for size in (self.tensor.height, self.tensor.width):
            taps = int(self.rng.integers(1, largest + 1))
            while (taps - 1) * dilation + 1 > 2 * size:
                taps -= 1
            extent = (taps - 1) * dilation + 1
            low = max(0, extent - size)
            before, after = (int(value) for value in self.rng.integers(0, taps, 2))
            while size + before + after < extent or before + after < low:
                before, after = before + 1, after + 1
            kernel.append(taps)
            pads.append((before, after))
        (top, bottom), (left, right) = pads
        return (kernel[0], kernel[1]), (top, left, bottom, right)

    def _conv(self) -> Conv:
        rng, source, index = self.rng, self.tensor, len(self.nodes)
        stride = int(rng.integers(1, 3))
        dilation = 2 if rng.random() < 0.1 else 1
        kernel, pads = self._window(7, stride, dilation)
        filters = _channels(rng)
        residual = self._residual_source() if rng.random() < 0.4 else None
        if residual is not None:
            filters, stride, dilation = residual.channels, 1, 1
            kernel, pads = (3, 3), (1, 1, 1, 1)
        weights, bits = _weights(rng, (filters, source.channels, *kernel))
        node = Conv(
            name=f"conv{index}",
            input=source.name,
            output=f"tensor{index}",
            weights=weights,
            requantisation=_requantisation(rng, weights.reshape(filters, -1), source.zero_point),
            stride=stride,
            pads=pads,
            dilation=dilation,
            residual=None if residual is None else _residual(rng, residual.name),
            weight_bits=bits,
        )
        _, height, width = node_output_shape(node, (source.channels, source.height, source.width))
        return replace(node, dense_macs=weights.size * height * width)

    def _residual_source(self) -> Tensor:
        """Pick a tensor of the size that a 3x3 convolution of stride 1 would have here."""
        size = self.tensor.height, self.tensor.width
        fitting = [other for other in self.tensors.values() if (other.height, other.width) == size]
        return fitting[int(self.rng.integers(len(fitting)))]

    def _pool(self) -> Pool:
        rng, index = self.rng, len(self.nodes)
        kind = str(rng.choice(["max", "average"]))
        stride = int(rng.integers(1, 3))
        kernel, pads = self._window(4, stride)
        if kind == "max" and (max(pads[0::2]) >= kernel[0] or max(pads[1::2]) >= kernel[1]):
            kernel, pads = (1, 1), (0, 0, 0, 0)
        values = self._same() if kind == "max" else self._mean(kernel[0] * kernel[1])
        return Pool(f"pool{index}", self.tensor.name, f"tensor{index}", kind, values, kernel, stride, pads)

    def _global(self) -> Pool:
        index = len(self.nodes)
        area = self.tensor.height * self.tensor.width
        return Pool(f"pool{index}", self.tensor.name, f"tensor{index}", "global", self._mean(area))

    def _same(self) -> Requantisation:
        """Requantise a pixel to itself."""
        multiplier = np.array([1 << (FRACTION_BITS + MULTIPLIER_SHIFTS[0])])
        return Requantisation(multiplier, np.array([0]), np.array([-self.tensor.zero_point]))

    def _mean(self, area: int) -> Requantisation:
        """Requantise the sum of `area` pixels to roughly its mean."""
        ratio = float(1 << FRACTION_BITS) / area * self.rng.uniform(0.8, 1.2)
        multiplier, shift = _fixed_point(self.rng, np.array([ratio]))
        return Requantisation(multiplier, shift, np.array([-area * self.tensor.zero_point]))


def _channels(rng: np.random.Generator) -> int:
    return int(np.round(2 ** rng.uniform(0, 6)))


def _zero_point(rng: np.random.Generator) -> int:
    return int(rng.choice([0, 128, int(rng.integers(256))]))


def _weights(rng: np.random.Generator, shape: tuple[int, ...]) -> tuple[NDArray[np.int8], int]:
    bits = int(rng.integers(1, 9))
    low, high = weight_range(bits)
    density = rng.choice([0.0, 0.05, 0.2, 0.5, 1.0, rng.random()])
    weights = rng.integers(low, high + 1, shape) * (rng.random(shape) < density)
    if rng.random() < 0.1:
        weights = np.minimum(np.abs(weights), high)  # one-sided sums: many parts
    return weights.astype(np.int8), bits


def _requantisation(rng: np.random.Generator, weights: NDArray[np.int8], zero_point: int) -> Requantisation:
    wide = weights.astype(np.int64)
    deviation = np.maximum(np.sqrt((wide**2).sum(axis=1)) * _PIXEL_DEVIATION, 1)
    ratio = _SPREAD * (1 << FRACTION_BITS) / deviation * rng.uniform(0.5, 2, len(wide))
    multiplier, shift = _fixed_point(rng, ratio)
    bias = -zero_point * wide.sum(axis=1) + rng.normal(0, deviation).astype(np.int64)
    return Requantisation(multiplier, shift, bias)


def _fixed_point(
    rng: np.random.Generator, ratio: NDArray[np.float64]
) -> tuple[NDArray[np.int64], NDArray[np.int64]]:
    """Multiplier and shift of every channel; any shift that can represent the ratio may be chosen."""
    limit = (1 << MULTIPLIER_BITS) - 1
    multiplier, shift = np.zeros(len(ratio), np.int64), np.zeros(len(ratio), np.int64)
    for index, value in enumerate(ratio):
        options = [(round(value * 2.0**bits), i) for i, bits in enumerate(MULTIPLIER_SHIFTS)]
        fitting = [option for option in options if 1 <= option[0] <= limit] or [(limit, 0)]
        multiplier[index], shift[index] = fitting[int(rng.integers(len(fitting)))]
    return multiplier, shift


def _residual(rng: np.random.Generator, tensor: str) -> Residual:
    shift = int(rng.integers(len(RESIDUAL_SHIFTS)))
    wanted = (1 << FRACTION_BITS) * 2.0 ** RESIDUAL_SHIFTS[shift] * rng.uniform(0.2, 1.5)
    return Residual(tensor, min((1 << 16) - 1, round(wanted)), shift)
