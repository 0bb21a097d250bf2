"""Choices judged by the whole program: never slower, and the same network."""

from __future__ import annotations

import dataclasses

import numpy as np

from espalier.arch.config import load_config
from espalier.backend.compiler import compile_graph, lower_integer_graph
from espalier.backend.emulate import emulate
from espalier.backend.options import CompileOptions
from espalier.backend.synthetic import RandomNetwork
from espalier.numerics import run

CONFIG = load_config("tiny")
REFINE = CompileOptions(refine=True)


def network(seed=4):
    """Two blocks, the second one with a shortcut that can change places with the convolution before it."""
    net = RandomNetwork(4, 12, 12, seed=seed)
    same = {"kernel": (3, 3), "pads": (1, 1, 1, 1)}
    first = net.conv("input", 8, **same)
    second = net.conv(net.conv(first, 8, **same), 8, residual=first, **same)
    inner = net.conv(second, 12, stride=2, **same)
    shortcut = net.conv(second, 12, (1, 1), 2)
    net.conv(net.conv(inner, 12, residual=shortcut, **same), 6)
    return net.graph()


def test_refined_programs_are_no_slower_and_compute_the_same():
    gains = []
    for seed in range(3):
        graph = network(seed)
        plain, refined = (compile_graph(graph, CONFIG, own) for own in (CompileOptions(), REFINE))
        gains.append(plain.metadata.predicted_cycles - refined.metadata.predicted_cycles)
        names = [{layer.name for layer in image.metadata.layers} for image in (plain, refined)]
        assert names[0] == names[1]
        picture = np.random.default_rng(seed).integers(0, 256, (4, 12, 12), dtype=np.uint8)
        expected = run(lower_integer_graph(graph, CONFIG), picture)
        found = emulate(refined, CONFIG, picture)
        for layer in refined.metadata.layers:
            assert np.array_equal(found[layer.output], expected[layer.output]), layer.name
    assert min(gains) >= 0
    assert max(gains) > 0


def test_equal_networks_are_refined_alike_and_progress_comes_to_an_end():
    steps = []
    first = compile_graph(network(), CONFIG, REFINE)
    second = compile_graph(network(), CONFIG, REFINE, lambda *step: steps.append(step))
    assert first.program == second.program
    done = [(done, total) for text, done, total in steps if text.startswith("refining")]
    assert done == sorted(done)
    assert done[-1][0] == done[-1][1]


def test_memories_are_respected():
    graph = network()
    words = next(own.used for own in compile_graph(graph, CONFIG).metadata.memory if own.memory == "stream")
    short = dataclasses.replace(CONFIG, stream_depth_words=max(64, words))
    image = compile_graph(graph, short, REFINE)
    assert all(own.used <= own.available for own in image.metadata.memory)
