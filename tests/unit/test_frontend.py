"""ONNX import: networks of every supported operator against ONNX's own reference evaluator."""

from __future__ import annotations

import itertools

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from onnx import TensorProto, helper
from onnx.reference import ReferenceEvaluator
from onnx_net import Net

from espalier.frontend import load_onnx
from espalier.ir.float_graph import FloatConv, FloatPool
from espalier.ir.geometry import node_output_shape
from espalier.numerics import float_run


def check(net, tmp_path, pictures=2, nodes=None, reference=None):
    """Import and compare with the reference evaluator (of `reference`, if given); returns the float graph."""
    graph = load_onnx(net.save(tmp_path / "net.onnx"))
    shape = graph.shapes[graph.input]
    x = net.rng.normal(size=(pictures, *shape)).astype(np.float32)
    values = float_run(graph, x, set(graph.shapes))
    evaluator = ReferenceEvaluator((reference or net).model())
    for picture, output in zip(x, values[graph.output], strict=True):
        expected = evaluator.run(None, {"x": picture[None]})[0]
        assert output.size == expected.size
        np.testing.assert_allclose(output.reshape(-1), expected.reshape(-1), rtol=1e-3, atol=1e-4)
    seen = {graph.input}
    for node in graph.nodes:
        assert node.input in seen
        assert graph.shapes[node.output] == node_output_shape(node, graph.shapes[node.input])
        if isinstance(node, FloatConv) and node.residual is not None:
            assert node.residual in seen
            assert graph.shapes[node.residual] == graph.shapes[node.output]
        seen.add(node.output)
    assert seen == set(graph.shapes)
    if nodes is not None:
        assert len(graph.nodes) == nodes
    return graph


def explicit_pads(mode, size, kernel, stride, dilation):
    """Padding that `auto_pad` stands for: top, left, bottom, right."""
    if mode == "VALID":
        return [0, 0, 0, 0]
    pads = [0, 0, 0, 0]
    for axis in range(2):
        outputs = -(-size[axis] // stride)
        total = max(0, (outputs - 1) * stride + (kernel[axis] - 1) * dilation + 1 - size[axis])
        smaller, larger = total // 2, total - total // 2
        first = smaller if mode == "SAME_UPPER" else larger
        pads[axis], pads[axis + 2] = first, total - first
    return pads


@settings(max_examples=60, deadline=None)
@given(data=st.data())
def test_conv_geometry(data, tmp_path_factory):
    kernel = [data.draw(st.integers(1, 4)) for _ in range(2)]
    dilation, stride = data.draw(st.integers(1, 2)), data.draw(st.integers(1, 2))
    size = [(k - 1) * dilation + 1 + data.draw(st.integers(0, 6)) for k in kernel]
    attributes = {"strides": [stride] * 2, "dilations": [dilation] * 2, "kernel_shape": kernel}
    mode = data.draw(st.sampled_from(["NOTSET", "VALID", "SAME_UPPER", "SAME_LOWER"]))
    if mode == "NOTSET":
        padding = {"pads": [data.draw(st.integers(0, 3)) for _ in range(4)]}
    else:  # the evaluator gets explicit padding: it does not resolve every mode rightly
        padding = {"pads": explicit_pads(mode, size, kernel, stride, dilation)}
    seed = data.draw(st.integers(0, 1000))
    net, reference = Net((1, 2, *size), seed=seed), Net((1, 2, *size), seed=seed)
    net.conv(2, 3, kernel, **attributes, **(padding if mode == "NOTSET" else {"auto_pad": mode}))
    reference.conv(2, 3, kernel, **attributes, **padding)
    check(net, tmp_path_factory.mktemp("conv"), nodes=1, reference=reference)


@pytest.mark.parametrize("mode", ["SAME_UPPER", "SAME_LOWER"])
def test_same_padding_with_dilation(mode, tmp_path):
    net = Net()
    net.conv(3, 2, (3, 3), auto_pad=mode, dilations=[2, 2])
    graph = load_onnx(net.save(tmp_path / "net.onnx"))
    assert graph.nodes[0].pads == (2, 2, 2, 2)


def reference_pool(x, kind, kernel, stride, pads, ceil):
    """Pooling window by window: [C, H, W]; a window must start inside the map or the padding before it."""
    fill = -np.inf if kind == "MaxPool" else 0.0
    size = x.shape[1:]
    whole = np.full((x.shape[0], *(s + 2 * k + 8 for s, k in zip(size, kernel, strict=True))), fill)
    whole[:, pads[0] : pads[0] + size[0], pads[1] : pads[1] + size[1]] = x
    counts = []
    for axis in range(2):
        extent = size[axis] + pads[axis] + pads[axis + 2] - kernel[axis]
        count = (-(-extent // stride) if ceil else extent // stride) + 1
        if (count - 1) * stride >= size[axis] + pads[axis]:
            count -= 1
        counts.append(count)
    out = np.zeros((x.shape[0], *counts))
    for r, c in itertools.product(*map(range, counts)):
        window = whole[:, r * stride : r * stride + kernel[0], c * stride : c * stride + kernel[1]]
        out[:, r, c] = window.max(axis=(1, 2)) if kind == "MaxPool" else window.mean(axis=(1, 2))
    return out


@settings(max_examples=80, deadline=None)
@given(data=st.data())
def test_pool_geometry(data, tmp_path_factory):
    kind = data.draw(st.sampled_from(["MaxPool", "AveragePool"]))
    kernel = [data.draw(st.integers(2, 4)) for _ in range(2)]
    stride = data.draw(st.integers(1, 2))
    size = [k + data.draw(st.integers(1, 6)) for k in kernel]
    pads = [data.draw(st.integers(0, k - 1)) for k in kernel * 2]
    ceil = data.draw(st.booleans()) if kind == "MaxPool" else False
    attributes = {"count_include_pad": 1} if kind == "AveragePool" else {}
    net = Net((1, 2, *size))
    net.add(kind, kernel_shape=kernel, strides=[stride] * 2, pads=pads, ceil_mode=int(ceil), **attributes)
    graph = load_onnx(net.save(tmp_path_factory.mktemp("pool") / "net.onnx"))
    x = net.rng.normal(size=(1, 2, *size)).astype(np.float32)
    expected = reference_pool(x[0], kind, kernel, stride, pads, ceil)
    np.testing.assert_allclose(float_run(graph, x)["t0"][0], expected, rtol=1e-4, atol=1e-5)
    assert graph.shapes["t0"] == expected.shape


def block(net, source, channels, filters, stride, norm=False):
    """A residual block, with a shortcut convolution where shapes change."""
    net.conv(channels, filters, first=source, pads=[1] * 4, strides=[stride] * 2)
    if norm:
        net.norm(filters)
    net.add("Relu")
    main = net.conv(filters, filters, pads=[1] * 4)
    main = net.norm(filters) if norm else main
    short = source
    if stride == 2 or channels != filters:
        short = net.conv(channels, filters, (1, 1), first=source, strides=[stride] * 2)
        short = net.norm(filters) if norm else short
    net.add("Add", short, first=main)
    return net.add("Relu")


@pytest.mark.parametrize("opset", [7, 9, 12, 13, 17, 21])
def test_residual_network(tmp_path, opset):
    net = Net(("N", 3, 16, 16), opset)
    net.conv(3, 4, pads=[1] * 4, bias=False)
    net.norm(4)
    net.add("Relu")
    first = net.add("MaxPool", kernel_shape=[3, 3], strides=[2, 2], pads=[1] * 4)
    block(net, block(net, first, 4, 4, 1, norm=True), 4, 6, 2, norm=True)
    net.add("GlobalAveragePool")
    net.add("Flatten")
    net.add("Gemm", net.random(10, 6), net.random(10), transB=1)
    net.add("Softmax", axis=1)
    source = net.save(tmp_path / "net.onnx")
    graph = load_onnx(source)
    assert [type(n).__name__[5:] for n in graph.nodes] == ["Conv", "Pool", *["Conv"] * 5, "Pool", "Conv"]
    assert sum(n.residual is not None for n in graph.nodes if isinstance(n, FloatConv)) == 2
    # The shortcut convolution runs first, the 3x3 convolution takes the sum.
    assert all(n.weights.shape[2] == 3 for n in graph.nodes if isinstance(n, FloatConv) and n.residual)
    assert "left out" in graph.metadata["notes"][0]
    x = net.rng.normal(size=(3, 3, 16, 16)).astype(np.float32)
    scores = float_run(graph, x)[graph.output][:, :, 0, 0]
    # The evaluator's batch normalisation of old opsets uses the statistics of the batch, wrongly.
    net.opset = max(opset, 17)
    expected = ReferenceEvaluator(net.model()).run(None, {"x": x})[0]
    shifted = np.exp(scores - scores.max(axis=1, keepdims=True))
    np.testing.assert_allclose(shifted / shifted.sum(axis=1, keepdims=True), expected, rtol=1e-3, atol=1e-5)


def test_norm_where_it_cannot_be_folded(tmp_path):
    net = Net((1, 3, 6, 6))
    net.norm(3)  # on the picture
    first = net.conv(3, 4)
    net.norm(4)  # its input is read again below
    net.add("Relu")
    net.add("Add", first)
    graph = check(net, tmp_path, nodes=4)
    assert graph.nodes[0].weights.shape == (3, 3, 1, 1)
    assert graph.nodes[2].relu


def test_two_norms_in_a_row_and_constants_per_channel(tmp_path):
    net = Net((1, 3, 5, 5))
    net.add("Sub", net.random(1, 3, 1, 1))
    net.add("Div", net.const([[[2.0]], [[3.0]], [[0.5]]]))
    net.conv(3, 4, bias=False)
    net.norm(4)
    net.norm(4)
    net.add("Mul", net.const(0.7))
    net.add("Add", net.random(4, 1, 1))
    constant = net.random(4, 1, 1)
    net.add("Sub", net.last, first=constant)
    check(net, tmp_path, nodes=2)


def test_activations_without_a_place_of_their_own(tmp_path):
    net = Net((1, 3, 6, 6))
    net.add("Relu")  # on the picture
    first = net.conv(3, 3, pads=[1] * 4)
    net.add("Relu")
    net.add("Clip", net.const(0.0))  # twice in a row
    net.add("Add", first)
    net.add("MaxPool", kernel_shape=[2, 2])
    net.add("Relu")
    graph = check(net, tmp_path, nodes=5)
    assert isinstance(graph.nodes[-1], FloatPool)
    assert not graph.nodes[-1].relu
    assert graph.nodes[-2].relu  # the maximum of what is not negative is not negative


def test_sums_without_a_convolution(tmp_path):
    net = Net((1, 3, 6, 6))
    net.add("Add", "x")  # doubles the picture
    pooled = net.add("AveragePool", kernel_shape=[2, 2], strides=[2, 2])
    other = net.add("MaxPool", first="t0", kernel_shape=[2, 2], strides=[2, 2])
    net.add("Add", pooled, first=other)
    third = net.conv(3, 3, (1, 1))
    net.add("Add", pooled, first=third)
    net.add("Add", other)
    net.add("Add", net.last)
    check(net, tmp_path)


@pytest.mark.parametrize("opset", [11, 13, 18])
@pytest.mark.parametrize("keep", [0, 1])
def test_means_and_views(tmp_path, opset, keep):
    net = Net((1, 4, 3, 3), opset)
    if opset >= 18:
        net.add("ReduceMean", net.const([2, 3], np.int64), keepdims=keep)
    else:
        net.add("ReduceMean", axes=[-1, -2], keepdims=keep)
    if keep:
        if opset >= 13:
            net.add("Squeeze", net.const([2, 3], np.int64))
        else:
            net.add("Squeeze", axes=[2, 3])
    net.add("Identity")
    net.add("Dropout")
    net.add("MatMul", net.random(4, 5))
    net.add("Add", net.random(5))
    net.add("Relu")
    if opset >= 13:
        net.add("Unsqueeze", net.const([2, 3], np.int64))
        net.conv(5, 2, (1, 1))
    check(net, tmp_path)


def test_flatten_of_a_map_is_a_convolution_with_its_kernel(tmp_path):
    net = Net((1, 3, 6, 4))
    net.add("AveragePool", kernel_shape=[2, 2], strides=[2, 2])
    net.add("Reshape", net.const([0, -1], np.int64))
    net.add("Gemm", net.random(18, 7), net.random(1, 7), alpha=0.5, beta=2.0)
    net.add("Relu")
    net.add("Gemm", net.random(7, 4))
    graph = check(net, tmp_path, nodes=3)
    assert graph.nodes[1].weights.shape == (7, 3, 3, 2)


@pytest.mark.parametrize("opset", [11, 13, 18])
def test_computed_shapes_are_constants(opset, tmp_path):
    """What older exporters write for `x.view(x.size(0), -1)`, and weights computed from constants."""
    net = Net(("batch", 2, 4, 4), opset)
    kernel = net.random(3, 3, 2, 5)
    net.nodes.append(helper.make_node("Transpose", [kernel], ["w"], perm=[3, 2, 0, 1]))
    net.last = "x"
    net.add("Conv", "w")
    features = net.last
    net.add("Shape")
    net.add("Gather", net.const(0, np.int64), axis=0)
    if opset < 13:
        net.add("Unsqueeze", axes=[0])
    else:
        net.add("Unsqueeze", net.const([0], np.int64))
    rest = net.const([-1], np.int64)
    net.nodes.append(helper.make_node("Concat", [net.last, rest], ["target"], axis=0))
    net.last = features
    net.add("Reshape", "target")
    net.add("Gemm", net.random(20, 3))
    check(net, tmp_path, nodes=2)


def test_padding_of_its_own_is_folded(tmp_path):
    net = Net((1, 3, 9, 9))
    sizes = net.const([0, 0, 1, 2, 0, 0, 3, 0], np.int64)
    padded = net.add("Pad", sizes)
    left = net.conv(3, 4, strides=[2, 2], pads=[0, 1, 0, 1])
    right = net.add("MaxPool", first=padded, kernel_shape=[3, 3], strides=[2, 2])
    right = net.conv(3, 4, (1, 1), first=right, pads=[0, 0, 0, 1])
    net.add("Add", left)
    net.add("Pad", net.const([0] * 8, np.int64))
    net.add("Pad", sizes)
    net.add("AveragePool", kernel_shape=[2, 2])
    net.add("Pad", sizes)
    net.add("Pad", sizes)
    graph = check(net, tmp_path, nodes=7)
    assert [n.pads for n in graph.nodes if n.stride == 2] == [(0, 0, 0, 0), (1, 3, 3, 1)]


def test_average_over_the_whole_map_is_global(tmp_path):
    net = Net((1, 3, 8, 8))
    net.add("AveragePool", kernel_shape=[8, 8], strides=[8, 8])
    graph = check(net, tmp_path, nodes=1)
    assert graph.nodes[0].kind == "global"


def test_stride_of_a_single_position_means_nothing(tmp_path):
    net = Net((1, 3, 5, 5))
    net.conv(3, 4, (5, 5), strides=[5, 5])
    net.add("GlobalMaxPool")
    graph = check(net, tmp_path, nodes=2)
    assert graph.nodes[0].stride == 1


def test_unused_nodes_do_not_matter(tmp_path):
    net = Net()
    first = net.conv(3, 2)
    net.add("Sigmoid")
    net.last = first
    check(net, tmp_path, nodes=1)


def test_half_precision_weights(tmp_path):
    net = Net((1, 3, 5, 5))
    half = net.const(net.rng.normal(size=(2, 3, 3, 3)), np.float16)
    net.nodes.append(helper.make_node("Cast", [half], ["w"], to=TensorProto.FLOAT))
    net.last = "x"
    net.add("Conv", "w")
    check(net, tmp_path, nodes=1)
