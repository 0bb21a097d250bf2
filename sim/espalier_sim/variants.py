"""Networks for timing: a network's own layers with random masks, and well-known shapes with random weights."""

from __future__ import annotations

import dataclasses
from collections.abc import Callable

import numpy as np
from numpy.typing import NDArray

from espalier.ir.graph import Conv, IntegerGraph

# Filters and channels of pruned networks differ in density; both spreads are of the logarithm.
FILTER_SPREAD, CHANNEL_SPREAD = 0.25, 0.25
_LARGEST_DIGIT = 7


def masked(graph: IntegerGraph, density: Callable[[int, Conv], float], seed: int = 0) -> IntegerGraph:
    """Copy a graph with random masks and random 4-bit weights in place of its own; for timing only.

    density: share of weights other than zero, from the position of a convolution and the convolution. Filters and
    input channels get more or fewer of them (log-normal, sigma 0.25 each), as pruning by magnitude leaves them.
    """
    random = np.random.default_rng(seed)
    nodes, index = [], 0
    for node in graph.nodes:
        if isinstance(node, Conv):
            weights = _weights(random, node.weights, density(index, node))
            node = dataclasses.replace(node, weights=weights, weight_bits=4)
            index += 1
        nodes.append(node)
    return dataclasses.replace(graph, nodes=nodes)


def first_and_rest(first: float, rest: float) -> Callable[[int, Conv], float]:
    """Density of the first convolution, and that of all others."""
    return lambda index, _: first if index == 0 else rest


def _weights(random: np.random.Generator, like: NDArray[np.int8], density: float) -> NDArray[np.int8]:
    """Keep the largest of random sizes; where `like` has no weights in any filter (padding of a kernel) neither."""
    filters, channels = like.shape[:2]
    size = np.abs(random.standard_normal(like.shape))
    size *= random.lognormal(0, FILTER_SPREAD, (filters, 1, 1, 1))
    size *= random.lognormal(0, CHANNEL_SPREAD, (1, channels, 1, 1))
    possible = np.broadcast_to((like != 0).any(axis=0), like.shape)
    size = np.where(possible, size, -1.0)
    count = round(density * int(possible.sum()))
    threshold = np.partition(size.reshape(-1), -count)[-count] if count else np.inf
    magnitude = np.clip(np.round(size / size.max() * _LARGEST_DIGIT), 1, _LARGEST_DIGIT)
    sign = random.choice(np.array([-1, 1]), like.shape)
    return np.where(size >= threshold, magnitude * sign, 0).astype(np.int8)
