"""Layers that overlap in time: places of tensors, waits, and an independent check of both."""

import dataclasses
from contextlib import nullcontext

import numpy as np
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from espalier.arch.config import load_config
from espalier.arch.feature_layout import tile_positions
from espalier.arch.program import Follows, Opcode
from espalier.backend.compiler import compile_graph, lower_integer_graph
from espalier.backend.decode import descriptors_of, load_sections
from espalier.backend.emulate import Emulator, emulate
from espalier.backend.hazards import Waits, followed_layer, layer_waits, pools_in_place
from espalier.backend.memory import peak_words, place_tensors
from espalier.backend.options import CompileOptions
from espalier.backend.overlap_check import OverlapCheck
from espalier.backend.synthetic import RandomNetwork
from espalier.errors import CapacityError, InternalError
from espalier.ir.graph import Conv, Pool
from espalier.numerics import run

TINY, ZCU104 = load_config("tiny"), load_config("zcu104")


def chain(*steps, size=20, channels=6, seed=0):
    """Network of "c" (convolution), "r" (with the tensor before as residual), "m" (pool), "g" (global)."""
    net = RandomNetwork(channels, size, size, seed=seed)
    tensor = "input"
    for step in steps:
        if step in "cr":
            residual = tensor if step == "r" else None
            tensor = net.conv(tensor, channels, (3, 3), pads=(1, 1, 1, 1), residual=residual)
        elif step == "m":
            tensor = net.pool(tensor, "max", (3, 3), 2, (1, 1, 1, 1))
        else:
            tensor = net.pool(tensor, "global")
    return net


def layers_of(image, config):
    return [
        step for step in descriptors_of(load_sections(image.program, config), config)
        if step.opcode in (Opcode.CONV, Opcode.POOL)
    ]  # fmt: skip


def words_of(graph, placements, name):
    place, channels = placements[name], graph.tensors[name].channels
    return tile_positions(place.base, place.pitch, channels, place.tiles_y, place.tiles_x)


def all_words_of(graph, placements, name):
    """All words of all banks from a tensor's first to its last, also those in which it has no tile."""
    place = placements[name]
    banks, words = np.indices((9, place.words))
    return banks, place.base + words


def brute_force(graph, placements, waits, words_of=words_of):
    """What `OverlapCheck`, which knows addresses only, says of every layer."""
    check = OverlapCheck(dataclasses.replace(TINY, feature_depth_words=1024))
    start = {"layer": 0, "barrier": 1, "wait_store": 0}
    assert not check.load(start, words_of(graph, placements, graph.input), ("input", 0, 1))
    problems = []
    for index, node in enumerate(graph.nodes):
        follows, layer = followed_layer(graph, index, waits[index])
        fields = {
            "opcode": Opcode.CONV if isinstance(node, Conv) else Opcode.POOL,
            "layer": index,
            "barrier": waits[index].barrier,
            "wait_store": 0,
            "wait_pool": waits[index].wait_pool,
            "during_load": waits[index].during_load,
            "follows": follows,
            "follows_layer": layer,
        }
        for prefix, name in (("in", node.input), ("out", node.output)):
            place = placements[name]
            fields |= {f"{prefix}_base": place.base, f"{prefix}_pitch": place.pitch}
            fields[f"{prefix}_channels"] = graph.tensors[name].channels
        residual = node.residual if isinstance(node, Conv) else None
        other = words_of(graph, placements, residual.tensor) if residual else None
        words = [words_of(graph, placements, name) for name in (node.input, node.output)]
        problems.append(check.layer(fields, words[0], other, words[1]))
    return problems


@st.composite
def graphs(draw):
    """Branching networks of convolutions, with residuals, and pools."""
    size = draw(st.integers(5, 40))
    net = RandomNetwork(4, size, size, seed=draw(st.integers(0, 99)))
    names = ["input"]
    for _ in range(draw(st.integers(1, 9))):
        source = names[-1 - draw(st.integers(0, min(2, len(names) - 1)))]
        tensor = net.tensors[source]
        kind = draw(st.sampled_from(["conv", "conv", "residual", "max", "global"]))
        if kind == "global":
            names.append(net.pool(source, "global"))
        elif kind == "max":
            stride = draw(st.integers(1, 2))
            kernel = draw(st.integers(1, 5))
            names.append(net.pool(source, "max", (kernel, kernel), stride, (kernel // 2,) * 4))
        else:
            alike = [name for name in names if net.tensors[name].height == tensor.height]
            residual = draw(st.sampled_from(alike)) if kind == "residual" else None
            filters = net.tensors[residual].channels if residual else draw(st.integers(1, 12))
            names.append(net.conv(source, filters, (3, 3), pads=(1, 1, 1, 1), residual=residual))
    return net


@settings(max_examples=150, deadline=None, suppress_health_check=list(HealthCheck))
@given(net=graphs(), depth=st.sampled_from([64, 80, 160, 320, 1024]), overlap=st.booleans())
def test_waits_are_enough_for_every_address(net, depth, overlap):
    graph = lower_integer_graph(net.graph(), TINY)
    try:
        places = place_tensors(graph, dataclasses.replace(TINY, feature_depth_words=depth), overlap)
    except CapacityError:
        return
    assert peak_words(places) <= depth
    waits = layer_waits(graph, places, overlap)
    assert not any(brute_force(graph, places, waits))
    if not overlap:
        assert all(wait.barrier and not wait.wait_pool for wait in waits)
    # And none of them is in vain, but for words between the tiles of a tensor.
    found = brute_force(graph, places, waits, all_words_of)
    for index, wait in enumerate(waits):
        for name in ("barrier", "wait_pool"):
            if overlap and getattr(wait, name):
                fewer = [*waits]
                fewer[index] = dataclasses.replace(wait, **{name: False})
                assert brute_force(graph, places, fewer, all_words_of) != found


@settings(max_examples=15, deadline=None, suppress_health_check=list(HealthCheck))
@given(
    net=graphs(),
    depths=st.sampled_from([(64, 64), (120, 80), (120, 120), (1024, 960)]),
    mixed=st.booleans(),
    store_all=st.booleans(),
)
def test_random_networks_run_in_little_memory(net, depths, mixed, store_all):
    graph, picture = net.graph(), net.picture()
    config = dataclasses.replace(
        TINY,
        feature_depth_words=depths[0],
        feature_depth_rest_words=depths[1],
        branches=3 if mixed else 2,
    )
    try:
        image = compile_graph(graph, config, CompileOptions(store_all=store_all))
    except CapacityError:
        return
    expected, actual = run(graph, picture), emulate(image, config, picture)
    for node in graph.nodes:
        np.testing.assert_array_equal(actual[node.output], expected[node.output], err_msg=node.name)


def test_inputs_follow_their_writers():
    net = chain("c", "c", "m", "c", "m")
    net.conv("conv0", 5, (1, 1))  # older than the latest convolution
    graph = net.graph()
    free = Waits(False, False)
    assert [followed_layer(graph, index, free) for index in range(6)] == [
        (Follows.LOAD, 0),
        (Follows.BRANCHES, 0),
        (Follows.BRANCHES, 1),
        (Follows.POOL, 2),
        (Follows.BRANCHES, 3),
        (Follows.NOTHING, 0),
    ]
    assert followed_layer(graph, 1, Waits(True, False)) == (Follows.NOTHING, 0)


def test_a_residual_from_the_pool_unit_is_waited_for():
    graph = chain("c", "m", "r", "r").graph()
    places = place_tensors(graph, TINY)
    assert [wait.wait_pool for wait in layer_waits(graph, places, True)] == [False, False, True, False]
    waits = [Waits(False, False)] * 4
    assert brute_force(graph, places, waits)[2] == "the residual may still be written"


def test_resnet_stem_is_pooled_in_place_without_a_barrier():
    net = RandomNetwork(12, 112, 112)
    tensor = net.conv("input", 64, (1, 1), density=0.05)
    tensor = net.pool(tensor, "max", (3, 3), 2, (1, 1, 1, 1))
    inner = net.conv(tensor, 64, (3, 3), pads=(1, 1, 1, 1))
    net.conv(inner, 64, (3, 3), pads=(1, 1, 1, 1), residual=tensor)
    graph = net.graph()
    places = place_tensors(graph, ZCU104)
    assert peak_words(places) <= ZCU104.feature_depth_words
    assert pools_in_place(graph, places, 1)
    assert places[tensor].pitch == 6
    waits = layer_waits(graph, places, True)
    assert not any(wait.barrier for wait in waits)
    assert [wait.wait_pool for wait in waits] == [False, False, True, False]


def test_tensors_end_earlier_in_the_banks_of_the_other_rows():
    """Four tile rows are two, one and one: the large tensor must come last, where it saves most."""
    net = RandomNetwork(20, 16, 16)
    net.conv("input", 100, (1, 1))
    graph = net.graph()
    config = dataclasses.replace(TINY, feature_depth_words=480, feature_depth_rest_words=280)
    places = place_tensors(graph, config)
    assert (places["input"].words, places["conv0"].words) == (80, 400)
    assert (places["input"].base, places["conv0"].base) == (0, 80)
    assert emulate(compile_graph(graph, config), config, net.picture())
    for rows, depth, rest in (("second and third tile row", 480, 279), ("first tile row", 479, 280)):
        tight = dataclasses.replace(config, feature_depth_words=depth, feature_depth_rest_words=rest)
        with pytest.raises(CapacityError, match=f"conv0 needs .* of the {rows} of three .*1 too many"):
            place_tensors(graph, tight)


@pytest.mark.parametrize("size", [16, 23, 32])
@pytest.mark.parametrize("kernel", [2, 3, 5])
def test_pooling_in_place_loses_no_pixel(size, kernel):
    net = RandomNetwork(3, size, size)
    tensor = net.conv("input", 20, (3, 3), pads=(1, 1, 1, 1))
    pooled = net.pool(tensor, "max", (kernel, kernel), 2, (kernel // 2,) * 4)
    net.conv(pooled, 9, (3, 3), pads=(1, 1, 1, 1), residual=None)
    graph, picture = net.graph(), net.picture()
    roomy = place_tensors(graph, TINY)
    # Just enough for the input and what is pooled.
    tight = dataclasses.replace(
        TINY, feature_depth_words=roomy["input"].words + max(roomy[tensor].words, 2 * roomy[pooled].words)
    )
    image = compile_graph(graph, tight)
    steps = layers_of(image, tight)
    assert steps[1].fields["in_base"] == steps[1].fields["out_base"]
    actual, expected = emulate(image, tight, picture), run(graph, picture)
    for node in graph.nodes:
        np.testing.assert_array_equal(actual[node.output], expected[node.output], err_msg=node.name)


def test_barriers_come_where_memory_is_short():
    net = RandomNetwork(4, 16, 16)
    tensor = net.conv("input", 40, (1, 1))
    net.pool(tensor, "max", (3, 3), 1, (1, 1, 1, 1))  # not in place: its stride is 1
    graph = net.graph()
    places = place_tensors(graph, TINY)
    assert not any(wait.barrier for wait in layer_waits(graph, places, True))
    # The output over the input of the convolution, which nothing but a barrier makes sure has been read.
    words = places[tensor].words
    tight = dataclasses.replace(TINY, feature_depth_words=2 * words)
    places = place_tensors(graph, tight)
    waits = layer_waits(graph, places, True)
    assert [wait.barrier for wait in waits] == [False, True]
    assert not any(brute_force(graph, places, waits))
    waits[1] = Waits(False, False)
    assert "convolution may still use" in brute_force(graph, places, waits)[1]


def test_tensors_in_use_are_never_written_over():
    graph = chain("c", "c").graph()
    places = place_tensors(graph, TINY)
    places["conv1"] = dataclasses.replace(places["conv1"], base=places["conv0"].base)
    with pytest.raises(InternalError, match="still in use"):
        layer_waits(graph, places, True)


def test_without_overlap_every_layer_is_behind_a_barrier():
    net = chain("c", "m", "r", "c", "g", "c")
    graph, picture = net.graph(), net.picture()
    image = compile_graph(graph, TINY, CompileOptions(overlap=False))
    for step in layers_of(image, TINY):
        assert step.fields["barrier"] == 1
        assert step.fields["follows"] == Follows.NOTHING
    actual = emulate(image, TINY, picture)
    np.testing.assert_array_equal(actual[graph.output], run(graph, picture)[graph.output])


def test_pool_fields():
    net = RandomNetwork(5, 21, 8)
    net.pool(net.pool("input", "max", (3, 3), 2, (1, 1, 1, 1)), "global")
    for step, reduce in zip(layers_of(compile_graph(net.graph(), TINY), TINY), (0, 1), strict=True):
        fields, branch = step.fields, step.branches[0]
        assert step.opcode == Opcode.POOL
        assert fields["reduce"] == reduce
        assert (fields["pool_multiplier"] > 0) == bool(reduce)
        assert branch["group_mask"] == 1 << TINY.branches
        assert branch["run"] == 1
        assert branch["jump_y"] * fields["out_tiles_x"] + branch["jump_x"] == 1
        assert branch["jump_x"] < fields["out_tiles_x"] or fields["out_tiles_x"] == 1
        assert branch["channels"] == 5
        assert (branch["table_entries"], step.branches[1]["tiles"]) == (0, 0)


@pytest.mark.parametrize(
    ("name", "value", "message"),
    [("follows", 0, "may still write the input"), ("wait_pool", 0, "residual may still be written")],
)
def test_the_emulator_finds_missing_waits(name, value, message):
    net = chain("c", "m", "r")
    image = compile_graph(net.graph(), TINY)
    machine = Emulator(load_sections(image.program, TINY), TINY)
    machine.ddr["input"] = np.zeros(image.input_bytes, np.uint8)
    machine.ddr["output"] = np.zeros(image.output_bytes, np.uint8)
    steps = list(descriptors_of(machine.memories, TINY))
    step = next(s for s in steps if s.fields["residual"])
    step.fields[name] = value
    with pytest.raises(InternalError, match=message):
        for step in steps:
            machine.step(step)


def stored_and_pooled():
    """The pool works in place, over what is being stored."""
    return chain("c", "m", "c")


def stored_and_unread():
    """A pooled tensor that nobody reads; in little memory the next layer writes over it."""
    net = chain("c")
    net.pool("conv0", "max", (3, 3), 1, (1, 1, 1, 1))
    net.conv("conv0", 6, (3, 3), pads=(1, 1, 1, 1))
    return net


def stored_and_added():
    """In little memory the output lies over a residual tensor that is the latest one."""
    net = chain("c", "c")
    net.conv("conv0", 6, (3, 3), pads=(1, 1, 1, 1), residual="conv1")
    return net


@pytest.mark.parametrize(
    ("build", "depth", "waiting"),
    [
        (stored_and_pooled, 1024, ["max1"]),
        (stored_and_unread, 1024, []),
        (stored_and_unread, 64, ["conv2"]),
        (stored_and_added, 1024, []),
        (stored_and_added, 64, ["conv2"]),
    ],
)
def test_layers_wait_for_the_store_of_what_they_write_over(build, depth, waiting):
    net = build()
    graph, picture = net.graph(), net.picture()
    config = dataclasses.replace(TINY, feature_depth_words=depth, feature_depth_rest_words=depth)
    image = compile_graph(graph, config, CompileOptions(store_all=True))
    actual, expected = emulate(image, config, picture), run(graph, picture)
    for node in graph.nodes:
        np.testing.assert_array_equal(actual[node.output], expected[node.output], err_msg=node.name)
    names = [layer.name for layer in image.metadata.layers]
    steps = [step.fields for step in layers_of(image, config)]
    assert [names[own["layer"]] for own in steps if own["wait_store"]] == waiting
    # Without the wait the check complains; with the last tensor alone stored there is none.
    machine = Emulator(load_sections(image.program, config), config)
    machine.ddr["input"] = np.zeros(image.input_bytes, np.uint8)
    machine.ddr["output"] = np.zeros(image.output_bytes, np.uint8)
    with pytest.raises(InternalError, match="a STORE may still read") if waiting else nullcontext():
        for step in descriptors_of(machine.memories, config):
            step.fields["wait_store"] = 0
            machine.step(step)
    for step in layers_of(compile_graph(graph, config), config):
        assert not step.fields["wait_store"]


def test_pools_are_nodes_of_the_pool_unit():
    graph = lower_integer_graph(chain("c", "m", "c", "g").graph(), TINY)
    assert [isinstance(node, Pool) for node in graph.nodes] == [False, True, False, True]
