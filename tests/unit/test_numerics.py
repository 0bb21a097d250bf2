"""Fast integer execution against a slow and obviously right one."""

from __future__ import annotations

import dataclasses
import itertools

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from espalier.arch.program import MULTIPLIER_SHIFTS, RESIDUAL_SHIFTS
from espalier.errors import InternalError
from espalier.ir.geometry import output_map
from espalier.ir.graph import Conv, IntegerGraph, Pool, Requantisation, Residual, Tensor
from espalier.numerics import Executor, conv, pool, requantise, run, run_output
from espalier.numerics.matrix import exact_matrix


def slow_requantise(acc, multiplier, shift, bias, zero, residual=None, residual_zero=0, stored=0):
    """One value, in Python integers, step by step as the architecture page says."""

    def saturate(value):
        return max(-(1 << 19), min((1 << 19) - 1, value))

    u = saturate(((acc + bias) * multiplier) >> MULTIPLIER_SHIFTS[shift])
    v = 0
    if residual is not None:
        v = saturate(((stored - residual_zero) * residual.multiplier) >> RESIDUAL_SHIFTS[residual.shift])
    return max(0, min(255, ((u + v + 128) >> 8) + zero))


def slow_node(node, picture, zero_in, zero_out, residual=None, residual_zero=0):
    """A node, pixel by pixel."""
    is_conv = isinstance(node, Conv)
    channels, height, width = picture.shape
    if is_conv:
        filters, _, *kernel = node.weights.shape
    elif node.kind == "global":
        filters, kernel = channels, [height, width]
    else:
        filters, kernel = channels, node.kernel
    dilation = node.dilation if is_conv else 1
    stride = node.stride
    top, left, _, _ = node.pads
    rows, columns = output_map((height, width), tuple(kernel), stride, node.pads, dilation)
    out = np.zeros((filters, rows, columns), np.uint8)
    for k, r, c in itertools.product(range(filters), range(rows), range(columns)):
        values = []
        for channel in range(channels) if is_conv else [k]:
            for ky, kx in itertools.product(range(kernel[0]), range(kernel[1])):
                y, x = r * stride - top + ky * dilation, c * stride - left + kx * dilation
                inside = 0 <= y < height and 0 <= x < width
                pad = 0 if not is_conv and node.kind == "max" else zero_in
                pixel = int(picture[channel, y, x]) if inside else pad
                values.append(pixel * int(node.weights[k, channel, ky, kx]) if is_conv else pixel)
        acc = max(values) if not is_conv and node.kind == "max" else sum(values)
        q, index = node.requantisation, k if is_conv else 0
        rest = (node.residual, residual_zero, int(residual[k, r, c])) if is_conv and node.residual else ()
        out[k, r, c] = slow_requantise(
            acc, int(q.multiplier[index]), int(q.shift[index]), int(q.bias[index]), zero_out, *rest
        )
    return out


def random_requantisation(rng, count):
    return Requantisation(
        multiplier=rng.integers(0, 1 << 17, count),
        shift=rng.integers(0, 4, count),
        bias=rng.integers(-(1 << 13), 1 << 13, count),
    )


@st.composite
def convs(draw):
    rng = np.random.default_rng(draw(st.integers(0, 2**32)))
    kernel = draw(st.integers(1, 4)), draw(st.integers(1, 4))
    channels, filters = draw(st.integers(1, 3)), draw(st.integers(1, 3))
    dilation, stride = draw(st.integers(1, 2)), draw(st.integers(1, 2))
    pads = tuple(draw(st.integers(0, 3)) for _ in range(4))
    high = draw(st.sampled_from([1, 7, 119]))
    size = [(k - 1) * dilation + 1 + draw(st.integers(0, 4)) for k in kernel]
    weights = rng.integers(-high, high + 1, (filters, channels, *kernel)).astype(np.int8)
    residual = Residual("r", int(rng.integers(0, 1 << 16)), int(rng.integers(0, 4)))
    node = Conv(
        name="c",
        input="x",
        output="y",
        weights=weights,
        requantisation=random_requantisation(rng, filters),
        stride=stride,
        pads=pads,
        dilation=dilation,
        residual=residual if draw(st.booleans()) else None,
        weight_bits=8 if high > 7 else 4,
    )
    picture = rng.integers(0, 256, (channels, *size)).astype(np.uint8)
    shape = (filters, *output_map(tuple(size), kernel, stride, pads, dilation))
    stored = rng.integers(0, 256, shape).astype(np.uint8)
    zeros = [int(z) for z in rng.integers(0, 256, 3)]
    return node, picture, zeros, stored


@settings(max_examples=60, deadline=None)
@given(convs())
def test_conv_equals_reference(case):
    node, picture, (zero_in, zero_out, zero_res), stored = case
    residual = stored if node.residual else None
    fast = conv(node, picture, zero_in, zero_out, residual, zero_res)
    assert np.array_equal(fast, slow_node(node, picture, zero_in, zero_out, residual, zero_res))


@settings(max_examples=60, deadline=None)
@given(st.integers(0, 2**32), st.sampled_from(["max", "average", "global"]), st.integers(1, 2))
def test_pool_equals_reference(seed, kind, stride):
    rng = np.random.default_rng(seed)
    kernel = tuple(int(k) for k in rng.integers(1, 4, 2))
    global_pool = kind == "global"
    node = Pool(
        name="p",
        input="x",
        output="y",
        kind=kind,
        requantisation=random_requantisation(rng, 1),
        kernel=(1, 1) if global_pool else kernel,
        stride=1 if global_pool else stride,
        pads=(0, 0, 0, 0) if global_pool else tuple(int(p) for p in rng.integers(0, 3, 4)),
    )
    picture = rng.integers(0, 256, (2, *(rng.integers(3, 8, 2)))).astype(np.uint8)
    zero_in, zero_out = (int(z) for z in rng.integers(0, 256, 2))
    assert np.array_equal(pool(node, picture, zero_in, zero_out), slow_node(node, picture, zero_in, zero_out))


@settings(max_examples=300, deadline=None)
@given(
    acc=st.integers(-(1 << 26), (1 << 26) - 1),
    multiplier=st.integers(0, (1 << 17) - 1),
    shift=st.integers(0, 3),
    bias=st.integers(-(1 << 26), (1 << 26) - 1),
    zero=st.integers(0, 255),
    residual=st.one_of(
        st.none(),
        st.tuples(st.integers(0, (1 << 16) - 1), st.integers(0, 3), st.integers(0, 255), st.integers(0, 255)),
    ),
)
def test_requantise_over_the_whole_range(acc, multiplier, shift, bias, zero, residual):
    from espalier.numerics import residual_table

    q = Requantisation(*(np.array([value], np.int64) for value in (multiplier, shift, bias)))
    if residual is None:
        got = requantise(np.array([[acc]]), q, zero)
        want = slow_requantise(acc, multiplier, shift, bias, zero)
    else:
        r = Residual("r", residual[0], residual[1])
        stored = np.array([[residual[3]]], np.uint8)
        got = requantise(np.array([[acc]]), q, zero, stored, residual_table(r, residual[2]))
        want = slow_requantise(acc, multiplier, shift, bias, zero, r, residual[2], residual[3])
    assert int(got[0, 0]) == want


@pytest.mark.parametrize(("value", "count", "parts"), [(7, 4000, 1), (119, 4000, 2), (127, 20000, 1)])
def test_products_are_exact_however_large(value, count, parts):
    """One float32 product, two digits, or float64: always the integer sum."""
    weights = np.full((2, count), value, np.int8)
    weights[1] *= -1
    matrix = exact_matrix(weights)
    assert len(matrix.parts) == parts
    columns = np.full((count, 3), 255, matrix.dtype)
    columns[0] = 254
    expected = weights.astype(np.int64) @ columns.astype(np.int64)
    assert np.array_equal((matrix @ columns).astype(np.int64), expected)


def small_graph(rng):
    """Two convolutions with a residual, every kind of pooling."""
    tensors = {}

    def tensor(name, *shape):
        tensors[name] = Tensor(name, *shape, scale=0.1, zero_point=int(rng.integers(0, 200)))

    def weights(*shape):
        return rng.integers(-7, 8, shape).astype(np.int8)

    def scaled(count, fan):
        # Multipliers that keep the bytes from saturating everywhere.
        return Requantisation(
            rng.integers(60000, 130000, count) // fan,
            np.full(count, 1, np.int64),
            rng.integers(-50, 50, count),
        )

    tensor("x", 3, 12, 12)
    tensor("a", 5, 6, 6)
    tensor("b", 5, 6, 6)
    tensor("m", 5, 3, 3)
    tensor("v", 5, 2, 2)
    tensor("g", 5, 1, 1)
    tensor("y", 4, 1, 1)
    nodes = [
        Conv("1", "x", "a", weights(5, 3, 3, 3), scaled(5, 27), 2, (1, 1, 1, 1)),
        Conv("2", "a", "b", weights(5, 5, 3, 3), scaled(5, 45), 1, (2, 2, 2, 2), 2, Residual("a", 200, 1)),
        Pool("3", "b", "m", "max", scaled(1, 1), (3, 3), 2, (1, 1, 1, 1)),
        Pool("4", "m", "v", "average", scaled(1, 4), (2, 2)),
        Pool("5", "v", "g", "global", scaled(1, 4)),
        Conv("6", "g", "y", weights(4, 5, 1, 1), scaled(4, 5)),
    ]
    return IntegerGraph("small", "x", "y", nodes, tensors)


def test_graph_runs_node_by_node():
    rng = np.random.default_rng(3)
    graph = small_graph(rng)
    pictures = rng.integers(0, 256, (7, 3, 12, 12)).astype(np.uint8)
    batch = run_output(graph, pictures)
    assert batch.shape == (7, 4, 1, 1)
    for picture, output in zip(pictures, batch, strict=True):
        values = run(graph, picture)
        assert set(values) == set(graph.tensors)
        assert np.array_equal(values["y"], output)
        for node in graph.nodes:
            residual, zero = None, 0
            if isinstance(node, Conv) and node.residual:
                residual, zero = values[node.residual.tensor], graph.tensors[node.residual.tensor].zero_point
            zeros = graph.tensors[node.input].zero_point, graph.tensors[node.output].zero_point
            assert np.array_equal(
                values[node.output], slow_node(node, values[node.input], *zeros, residual, zero)
            )
    assert len(np.unique(batch)) > 4


def test_groups_of_pictures_do_not_change_results(monkeypatch):
    rng = np.random.default_rng(4)
    graph = small_graph(rng)
    pictures = rng.integers(0, 256, (5, 3, 12, 12)).astype(np.uint8)
    whole = run_output(graph, pictures)
    monkeypatch.setattr("espalier.numerics.execute.GROUP_PIXELS", 300)
    monkeypatch.setattr("espalier.numerics.windows.COLUMN_ELEMENTS", 100)
    assert np.array_equal(run_output(graph, pictures), whole)


def test_wrong_pictures_are_refused():
    graph = small_graph(np.random.default_rng(0))
    with pytest.raises(InternalError, match=r"expected uint8\[N, 3, 12, 12\]"):
        run_output(graph, np.zeros((1, 3, 12, 11), np.uint8))


def test_accumulators_of_a_conv():
    graph = small_graph(np.random.default_rng(5))
    prepared = Executor(graph)._convs["2"]
    plain = dataclasses.replace(prepared.node, residual=None)
    maps = np.random.default_rng(6).integers(0, 256, (5, 2, 6, 6)).astype(np.uint8)
    total = prepared.accumulate(maps)
    got = requantise(total, plain.requantisation, prepared.output_zero)
    assert np.array_equal(got[:, 1], conv(plain, maps[:, 1], prepared.input_zero, prepared.output_zero))
