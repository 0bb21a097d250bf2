"""ONNX import: what is refused or damaged says so, and why."""

from __future__ import annotations

import numpy as np
import onnx
import pytest
from onnx import TensorProto, helper
from onnx_net import Net

from espalier.errors import ModelFileError, UnsupportedModelError
from espalier.frontend import load_onnx


def refuse_all(net, tmp_path, *texts, **arguments):
    with pytest.raises(UnsupportedModelError) as caught:
        load_onnx(net.save(tmp_path / "net.onnx", **arguments))
    for text in texts:
        assert text in str(caught.value)
    return str(caught.value)


def test_all_offending_nodes_are_named_at_once(tmp_path):
    net = Net((1, 4, 8, 8))
    net.add("LeakyRelu")
    net.conv(4, 4, pads=[1] * 4)  # behind a refused node: judged by the shape that ONNX infers
    net.add("Sigmoid")
    net.conv(2, 4, first="x", group=2, pads=[1] * 4)
    net.add("AveragePool", first="x", kernel_shape=[3, 3], pads=[1] * 4)
    for name in ("t2", "t3"):
        net.add("Add", name)
    text = refuse_all(
        net,
        tmp_path,
        "4 nodes",
        "n0 (LeakyRelu): operator is not supported",
        "n2 (Sigmoid)",
        "n3 (Conv): 2 groups; supported is 1",
        "n4 (AveragePool): padding does not count",
        "Supported operators: Add, AveragePool",
    )
    assert "n1" not in text


def test_a_chain_of_offending_nodes_is_named_at_once(tmp_path):
    net = Net((1, 4, 8, 8))
    for _ in range(3):
        net.conv(1, 4, group=4)
        net.add("HardSwish")
    net.add("Flatten")
    net.add("Gemm", net.random(16, 5))
    text = refuse_all(
        net, tmp_path, "6 nodes", *(f"n{i} (Conv): 4 groups" for i in (0, 2, 4)), "n5 (HardSwish)"
    )
    assert "n7" not in text


@pytest.mark.parametrize(
    ("build", "reason"),
    [
        (lambda n: n.conv(3, 2, (9, 9)), "kernel 9x9"),
        (lambda n: n.conv(3, 2, strides=[3, 3]), "stride 3x3"),
        (lambda n: n.conv(3, 2, strides=[1, 2]), "stride 1x2"),
        (lambda n: n.conv(3, 2, dilations=[1, 2]), "dilation 1x2"),
        (lambda n: n.conv(3, 2, dilations=[9, 9]), "exceeds the map 12x12"),
        (lambda n: n.conv(4, 2), "do not fit an input of 3 channels"),
        (lambda n: n.conv(3, 2, pads=[-1, 0, 0, 0]), "not negative"),
        (lambda n: n.add("Conv", "x"), "must be a constant"),
        (lambda n: n.add("Clip", n.const(0.0), n.const(6.0)), "limits 0 to 6"),
        (lambda n: n.add("Clip"), "limits -inf to inf"),
        (lambda n: n.add("Mul", "x"), "combines two maps"),
        (lambda n: n.add("Mul", n.random(12, 12)), "not one number per channel"),
        (lambda n: n.add("Div", "x", first=n.const(1.0)), "divides a constant"),
        (lambda n: n.add("Div", n.const(0.0)), "not finite"),
        (lambda n: n.add("ReduceMean", axes=[2]), "axes [2]"),
        (lambda n: n.add("ReduceMean"), "axes all"),
        (lambda n: n.add("Gemm", n.random(3, 4)), "put a Flatten before it"),
        (lambda n: n.add("Transpose", perm=[0, 2, 3, 1]), "N x C x H x W"),
        (lambda n: n.add("Reshape", n.const([3, 144], np.int64)), "supported is a vector"),
        (lambda n: n.add("Flatten", axis=2), "axis 2"),
        (lambda n: n.add("MaxPool", kernel_shape=[2, 2], dilations=[2, 2]), "dilation 2"),
        (lambda n: n.add("MaxPool", kernel_shape=[2, 2, 2]), "3 spatial dimensions"),
        (lambda n: n.add("MaxPool", kernel_shape=[2, 2], pads=[2, 2, 2, 2]), "not smaller than the kernel"),
        (
            lambda n: n.add("AveragePool", kernel_shape=[3, 3], strides=[2, 2], ceil_mode=1),
            "ceil_mode",
        ),
        (lambda n: n.add("Pad", n.const([0] * 8, np.int64), mode="edge"), "mode edge"),
        (lambda n: n.add("Pad", n.const([0, 1] * 4, np.int64)), "padding of height and width"),
        (lambda n: n.add("Pad", n.const([0] * 8, np.int64), n.const(1.0)), "other than zero"),
        (lambda n: n.norm(3, training_mode=1), "training mode"),
        (lambda n: n.norm(4), "do not fit 3 channels"),
        (lambda n: (n.add("Flatten"), n.norm(432)), "no channels of its own"),
        (lambda n: (n.add("Flatten"), n.add("Gemm", n.random(5, 2))), "do not fit an input of 432"),
        (lambda n: (n.add("Softmax", axis=1), n.add("Relu")), "it follows a Softmax"),
        (lambda n: n.add("Softmax", axis=3), "axis of the channels"),
        (lambda n: (n.conv(3, 3), n.add("Add", "x")), "supported are equal shapes"),
        (lambda n: n.add("Cast", to=TensorProto.INT64), "not floating point"),
        (lambda n: n.add("Special", domain="com.example"), "of domain 'com.example'"),
    ],
)
def test_refusals_say_why(build, reason, tmp_path):
    net = Net((1, 3, 12, 12))
    build(net)
    refuse_all(net, tmp_path, reason)


@pytest.mark.parametrize(
    ("shape", "reason"),
    [
        ((1, 3, "H", "W"), "1 x 3 x H x W: channels, height and width must be fixed"),
        ((4, 3, 8, 8), "batch size 1"),
        ((1, 3, 8), "supported is 1 x channels x height x width"),
    ],
)
def test_open_sizes_are_refused(shape, reason, tmp_path):
    net = Net(shape)
    net.conv(3, 2)
    refuse_all(net, tmp_path, reason)


def test_several_outputs_and_unknown_opsets_are_refused(tmp_path):
    net = Net()
    first = net.conv(3, 2)
    net.add("Relu")
    refuse_all(net, tmp_path, "2 outputs (t0, t1)", outputs=[first, "t1"])
    for opset in (6, 99):
        net = Net(opset=opset)
        net.conv(3, 2)
        refuse_all(net, tmp_path, f"opset {opset}")


def test_output_without_the_picture_is_refused(tmp_path):
    net = Net()
    net.add("Relu", first=net.random(1, 3))
    refuse_all(net, tmp_path, "does not depend on the picture")


@pytest.mark.parametrize("content", [b"", b"hello, world", b"\x08\x08", b"\x89PNG\r\n" + bytes(100)])
def test_files_that_are_no_networks(content, tmp_path):
    (tmp_path / "net.onnx").write_bytes(content)
    with pytest.raises(ModelFileError, match="no ONNX file"):
        load_onnx(tmp_path / "net.onnx")


def test_missing_files(tmp_path):
    with pytest.raises(ModelFileError, match="No such file"):
        load_onnx(tmp_path / "absent.onnx")


def test_truncated_and_damaged_files_give_clear_errors(tmp_path):
    net = Net()
    net.conv(3, 2)
    net.add("GlobalAveragePool")
    net.add("Flatten")
    net.add("Gemm", net.random(2, 2))
    path = net.save(tmp_path / "net.onnx")
    sound = path.read_bytes()
    rng = np.random.default_rng(0)
    for length in range(0, len(sound) - 1, 7):
        path.write_bytes(sound[:length])
        with pytest.raises((ModelFileError, UnsupportedModelError)):
            load_onnx(path)
    for position in rng.integers(0, len(sound), 400):
        damaged = bytearray(sound)
        damaged[position] ^= 1 << int(rng.integers(8))
        path.write_bytes(bytes(damaged))
        try:
            load_onnx(path)
        except (ModelFileError, UnsupportedModelError) as error:
            assert str(error)


@pytest.mark.parametrize(
    ("op", "inputs", "attributes", "message"),
    [
        ("Flatten", ["x"], {"axis": "one"}, "attribute axis of node n has type STRING instead of INT"),
        ("Conv", ["x"], {}, "node n of type Conv has 1 inputs"),
        ("Relu", ["nowhere"], {}, "reads nowhere, which nothing computes"),
    ],
)
def test_nodes_against_the_standard(op, inputs, attributes, message, tmp_path):
    net = Net()
    net.nodes.append(helper.make_node(op, inputs, ["y"], name="n", **attributes))
    net.last = "y"
    with pytest.raises(ModelFileError, match=message):
        load_onnx(net.save(tmp_path / "net.onnx"))


def test_text_that_is_not_utf8(tmp_path):
    path = Net(("batch_size", 3, 4, 4))
    path.add("Relu")
    path = path.save(tmp_path / "net.onnx")
    path.write_bytes(path.read_bytes().replace(b"batch_size", b"batch\xffsize"))
    with pytest.raises(ModelFileError, match="not UTF-8"):
        load_onnx(path)


def test_missing_weights_beside_the_network(tmp_path):
    net = Net((1, 3, 9, 9))
    net.conv(3, 200)
    model = net.model()
    onnx.save(model, tmp_path / "net.onnx", save_as_external_data=True, location="w.bin", size_threshold=0)
    assert load_onnx(tmp_path / "net.onnx").nodes[0].weights.shape == (200, 3, 3, 3)
    content = (tmp_path / "w.bin").read_bytes()
    (tmp_path / "w.bin").write_bytes(content[:1000])
    with pytest.raises(ModelFileError, match="k0"):
        load_onnx(tmp_path / "net.onnx")
    (tmp_path / "w.bin").unlink()
    with pytest.raises(ModelFileError, match=r"'w\.bin', which is missing"):
        load_onnx(tmp_path / "net.onnx")


@pytest.mark.parametrize("value", [np.nan, np.inf])
def test_weights_that_are_not_finite(value, tmp_path):
    net = Net()
    net.add("Conv", net.const(np.full((2, 3, 3, 3), value)))
    with pytest.raises(ModelFileError, match="initialiser k0 holds NaN or infinity in 54 of 54 places"):
        load_onnx(net.save(tmp_path / "net.onnx"))
