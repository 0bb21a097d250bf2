"""Networks for timing: own layers of a network with random masks, well-known shapes with random weights."""

from __future__ import annotations

import dataclasses
from collections.abc import Callable, Sequence

import numpy as np
from numpy.typing import NDArray

from espalier.backend.synthetic import RandomNetwork
from espalier.ir.graph import Conv, IntegerGraph

# Filters and channels of pruned networks differ in density; of the logarithm, for both.
SPREAD = 0.25
_LARGEST_DIGIT = 7

RESNET18_BLOCKS, RESNET34_BLOCKS = (2, 2, 2, 2), (3, 4, 6, 3)
# Filters of every convolution of VGG-16; 0: 2x2 max-pooling.
VGG16_LAYERS = (64, 64, 0, 128, 128, 0, 256, 256, 256, 0, 512, 512, 512, 0, 512, 512, 512, 0)


def masked(
    graph: IntegerGraph, density: Callable[[int, Conv], float], seed: int = 0, spread: float = SPREAD
) -> IntegerGraph:
    """Copy a graph with random masks and random 4-bit weights in place of its own; for timing only.

    density: share of weights other than zero, from the position of a convolution and the convolution.
    Filters and input channels get more or fewer of them (log-normal, sigma `spread` each), as pruning by
    magnitude leaves them; without spread all have about the same.
    """
    random = np.random.default_rng(seed)
    nodes, index = [], 0
    for node in graph.nodes:
        if isinstance(node, Conv):
            weights = _weights(random, node.weights, density(index, node), spread)
            node = dataclasses.replace(node, weights=weights, weight_bits=4)
            index += 1
        nodes.append(node)
    return dataclasses.replace(graph, nodes=nodes)


def first_and_rest(first: float, rest: float) -> Callable[[int, Conv], float]:
    """Density of the first convolution, and that of all others."""
    return lambda index, _: first if index == 0 else rest


def uniform(density: float) -> Callable[[int, Conv], float]:
    """Return the same density for all convolutions."""
    return lambda index, _: density


def resnet(
    blocks: Sequence[int] = RESNET18_BLOCKS,
    width: int = 64,
    side: int = 224,
    density: float = 0.1,
    first: float | None = None,
    classes: int = 1000,
) -> IntegerGraph:
    """Make a ResNet of basic blocks with random 4-bit weights.

    blocks: of each stage. width: channels of the first stage, twice as many in each one after it. side: of
    the picture, pixels. density: share of weights other than zero; first: that of the first convolution.
    """
    network = RandomNetwork(3, side, side, name=f"resnet{2 * sum(blocks) + 2}")
    own = density if first is None else first
    tensor = network.conv("input", width, (7, 7), 2, (3, 3, 3, 3), density=own)
    tensor = network.pool(tensor, "max", (3, 3), 2, (1, 1, 1, 1))
    for stage, count in enumerate(blocks):
        filters = width << stage
        for block in range(count):
            stride = 2 if stage and not block else 1
            inner = network.conv(tensor, filters, (3, 3), stride, (1, 1, 1, 1), density=density)
            if stride > 1:
                tensor = network.conv(tensor, filters, (1, 1), stride, density=density)
            tensor = network.conv(inner, filters, (3, 3), 1, (1, 1, 1, 1), density=density, residual=tensor)
    network.conv(network.pool(tensor, "global"), classes, (1, 1), density=density)
    return network.graph()


def vgg(
    layers: Sequence[int] = VGG16_LAYERS, side: int = 112, density: float = 0.1, classes: int = 1000
) -> IntegerGraph:
    """Make the convolutions of a VGG with random 4-bit weights, global average pooling and one classifier.

    layers: filters of each 3x3 convolution; 0: max-pooling. The fully connected layers of the original, nine
    tenths of its weights, are left out.
    """
    network = RandomNetwork(3, side, side, name="vgg16" if tuple(layers) == VGG16_LAYERS else "vgg")
    tensor = "input"
    for filters in layers:
        if filters:
            tensor = network.conv(tensor, filters, (3, 3), 1, (1, 1, 1, 1), density=density)
        else:
            tensor = network.pool(tensor, "max", (2, 2), 2)
    network.conv(network.pool(tensor, "global"), classes, (1, 1), density=density)
    return network.graph()


def picture_for(graph: IntegerGraph, seed: int = 0) -> NDArray[np.uint8]:
    """Draw a random input tensor for a graph: uint8[channels, height, width]."""
    tensor = graph.tensors[graph.input]
    shape = tensor.channels, tensor.height, tensor.width
    return np.random.default_rng(seed).integers(0, 256, shape, dtype=np.uint8)


def _weights(
    random: np.random.Generator, like: NDArray[np.int8], density: float, spread: float
) -> NDArray[np.int8]:
    """Keep the largest of random sizes; where `like` has no weight in any filter (padding), none either."""
    filters, channels = like.shape[:2]
    size = np.abs(random.standard_normal(like.shape))
    size *= random.lognormal(0, spread, (filters, 1, 1, 1))
    size *= random.lognormal(0, spread, (1, channels, 1, 1))
    possible = np.broadcast_to((like != 0).any(axis=0), like.shape)
    size = np.where(possible, size, -1.0)
    count = round(density * int(possible.sum()))
    threshold = np.partition(size.reshape(-1), -count)[-count] if count else np.inf
    magnitude = np.clip(np.round(size / size.max() * _LARGEST_DIGIT), 1, _LARGEST_DIGIT)
    sign = random.choice(np.array([-1, 1]), like.shape)
    return np.where(size >= threshold, magnitude * sign, 0).astype(np.int8)
