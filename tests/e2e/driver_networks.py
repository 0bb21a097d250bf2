"""Small networks for tests of the driver."""

from __future__ import annotations

from functools import lru_cache

from espalier.arch.config import load_config
from espalier.backend.compiler import compile_graph
from espalier.backend.synthetic import RandomNetwork
from espalier.runtime.model import Model

CONFIG = load_config("tiny")
SIDE = 15


def classifier_graph(seed=0, filters=6, classes=10, layers=1):
    """A network that takes pictures of 15x15 pixels and tells 10 classes apart."""
    network = RandomNetwork(3, SIDE, SIDE, seed=seed, name=f"classifier{seed}")
    tensor = "input"
    for _ in range(layers):
        tensor = network.conv(tensor, filters, (3, 3), 1, (1, 1, 1, 1), density=0.5)
    tensor = network.pool(tensor, "max", (2, 2), 2)
    network.conv(network.pool(tensor, "global"), classes, (1, 1), density=0.9)
    graph = network.graph()
    graph.metadata.update(
        picture_size=[SIDE, SIDE], preprocessing="crop", labels=[f"class {n}" for n in range(classes)]
    )
    return graph


@lru_cache
def classifier(seed=0, filters=6, layers=1):
    """The same network compiled for `tiny`, with its graph."""
    graph = classifier_graph(seed, filters, layers=layers)
    return Model(compile_graph(graph, CONFIG), CONFIG, graph)
