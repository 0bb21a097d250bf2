"""Networks that do not fit the feature memory: rings, strips in DDR, and what they must wait for."""

import dataclasses
import itertools

import numpy as np
import pytest

from espalier.arch.config import load_config
from espalier.arch.feature_layout import ring_rows, tile_positions
from espalier.arch.program import RING_CODES, Follows, Opcode, ring_code, ring_words
from espalier.backend.compiler import compile_graph
from espalier.backend.decode import descriptors_of, load_sections
from espalier.backend.emulate import Emulator, emulate
from espalier.backend.options import CompileOptions
from espalier.backend.synthetic import RandomNetwork, tall_network
from espalier.errors import CapacityError, InternalError
from espalier.numerics import run
from espalier.passes.space_to_depth import rearrange_picture

TINY = dataclasses.replace(
    load_config("tiny"), feature_rings=1, program_depth_words=4096, stream_depth_words=16384
)


def small(words):
    return dataclasses.replace(TINY, feature_depth_words=words, feature_depth_rest_words=words)


def check(net, config):
    """Compile, and compare what the program's bytes compute; returns the image and its descriptors."""
    graph, picture = net.graph(), net.picture()
    image = compile_graph(graph, config)
    factor = image.metadata.preprocessing.get("space_to_depth", 1)
    found = emulate(image, config, rearrange_picture(picture, factor, graph.tensors["input"].zero_point))
    expected = run(graph, picture)
    for node in graph.nodes:
        np.testing.assert_array_equal(found[node.output], expected[node.output], err_msg=node.name)
    return image, steps_of(image, config)


def steps_of(image, config):
    return list(descriptors_of(load_sections(image.program, config), config))


def conv_and_pool(height=64):
    net = RandomNetwork(4, height, 16)
    tensor = net.conv("input", 16, pads=(1, 1, 1, 1))
    net.pool(tensor, "max", (3, 3), 2, (1, 1, 1, 1))
    return net


def residual_net():
    """Four tensors of 96 words a bank."""
    net = RandomNetwork(16, 64, 12)
    first = net.conv("input", 16, pads=(1, 1, 1, 1))
    second = net.conv(first, 16, pads=(1, 1, 1, 1))
    net.conv(second, 16, pads=(1, 1, 1, 1), residual=first)
    return net


def test_random_networks():
    seen = {"strips": 0, "rings": 0, "DDR": 0, "behind a pool": 0, "residuals": 0}
    for seed in range(10):
        needed = compile_graph(tall_network(seed).graph(), small(2048)).metadata.memory[0].used
        for share in (0.75, 0.5):
            try:
                image, steps = check(tall_network(seed), small(max(64, int(share * needed))))
            except CapacityError:
                continue
            strips = [step.fields for step in steps if step.fields["more"]]
            seen["strips"] += bool(strips)
            seen["rings"] += any(fields["out_ring"] for fields in strips)
            seen["DDR"] += image.scratch_bytes > 0
            seen["behind a pool"] += any(fields["wait_pool"] for fields in strips)
            seen["residuals"] += any(fields["residual"] for fields in strips)
    assert min(seen.values()) >= 1, seen


@pytest.mark.parametrize("build", [conv_and_pool, residual_net])
def test_a_network_that_fits_is_compiled_as_without_rings(build):
    graph = build().graph()
    config = dataclasses.replace(TINY, feature_rings=0, feature_depth_rest_words=1024)
    without = compile_graph(graph, config)
    assert compile_graph(graph, dataclasses.replace(config, feature_rings=1)).program == without.program
    assert without.scratch_bytes == 0


@pytest.mark.parametrize("options", [CompileOptions(store_all=True), CompileOptions()])
def test_what_needs_rings_says_what_is_missing(options):
    config = dataclasses.replace(small(64), feature_rings=int(options.store_all))
    with pytest.raises(CapacityError, match="feature memory"):
        compile_graph(conv_and_pool().graph(), config, options)


def test_a_ring_between_convolution_and_pool_saves_ddr():
    """Whole it would need 192 words a bank, beside 48 for the picture and 48 for the pooled tensor."""
    image, steps = check(conv_and_pool(), small(160))
    assert image.scratch_bytes == 0
    convs = [step.fields for step in steps if step.opcode == Opcode.CONV]
    assert len(convs) > 1
    assert {ring_words(fields["out_ring"]) for fields in convs} == {64}
    assert [fields["more"] for fields in convs] == [1] * (len(convs) - 1) + [0]


def test_residuals_come_from_ddr():
    image, steps = check(residual_net(), small(160))
    tensors = image.metadata.tensors
    stored = [step.fields for step in steps if step.opcode == Opcode.STORE and step.fields["scratch"]]
    loaded = [step.fields for step in steps if step.opcode == Opcode.LOAD and step.fields["scratch"]]
    assert stored and loaded
    words = sum(fields["dram_words"] for fields in stored)
    assert words * TINY.word_beats * TINY.axi_bytes == image.scratch_bytes
    assert all(own.ring in (0, *map(ring_words, range(1, RING_CODES))) for own in tensors.values())


def test_an_output_goes_over_its_residual_if_nothing_else_fits():
    """Without DDR: the last convolution writes where its residual lies."""
    net = RandomNetwork(2, 16, 12)
    first = net.conv("input", 16, pads=(1, 1, 1, 1))
    second = net.conv(first, 16, pads=(1, 1, 1, 1))
    third = net.conv(second, 16, pads=(1, 1, 1, 1), residual=first)
    net.conv(third, 2, (1, 1))
    config = dataclasses.replace(small(68), feature_rings=0)
    image, _ = check(net, config)
    tensors = image.metadata.tensors
    assert tensors[third].base == tensors[first].base
    wide, _ = check(net, dataclasses.replace(small(256), feature_rings=0))
    assert wide.metadata.tensors[third].base != wide.metadata.tensors[first].base


def change(steps, choose, **fields):
    """Change fields of the first descriptor that `choose` accepts, behind the beginning."""
    step = next(step for number, step in enumerate(steps) if number > 1 and choose(step))
    step.fields.update(fields)


def strip_of(opcode):
    return lambda step: step.opcode == opcode and step.fields["out_ring"]


@pytest.mark.parametrize(
    ("build", "words", "choose", "fields", "message"),
    [
        (conv_and_pool, 160, lambda s: s.fields["wait_pool"], {"wait_pool": 0}, "pool unit may still use"),
        (residual_net, 160, lambda s: s.fields["wait_store"], {"wait_store": 0, "barrier": 0}, "STORE may"),
        (residual_net, 160, lambda s: s.fields["follows_layer"], {"follows_layer": 99}, "LOAD may"),
        (residual_net, 160, lambda s: s.fields["more"], {"more": 0}, "more = 0 after tile row"),
        (residual_net, 160, lambda s: s.fields["scratch"], {"dram_offset": 1 << 20}, "scratch buffer has"),
    ],
)  # fmt: skip
def test_the_emulator_finds_what_is_missing(build, words, choose, fields, message):
    config = small(words)
    image = compile_graph(build().graph(), config)
    machine = Emulator(load_sections(image.program, config), config)
    sizes = {"input": image.input_bytes, "output": image.output_bytes, "scratch": image.scratch_bytes}
    machine.ddr = {name: np.zeros(size, np.uint8) for name, size in sizes.items()}
    steps = steps_of(image, config)
    changed = [step for step in steps if choose(step)]
    assert changed
    with pytest.raises(InternalError, match=message):
        for step in steps:
            if step in changed[1:]:
                step.fields.update(fields)
            machine.step(step)


@pytest.mark.parametrize("code", range(1, RING_CODES))
def test_rings_hold_as_many_rows_as_they_say(code):
    words, columns = ring_words(code), 5
    channels = words // 7
    assert ring_code(words) == code
    rows = ring_rows(columns, channels, words)
    bank, word = tile_positions(words, 2, channels, 3 * rows, columns, words)
    assert ((word >= words) & (word < 2 * words)).all()
    for first in range(2 * rows):
        held = np.stack([bank[first : first + rows], word[first : first + rows]]).reshape(2, -1)
        assert len(np.unique(held, axis=1).T) == held.shape[1]


def test_loads_are_told_apart():
    """A window must not wait for the next LOAD, nor go before its own."""
    _, steps = check(residual_net(), small(160))
    numbers = [step.fields["layer"] for step in steps if step.opcode == Opcode.LOAD]
    assert all(one != other for one, other in itertools.pairwise(numbers))
    for before, step in itertools.pairwise(steps):
        if step.fields["follows"] == Follows.LOAD and before.opcode == Opcode.LOAD:
            assert step.fields["follows_layer"] == before.fields["layer"]
