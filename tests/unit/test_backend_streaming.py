"""Streams from DDR: what is resident, how layers are cut into batches, and how programs are read back."""

from __future__ import annotations

import dataclasses

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from espalier import numerics
from espalier.arch.config import load_config
from espalier.arch.fields import pack, unpack
from espalier.arch.operators import OPERATORS_PER_WORD
from espalier.arch.program import MOST_BATCHES_AHEAD, SECTION_FIELDS, Opcode, SectionKind
from espalier.backend.chain import chain_streams, cut_points
from espalier.backend.compiler import compile_graph
from espalier.backend.decode import descriptors_of, load_sections
from espalier.backend.emulate import emulate
from espalier.backend.plan import Residence
from espalier.backend.streams import STREAM_WORD_BYTES, LayerStream
from espalier.backend.synthetic import RandomNetwork
from espalier.errors import CapacityError, ConfigError, InternalError, ModelFileError
from espalier.estimate.report import estimate_program

TINY = load_config("tiny")
ONE_PE = dataclasses.replace(
    TINY, streaming=True, stream_depth_words=64, branches=1, pes_per_branch=1, lut_branches=0, lut_pes=0
)


def config_of(depth):
    """A tiny accelerator with stream memories of so many words, and streaming."""
    return dataclasses.replace(TINY, streaming=True, stream_depth_words=depth)


def network():
    """Five convolutions of 30 to 170 stream words a PE, the last of them with a single tile."""
    net = RandomNetwork(8, 20, 20, seed=3)
    first = net.conv("input", 16, pads=(1, 1, 1, 1), density=0.5)
    second = net.conv(first, 24, pads=(1, 1, 1, 1), stride=2, density=0.5)
    third = net.conv(second, 24, pads=(1, 1, 1, 1), residual=second, density=0.7)
    fourth = net.conv(third, 32, pads=(0, 0, 0, 0), stride=2, density=0.7)
    net.conv(net.pool(fourth, "global"), 40, (1, 1), density=0.7)
    return net.graph()


@pytest.fixture(scope="module")
def graph():
    return network()


@pytest.mark.parametrize("depth", [96, 160, 300])
def test_a_network_that_does_not_fit_runs_anyway(graph, depth):
    with pytest.raises(CapacityError, match="stream memory"):
        compile_graph(graph, dataclasses.replace(config_of(depth), streaming=False))
    config = config_of(depth)
    image = compile_graph(graph, config)
    tensor = graph.tensors[graph.input]
    shape = tensor.channels, tensor.height, tensor.width
    picture = np.random.default_rng(0).integers(0, 256, shape, np.uint8)
    found, expected = emulate(image, config, picture), numerics.run(graph, picture)
    assert all(np.array_equal(found[name], expected[name]) for name in expected)
    memories = load_sections(image.program, config)
    assert memories.batches
    for number, batch in enumerate(memories.batches):
        assert number - MOST_BATCHES_AHEAD <= batch.left <= number
    steps = [step.opcode for step in descriptors_of(memories, config)]
    assert steps[:2] == [Opcode.LOAD, Opcode.STREAM]
    assert steps.count(Opcode.STREAM) == 1


def test_batches_are_whole_bursts_and_count_as_read(graph):
    config = config_of(160)
    image = compile_graph(graph, config)
    batches = load_sections(image.program, config).batches
    assert all(batch.beats % config.burst_beats == 0 for batch in batches)
    assert image.load_bytes % (config.burst_beats * config.axi_bytes) == 0
    streamed = sum(batch.beats for batch in batches) * config.axi_bytes
    assert image.metadata.streamed_bytes == streamed == len(image.program) - image.load_bytes
    assert estimate_program(image.program, config).ddr_read_bytes == image.input_bytes + streamed


def test_what_fits_stays_on_chip(graph):
    plain, streaming = compile_graph(graph, TINY), compile_graph(graph, config_of(4096))
    assert streaming.metadata.streamed_bytes == 0
    assert streaming.metadata.predicted_cycles == plain.metadata.predicted_cycles
    memories = load_sections(streaming.program, config_of(4096))
    assert all(step.opcode != Opcode.STREAM for step in descriptors_of(memories, config_of(4096)))
    # What PEs read is the same but for the memory behind it.
    for own, other in zip(memories.streams, load_sections(plain.program, TINY).streams, strict=True):
        assert np.array_equal(own, other[: len(own)])


def test_more_memory_means_less_to_load(graph):
    images = [compile_graph(graph, config_of(depth)).metadata for depth in (96, 160, 300, 4096)]
    cycles, streamed = ([getattr(i, name) for i in images] for name in ("predicted_cycles", "streamed_bytes"))
    assert cycles == sorted(cycles, reverse=True)
    assert streamed == sorted(streamed, reverse=True)
    assert cycles[0] > cycles[-1]


def test_tables_still_have_to_fit(graph):
    with pytest.raises(CapacityError, match="requantisation table of branch"):
        compile_graph(graph, dataclasses.replace(config_of(160), table_depth_words=64))


@given(st.lists(st.integers(1, 40), min_size=1, max_size=20), st.integers(1, 5), st.data())
def test_cuts_lie_behind_whole_blocks(blocks, tiles, data):
    blocks[0] += -sum(blocks) % OPERATORS_PER_WORD  # the nulls that fill the last word
    ends = np.cumsum(blocks)
    parts = data.draw(st.integers(1, tiles * len(blocks)))
    points = cut_points(ends, tiles, parts)
    loop = int(ends[-1]) // OPERATORS_PER_WORD
    assert (points[0], points[-1]) == (0, tiles * loop)
    assert (np.diff(points) >= 0).all()
    for point in points.tolist():
        operators = point % loop * OPERATORS_PER_WORD
        # Nearest block end before it is in its last word.
        assert any(operators - OPERATORS_PER_WORD < end <= operators for end in [0, *ends.tolist()])


def small_program(batches):
    """Chain of one PE: a layer of 5 blocks, walked 4 times, in so many batches."""
    loop = bytes(range(5 * STREAM_WORD_BYTES))
    header = {"filters": 1, "sets": 4, "blocks": 5}
    layer = LayerStream(header, loop, (4,), np.arange(1, 6) * OPERATORS_PER_WORD)
    return chain_streams([[layer, layer]], [Residence(batches), Residence(0)], ONE_PE, False)


def test_chain_of_one_pe():
    chained = small_program(10)
    assert len(chained.batches) == 10
    resident = len(chained.resident[0]) // STREAM_WORD_BYTES
    assert resident == 1 + 6 + 1  # a header to begin with, the second layer, the end


def test_a_part_larger_than_the_memory_is_an_error():
    layer = LayerStream({"sets": 1}, bytes(70 * STREAM_WORD_BYTES), (1,), np.array([420]))
    with pytest.raises(InternalError, match="batch 0 has 71 words for a PE, 62 are free"):
        chain_streams([[layer]], [Residence(1)], ONE_PE, False)


def ends_of_sections(program):
    """Positions of all END sections, that of the program load first."""
    found, position = [], 0
    while position < len(program):
        head = unpack(SECTION_FIELDS, int.from_bytes(program[position : position + 16], "little"))
        if head["kind"] == SectionKind.END:
            found.append(position)
            position += 16
            position += -position % 256
        else:
            content = head["words"] * (16 if head["kind"] == SectionKind.PROGRAM else STREAM_WORD_BYTES)
            position += 16 + -(-content // 16) * 16
    return found


@pytest.mark.parametrize(
    ("change", "message"),
    [
        ({"index": 0}, "overwrites what is still needed|waits for 0 batches"),
        ({"words": 0}, "waits for a batch that never comes"),
        ({"index": 200}, "waits for 200 batches"),
    ],
)
def test_damaged_batches_are_refused(graph, change, message):
    config = config_of(96)
    program = compile_graph(graph, config).program
    at = ends_of_sections(program)[12]
    head = unpack(SECTION_FIELDS, int.from_bytes(program[at : at + 16], "little"))
    word = pack(SECTION_FIELDS, head | change).to_bytes(16, "little")
    with pytest.raises(ModelFileError, match=message):
        load_sections(program[:at] + word + program[at + 16 :], config)


def test_configurations_without_streaming_are_what_they_were():
    assert dataclasses.replace(TINY, streaming=False).hash == TINY.hash
    assert dataclasses.replace(TINY, streaming=True).hash != TINY.hash
    with pytest.raises(ConfigError, match="streaming = 1, must be true or false"):
        dataclasses.replace(TINY, streaming=1)
