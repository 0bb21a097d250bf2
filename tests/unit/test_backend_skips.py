"""Runs that are left out: from the compiler to the emulation, and what the emulation refuses."""

import dataclasses

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from espalier.arch.config import load_config
from espalier.backend.compiler import compile_graph
from espalier.backend.decode import load_sections, read_stream
from espalier.backend.emulate import emulate
from espalier.backend.options import CompileOptions
from espalier.backend.streams import encode_operators
from espalier.backend.synthetic import RandomNetwork
from espalier.errors import InternalError
from espalier.numerics import run

TINY = dataclasses.replace(load_config("tiny"), stream_depth_words=4096)
END, SKIP = 1 << 10, 1 << 11


def compiled(channels, filters, density, seed, bits=3, reorder=True):
    net = RandomNetwork(channels, 8, 8, seed=seed)
    net.conv("input", filters, (3, 3), 1, (1, 1, 1, 1), density=density, bits=bits)
    return net, compile_graph(net.graph(), TINY, CompileOptions(reorder))


def loops(image):
    """Of every PE the operators of the only layer, and its stream words uint8[words, 9]."""
    for words in load_sections(image.program, TINY).streams:
        stream, stop = read_stream(words, 0)
        yield stream, words[1:stop]


@settings(deadline=None, max_examples=30)
@given(
    channels=st.integers(1, 30),
    filters=st.integers(1, 40),
    density=st.sampled_from([0.0, 0.02, 0.05, 0.1, 0.3]),
    seed=st.integers(0, 9999),
    bits=st.sampled_from([3, 8]),
    reorder=st.booleans(),
)
def test_sparse_layers_are_exact(channels, filters, density, seed, bits, reorder):
    net, image = compiled(channels, filters, density, seed, bits, reorder)
    graph, picture = net.graph(), net.picture()
    name = graph.nodes[0].output
    assert (emulate(image, TINY, picture)[name] == run(graph, picture)[name]).all()
    (layer,) = image.metadata.layers
    assert layer.operators + layer.null_operators > 0


def test_few_nulls_are_left():
    _, image = compiled(30, 40, 0.1, seed=1)
    (layer,) = image.metadata.layers
    skips = sum(int(stream.skip.sum()) for stream, _ in loops(image))
    assert skips > 5
    assert layer.null_operators < 0.07 * layer.operators


def tampered(image, change):
    """The image with operator codes changed: change(codes uint32, OperatorStream) -> whether it did."""
    for stream, words in loops(image):
        fields = (stream.weight & 15, stream.slot << 4, stream.tap << 8, stream.end_of_run * END)
        code = np.sum([*fields, stream.skip * SKIP], axis=0).astype(np.uint32)
        assert encode_operators(code) == words.tobytes()
        if change(code, stream):
            at = image.program.index(words.tobytes())
            program = image.program[:at] + encode_operators(code) + image.program[at + words.size :]
            return dataclasses.replace(image, program=program)
    raise AssertionError("no stream fits")


def inside_a_run(code, stream):
    place = np.flatnonzero((stream.end_of_run == 0) & (np.roll(stream.end_of_run, -1) == 0))
    other = np.flatnonzero(stream.skip)
    code[place[:1]] |= SKIP
    code[other[:1]] ^= SKIP
    return len(place) and len(other)


def in_the_first_block(code, stream):
    other = np.flatnonzero(stream.skip)
    place = np.flatnonzero(stream.end_of_run & (stream.run[:-1] == 0))
    code[place] |= SKIP
    code[other[:1]] ^= SKIP
    return len(other) and stream.filters > 1


def over_the_end_of_a_block(code, stream):
    others = np.flatnonzero(stream.skip)
    last = stream.end_of_run & ~stream.skip & (stream.run[:-1] % stream.filters == stream.filters - 1)
    place = np.flatnonzero(last & (stream.run[:-1] > stream.filters))
    place = place[place < others.max(initial=0)]
    code[place[:1]] |= SKIP
    code[others[-1:]] ^= SKIP
    return len(place) and len(others)


def one_too_few(code, stream):
    others = np.flatnonzero(stream.skip)
    code[others[:1]] ^= SKIP
    return len(others)


@pytest.mark.parametrize(
    ("change", "message"),
    [
        (inside_a_run, "inside a run"),
        (in_the_first_block, "first block of a set"),
        (over_the_end_of_a_block, "first run of a block"),
        (one_too_few, "runs, expected"),
    ],
)
def test_broken_rules_are_found(change, message):
    net, image = compiled(30, 12, 0.1, seed=2)
    with pytest.raises(InternalError, match=message):
        emulate(tampered(image, change), TINY, net.picture())
