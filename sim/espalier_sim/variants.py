"""Networks for timing: own layers of a network with random masks, well-known shapes with random weights."""

from __future__ import annotations

import dataclasses
from collections.abc import Callable, Mapping, Sequence

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


# Densities of the convolutions behind the first one, relative to each other, with which the built-in model
# takes few cycles on zcu104 at 10 % of their MACs; found by `python -m espalier_sim.density_search`.
RESNET18_SHARES = {
    "layer1.0.conv1": 1.263,
    "layer1.0.conv2": 1.17,
    "layer1.1.conv1": 1.17,
    "layer1.1.conv2": 1.17,
    "layer2.0.conv1": 1.263,
    "layer2.0.downsample": 5.342,
    "layer2.0.conv2": 1.0,
    "layer2.1.conv1": 0.967,
    "layer2.1.conv2": 1.0,
    "layer3.0.conv1": 0.838,
    "layer3.0.downsample": 3.8,
    "layer3.0.conv2": 1.0,
    "layer3.1.conv1": 1.041,
    "layer3.1.conv2": 1.0,
    "layer4.0.conv1": 0.74,
    "layer4.0.downsample": 3.2,
    "layer4.0.conv2": 0.915,
    "layer4.1.conv1": 0.859,
    "layer4.1.conv2": 0.929,
    "fc": 1.701,
}


def masked(
    graph: IntegerGraph,
    density: Callable[[int, Conv], float],
    seed: int = 0,
    spread: float = SPREAD,
    rows: bool = False,
) -> IntegerGraph:
    """Copy a graph with random masks and random 4-bit weights in place of its own; for timing only.

    density: share of weights other than zero, from the position of a convolution and the convolution.
    Filters and input channels get more or fewer of them (log-normal, sigma `spread` each), as pruning by
    magnitude leaves them; without spread all have about the same, and with `rows` (pattern `row` of
    `espalier compress`) all filters of a layer have the same number, or one more.
    """
    random = np.random.default_rng(seed)
    nodes, index = [], 0
    for node in graph.nodes:
        if isinstance(node, Conv):
            weights = _weights(random, node.weights, density(index, node), spread, rows)
            node = dataclasses.replace(node, weights=weights, weight_bits=4)
            index += 1
        nodes.append(node)
    return dataclasses.replace(graph, nodes=nodes)


def first_and_rest(first: float, rest: float) -> Callable[[int, Conv], float]:
    """Density of the first convolution, and that of all others."""
    return lambda index, _: first if index == 0 else rest


def distributed(
    graph: IntegerGraph, first: float, rest: float, shares: Mapping[str, float]
) -> Callable[[int, Conv], float]:
    """Density of the first convolution, and of the others, which keep the share `rest` of their MACs in all.

    graph: that the densities are for. shares: densities of the others relative to each other, by name.
    """
    own = behind_first(graph)
    macs = [_possible(conv.weights) * _pixels(graph, conv) for conv in own]
    scale = rest * sum(macs) / sum(work * shares[conv.name] for work, conv in zip(macs, own, strict=True))
    return lambda index, conv: first if index == 0 else min(scale * shares[conv.name], 1.0)


def redistributed(
    graph: IntegerGraph, first: float, rest: float, shares: Mapping[str, float]
) -> IntegerGraph:
    """Copy a graph as `masked` does, with densities as in `distributed` and equally dense filters."""
    return masked(graph, distributed(graph, first, rest, shares), spread=0.0, rows=True)


def behind_first(graph: IntegerGraph) -> list[Conv]:
    """List all convolutions but the first."""
    return [node for node in graph.nodes if isinstance(node, Conv)][1:]


def _possible(weights: NDArray[np.int8]) -> int:
    """Weights of a convolution without those that no filter has (padding)."""
    return len(weights) * int((weights != 0).any(axis=0).sum())


def _pixels(graph: IntegerGraph, conv: Conv) -> int:
    output = graph.tensors[conv.output]
    return output.height * output.width


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
    random: np.random.Generator, like: NDArray[np.int8], density: float, spread: float, rows: bool
) -> NDArray[np.int8]:
    """Keep the largest of random sizes; where `like` has no weight in any filter (padding), none either."""
    filters, channels = like.shape[:2]
    size = np.abs(random.standard_normal(like.shape))
    size *= random.lognormal(0, spread, (filters, 1, 1, 1))
    size *= random.lognormal(0, spread, (1, channels, 1, 1))
    possible = np.broadcast_to((like != 0).any(axis=0), like.shape)
    size = np.where(possible, size, -1.0)
    candidates = size.reshape(filters if rows else 1, -1)
    # Whole numbers that add up to the density of the layer.
    counts = np.diff(np.round(np.linspace(0, density * int(possible.sum()), len(candidates) + 1)).astype(int))
    ranks = np.argsort(np.argsort(-candidates, axis=1), axis=1)
    kept = (ranks < counts[:, np.newaxis]).reshape(like.shape)
    magnitude = np.clip(np.round(size / size.max() * _LARGEST_DIGIT), 1, _LARGEST_DIGIT)
    sign = random.choice(np.array([-1, 1]), like.shape)
    return np.where(kept, magnitude * sign, 0).astype(np.int8)
