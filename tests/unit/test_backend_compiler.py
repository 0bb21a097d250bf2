"""Compiled programs, executed from their bytes, equal the integer semantics."""

import dataclasses

import numpy as np
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from espalier.arch.config import load_config
from espalier.backend.compiler import compile_graph
from espalier.backend.emulate import emulate
from espalier.backend.options import CompileOptions
from espalier.backend.synthetic import RandomNetwork
from espalier.errors import CapacityError, UnsupportedModelError
from espalier.numerics import run
from espalier.passes.space_to_depth import rearrange_picture

CONFIGS = {name: load_config(name) for name in ("tiny", "zcu104")}
ROOMY = {
    name: dataclasses.replace(
        config,
        **dict.fromkeys(("stream_depth_words", "table_depth_words"), 16384),
        **dict.fromkeys(("feature_depth_words", "feature_depth_rest_words"), 8192),
    )
    for name, config in CONFIGS.items()
}
RELAXED = settings(max_examples=25, deadline=None, suppress_health_check=list(HealthCheck))


def check(net, config, options=None):
    graph, picture = net.graph(), net.picture()
    expected = run(graph, picture)
    image = compile_graph(graph, config, options or CompileOptions())
    factor = image.metadata.preprocessing.get("space_to_depth", 1)
    actual = emulate(image, config, rearrange_picture(picture, factor, graph.tensors["input"].zero_point))
    for node in graph.nodes:
        np.testing.assert_array_equal(actual[node.output], expected[node.output], err_msg=node.name)
    return image


@st.composite
def conv_nets(draw):
    kernel = draw(st.tuples(st.integers(1, 7), st.integers(1, 7)))
    dilation = draw(st.integers(1, 2))
    pads = tuple(draw(st.integers(0, 3)) for _ in range(4))
    extent = [dilation * (k - 1) + 1 for k in kernel]
    height = draw(st.integers(max(1, extent[0] - pads[0] - pads[2]), 30))
    width = draw(st.integers(max(1, extent[1] - pads[1] - pads[3]), 30))
    net = RandomNetwork(
        draw(st.integers(1, 40)), height, width, draw(st.sampled_from([0, 7, 128])), draw(st.integers(0, 999))
    )
    net.conv(
        "input",
        draw(st.integers(1, 40)),
        kernel,
        draw(st.integers(1, 2)),
        pads,
        dilation,
        draw(st.sampled_from([0.0, 0.05, 0.3, 1.0])),
        draw(st.integers(1, 8)),
        zero_point=draw(st.sampled_from([0, 128])),
    )
    return net


@pytest.mark.parametrize("target", CONFIGS)
@RELAXED
@given(net=conv_nets(), reorder=st.booleans(), pad=st.booleans())
def test_random_convolutions(target, net, reorder, pad):
    check(net, ROOMY[target], CompileOptions(reorder, pad))


@RELAXED
@given(
    channels=st.integers(1, 24),
    seed=st.integers(0, 999),
    density=st.floats(0, 1),
    bits=st.sampled_from([3, 8]),
)
def test_sums_of_16_bits(channels, seed, density, bits):
    """The emulator refuses sums that do not fit; narrower ones need more parts."""
    net = RandomNetwork(channels, 9, 9, seed=seed)
    net.conv("input", 10, (3, 3), 1, (1, 1, 1, 1), density=density, bits=bits)
    check(net, dataclasses.replace(ROOMY["tiny"], pair_spacing_bits=16))


@pytest.mark.parametrize("target", CONFIGS)
@RELAXED
@given(
    channels=st.integers(1, 20),
    size=st.tuples(st.integers(3, 30), st.integers(3, 30)),
    kernel=st.tuples(st.integers(1, 3), st.integers(1, 3)),
    stride=st.integers(1, 2),
    pad=st.integers(0, 2),
    kind=st.sampled_from(["max", "average", "global"]),
    zero=st.sampled_from([0, 100]),
)
def test_random_pools(target, channels, size, kernel, stride, pad, kind, zero):
    net = RandomNetwork(channels, *size, zero_point=zero)
    rows, columns = min(pad, kernel[0] - 1), min(pad, kernel[1] - 1)
    net.pool("input", kind, kernel, stride, (rows, columns, rows, columns))
    check(net, CONFIGS[target])


@pytest.mark.parametrize("target", CONFIGS)
@RELAXED
@given(
    seed=st.integers(0, 999),
    size=st.integers(5, 24),
    zero=st.sampled_from([0, 128]),
    density=st.sampled_from([0.1, 0.5]),
    bits=st.sampled_from([4, 8]),
)
def test_chains_with_residuals_and_pools(target, seed, size, zero, density, bits):
    net = RandomNetwork(3, size, size + 3, zero_point=50, seed=seed)
    tensor = net.conv("input", 12, (5, 5), 2, (2, 2, 2, 2), density=density, bits=8, zero_point=zero)
    inner = net.conv(tensor, 9, pads=(1, 1, 1, 1), density=density, bits=bits)
    added = net.conv(inner, 12, pads=(1, 1, 1, 1), density=density, residual=tensor, zero_point=zero)
    net.pool(added, "max", (3, 3), 2, (1, 1, 1, 1))  # wants 0 outside the map, the next wants the zero point
    tensor = net.conv(added, 10, pads=(1, 1, 1, 1), density=density, bits=bits)
    tensor = net.pool(tensor, "average", (2, 2), 1, (0, 0, 1, 1))
    tensor = net.pool(tensor, "global")
    net.conv(tensor, 30, (1, 1), density=density, zero_point=100)
    check(net, CONFIGS[target], CompileOptions(store_all=True))


@pytest.mark.parametrize(("size", "zero", "copies"), [(13, 128, 1), (13, 0, 0), (14, 128, 0)])
def test_readers_that_disagree_about_padding_get_a_copy(size, zero, copies):
    net = RandomNetwork(3, size, size)
    tensor = net.conv("input", 5, (1, 1), zero_point=zero)
    net.pool(tensor, "max", (3, 3), 2, (1, 1, 1, 1))
    net.conv(tensor, 5, pads=(1, 1, 1, 1))
    layers = check(net, CONFIGS["zcu104"]).metadata.layers
    assert sum(layer.name.endswith(".copy") for layer in layers) == copies


def test_stride_four_becomes_stride_two():
    net = RandomNetwork(3, 40, 37, zero_point=9)
    net.conv("input", 8, (11, 11), 4, (2, 2, 2, 2), bits=8)
    image = check(net, ROOMY["zcu104"])
    assert image.metadata.preprocessing["space_to_depth"] == 2
    net = RandomNetwork(8, 20, 20)
    net.conv(net.conv("input", 8), 8, stride=4)
    with pytest.raises(UnsupportedModelError, match="stride 4"):
        compile_graph(net.graph(), CONFIGS["tiny"])


def test_whole_map_kernel():
    net = RandomNetwork(6, 14, 14)
    net.conv("input", 20, (14, 14), density=0.2)
    check(net, ROOMY["zcu104"])


@pytest.mark.parametrize(
    ("change", "message"),
    [
        ({"stream_depth_words": 64}, r"stream memory of PE \d\.\d: .* needs \d+ words.*64 \(\d+ too many\)"),
        ({"table_depth_words": 64}, r"requantisation table of branch \d: .*64 \(\d+ too many\)"),
        ({"feature_depth_words": 64}, r"feature memory: layer conv0 needs 600 words.*64 \(536 too many\)"),
        ({"program_depth_words": 64}, r"program memory: the network needs \d+ words"),
    ],
)
def test_capacity_errors_say_what_is_missing(change, message):
    net = RandomNetwork(20, 20, 20)
    tensor = net.conv("input", 130, pads=(1, 1, 1, 1), density=0.5)
    for _ in range(20):
        tensor = net.conv(tensor, 10, (1, 1), density=0.5)
    config = dataclasses.replace(CONFIGS["tiny"], feature_depth_words=8192, feature_depth_rest_words=8192)
    with pytest.raises(CapacityError, match=message):
        compile_graph(net.graph(), dataclasses.replace(config, **change))


def test_too_large_windows_are_refused():
    net = RandomNetwork(2, 40, 40)
    net.conv("input", 2, (25, 25), density=1)
    with pytest.raises(CapacityError, match="patterns"):
        compile_graph(net.graph(), CONFIGS["tiny"])


def test_reordering_saves_cycles():
    net = RandomNetwork(32, 21, 21)
    net.conv("input", 128, pads=(1, 1, 1, 1), density=0.2)
    graph = net.graph()
    fast = compile_graph(graph, CONFIGS["zcu104"])
    slow = compile_graph(graph, CONFIGS["zcu104"], CompileOptions(reorder=False))
    assert fast.metadata.predicted_cycles < slow.metadata.predicted_cycles
    assert fast.metadata.operators == slow.metadata.operators


def test_metadata_counts_what_the_user_wrote():
    net = RandomNetwork(3, 20, 20)
    net.conv("input", 8, (7, 7), 2, (3, 3, 3, 3), density=0.5, bits=8)
    graph = net.graph()
    layer = compile_graph(graph, CONFIGS["tiny"]).metadata.layers[0]
    assert layer.dense_macs == 8 * 3 * 49 * 100
    assert layer.effective_macs == np.count_nonzero(graph.nodes[0].weights) * 100
