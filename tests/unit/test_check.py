"""The check of networks against targets: verdicts per node, memories, everything that is wrong at once."""

from collections import Counter
from dataclasses import replace

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from onnx_net import Net

from espalier.arch.config import load_config
from espalier.backend.compiler import compile_graph
from espalier.backend.synthetic import RandomNetwork
from espalier.check import check_model
from espalier.check.memory import least_memory
from espalier.check.network import check_network
from espalier.check.sizing import default_densities, size_graph
from espalier.compress import CompressOptions
from espalier.compress.parameters import dense_macs
from espalier.errors import CapacityError, ModelFileError
from espalier.frontend import load_onnx
from espalier.ir.check import check_graph
from espalier.ir.float_graph import FloatConv
from espalier.ir.graph import Conv
from espalier.ir.storage import save_graph

TINY, ZCU = load_config("tiny"), load_config("zcu104")
ASSUMED = {"density": 0.3, "bits": 3}


def check(net, tmp_path, config=TINY, assumed=ASSUMED, **arguments):
    report = check_model(str(net.save(tmp_path / "net.onnx", **arguments)), config, **assumed)
    return report, {node.name: node for node in report.nodes}


def residual_network():
    """Every way to run: layers, fused nodes, views, what is left out."""
    net = Net((1, 8, 20, 20))
    first = net.conv(8, 8, pads=[1] * 4)  # n0
    net.norm(8)  # n1
    net.add("Relu")  # n2
    pooled = net.add("MaxPool", kernel_shape=[2, 2], strides=[2, 2])  # n3
    net.conv(8, 8, pads=[1] * 4)  # n4
    net.add("Add", pooled)  # n5
    net.add("Relu")  # n6
    net.add("AveragePool", kernel_shape=[2, 2])  # n7
    net.add("Pad", net.const([0, 0, 1, 1, 0, 0, 1, 1], np.int64))  # n8
    net.conv(8, 4)  # n9
    net.add("GlobalAveragePool")  # n10
    net.add("Flatten")  # n11
    net.add("Gemm", net.random(4, 3))  # n12
    net.add("Softmax")  # n13
    assert first == "t0"
    return net


def test_every_node_has_a_verdict(tmp_path):
    report, nodes = check(residual_network(), tmp_path)
    assert report.runs and not report.problems
    units = {name: node.unit for name, node in nodes.items()}
    layers = {
        "n0": "conv",
        "n3": "pool",
        "n4": "conv",
        "n7": "conv",
        "n9": "conv",
        "n10": "pool",
        "n12": "conv",
    }
    assert {name: unit for name, unit in units.items() if unit in ("conv", "pool")} == layers
    fused = {name: node.into for name, node in nodes.items() if node.unit == "fused"}
    assert fused == {"n1": ("n0",), "n2": ("n0",), "n5": ("n4",), "n6": ("n4",), "n8": ("n9",)}
    assert {name for name, unit in units.items() if unit == "none"} == {"n11", "n13"}
    assert "3x3, 8 filters" in nodes["n0"].how and "average 2x2" in nodes["n7"].how
    assert any("Softmax" in note for note in report.notes)
    assert all(nodes[name].cycles > 0 for name in layers)
    assert sum(node.cycles or 0 for node in report.nodes) < report.cycles
    assert all(memory.fits for memory in report.memories)


def test_an_activation_behind_a_pool_goes_to_the_convolution_before_it(tmp_path):
    net = Net((1, 3, 12, 12))
    net.conv(3, 4)
    net.add("MaxPool", kernel_shape=[2, 2])
    net.add("Relu")
    _, nodes = check(net, tmp_path)
    assert nodes["n2"].into == ("n0",)


def test_a_padding_of_two_readers_is_fused_into_both(tmp_path):
    net = Net((1, 3, 12, 12))
    padded = net.add("Pad", net.const([0, 0, 1, 1, 0, 0, 1, 1], np.int64))
    net.conv(3, 4)
    net.conv(3, 4, first=padded)
    net.add("Add", "t1")
    _, nodes = check(net, tmp_path)
    assert nodes["n0"].into == ("n1", "n2")


def test_without_weights_nothing_is_assumed(tmp_path):
    net = Net((1, 3, 12, 12))
    net.add("GlobalAveragePool")
    report, _ = check(net, tmp_path)
    assert report.runs and report.cycles > 0 and report.assumption is None


def test_weights_that_do_not_fit_are_not_called_grouped(tmp_path):
    net = Net((1, 3, 12, 12))
    net.conv(4, 8)
    _, nodes = check(net, tmp_path)
    (problem,) = nodes["n0"].problems
    assert "do not fit an input of 3 channels" in problem.what and "dense" not in problem.advice


def test_nodes_that_cannot_be_fused_become_layers(tmp_path):
    net = Net((1, 3, 12, 12))
    net.add("Relu")
    _, nodes = check(net, tmp_path)
    assert nodes["n0"].unit == "conv" and "1x1, 3 filters" in nodes["n0"].how


def test_all_problems_are_listed_at_once(tmp_path):
    net = Net((1, 4, 60, 60))
    net.conv(4, 4, pads=[1] * 4)  # n0
    net.add("HardSwish")  # n1
    net.conv(1, 4, group=4, strides=[3, 3])  # n2: two reasons
    net.conv(4, 4, (9, 9))  # n3
    net.add("GroupNormalization", net.random(4), net.random(4), num_groups=2)  # n4: no inferred shape
    net.conv(4, 4097)  # n5
    net.add("Resize", "", "", net.const([1, 1, 2, 2]))  # n6
    net.add("LSTM", net.random(1, 4, 4), net.random(1, 4, 4))  # n7
    net.add("Relu")  # n8
    report, nodes = check(net, tmp_path)
    assert not report.runs and report.cycles is None
    assert [name for name, node in nodes.items() if node.runs is False] == [
        "n1",
        "n2",
        "n3",
        "n4",
        "n5",
        "n6",
        "n7",
    ]
    assert nodes["n8"].runs is None and nodes["n0"].runs
    reasons = {name: [problem.what for problem in node.problems] for name, node in nodes.items()}
    assert len(reasons["n2"]) == 2 and "4 groups" in reasons["n2"][0] and "stride 3x3" in reasons["n2"][1]
    assert "4097 filters" in reasons["n5"][0]
    assert "Relu" in nodes["n1"].problems[0].advice and "BatchNormalization" in nodes["n4"].problems[0].advice
    assert all(problem.advice for node in report.nodes for problem in node.problems)
    memory = next(memory for memory in report.memories if memory.memory == "feature")
    assert memory.at_least and memory.needed > 0


def test_reasons_of_one_convolution_do_not_hide_each_other(tmp_path):
    net = Net((1, 4, 20, 20))
    net.conv(2, 4, (9, 9), group=2, strides=[3, 1], dilations=[1, 2])
    _, nodes = check(net, tmp_path)
    texts = " ".join(problem.what for problem in nodes["n0"].problems)
    assert len(nodes["n0"].problems) == 4
    for reason in ("2 groups", "kernel 9x9", "stride 3x1", "dilation 1x2"):
        assert reason in texts


def test_memories_that_are_too_small_say_by_how_much(tmp_path):
    net = Net((1, 3, 90, 90))
    net.conv(3, 64, pads=[1] * 4)
    net.conv(64, 96, pads=[1] * 4)
    net.conv(96, 64, pads=[1] * 4)
    small = replace(TINY, stream_depth_words=256, table_depth_words=64)
    report, nodes = check(net, tmp_path, small, {"density": 0.12})
    memories = {memory.memory: memory for memory in report.memories}
    assert {name for name, memory in memories.items() if memory.fits is False} == set(memories)
    assert all(node.runs for node in nodes.values()) and not report.runs and report.cycles is None
    # The second layer reads 64 and writes 96 channels of 23x23 tiles: 8x8 words of each in every bank.
    assert (memories["feature"].needed, memories["feature"].available) == (10240, 1024)
    assert memories["feature"].detail == "layer n1"
    problems = [(problem.what, problem.advice) for problem in report.problems]
    assert len(problems) == len(set(problems)) == 3
    for (what, advice), name in zip(problems, ("stream", "feature", "table"), strict=True):
        assert what.startswith(f"{name} memory") and "too many)" in what and advice
        assert "; use" not in what and "; prune" not in what


def test_layers_larger_than_all_streams_are_not_even_mapped(tmp_path):
    small = replace(TINY, stream_depth_words=64)
    net = Net((1, 40, 8, 8))
    net.conv(40, 40)
    net.conv(40, 4)
    report, nodes = check(net, tmp_path, small, {"density": 1.0})
    assert nodes["n0"].runs is False and "14,400 weights" in nodes["n0"].problems[0].what
    assert any("of the weights fit (--density)" in problem.advice for problem in report.problems)
    stream = next(memory for memory in report.memories if memory.memory == "stream")
    assert stream.fits is False and stream.at_least


def test_open_sizes_leave_what_can_be_judged(tmp_path):
    net = Net(("N", 3, "H", "W"))
    net.conv(3, 4)  # n0
    net.add("Sigmoid")  # n1
    net.add("Shape", first="t0")  # n2
    net.add("Gather", net.const(0, np.int64))  # n3
    net.add("Reshape", "t3", first="t1")  # n4
    net.add("LSTM", net.random(1, 4, 4), net.random(1, 4, 4))  # n5
    report, nodes = check(net, tmp_path)
    assert {name: node.runs for name, node in nodes.items()} == {
        "n0": None, "n1": False, "n2": None, "n3": None, "n4": None, "n5": False,
    }  # fmt: skip
    assert len(report.problems) == 1 and "must be fixed numbers" in report.problems[0].what
    assert report.memories == () and report.assumption is None


def test_batches(tmp_path):
    for batch, runs in (("N", True), (1, True), (4, False)):
        net = Net((batch, 3, 12, 12))
        net.conv(3, 4)
        report, nodes = check(net, tmp_path)
        assert report.runs is runs and nodes["n0"].runs


def test_several_outputs_and_unsupported_nodes_are_named_together(tmp_path):
    net = Net((4, 3, 12, 12))
    net.conv(3, 4)
    net.add("Tanh")
    report, nodes = check(net, tmp_path, outputs=["t0", "t1"])
    assert len(report.problems) == 2 and nodes["n1"].runs is False


@pytest.mark.parametrize("opset", [6, 7, 13, 21, 99])
def test_opsets(opset, tmp_path):
    net = Net(opset=opset)
    net.conv(3, 4)
    report, _ = check(net, tmp_path)
    assert report.runs is (6 < opset < 99)
    if not report.runs:
        assert f"opset {opset}" in report.problems[0].what and "7 to 25" in report.problems[0].advice


@pytest.mark.parametrize("content", [b"", b"hello", bytes(100)])
def test_unreadable_files(content, tmp_path):
    (tmp_path / "net.onnx").write_bytes(content)
    with pytest.raises(ModelFileError):
        check_model(str(tmp_path / "net.onnx"), TINY)


def test_damaged_files_never_end_in_other_errors(tmp_path):
    path = residual_network().save(tmp_path / "net.onnx")
    sound = path.read_bytes()
    random = np.random.default_rng(1)
    seen = Counter()
    for position in random.integers(0, 1500, 40):  # the nodes; weights follow
        damaged = bytearray(sound)
        damaged[position] ^= 1 << int(random.integers(8))
        path.write_bytes(bytes(damaged))
        try:
            seen[check_model(str(path), TINY).runs] += 1
        except ModelFileError:
            seen["refused"] += 1
    assert min(seen[True], seen[False], seen["refused"]) > 2


def test_compressed_models_are_judged_as_compile_would(tmp_path):
    net = RandomNetwork(8, 20, 20, seed=3)
    source = net.pool(net.conv("input", 16), "max", (3, 3), 2)
    net.pool(net.conv(source, 16, pads=(1, 1, 1, 1), residual=source), "global")
    graph = net.graph()
    save_graph(graph, tmp_path / "net.espalier")
    report = check_model(str(tmp_path / "net.espalier"), TINY)
    image = compile_graph(graph, TINY)
    assert report.source == "espalier" and report.assumption is None and report.runs
    assert report.cycles == image.metadata.predicted_cycles
    assert [node.cycles for node in report.nodes] == [
        layer.predicted_cycles for layer in image.metadata.layers
    ]
    used = [(memory.memory, memory.used, memory.available) for memory in image.metadata.memory]
    assert [(memory.memory, memory.needed, memory.available) for memory in report.memories] == used
    assert "adds" in report.nodes[2].how


def test_program_images_run_on_their_hardware_only(tmp_path):
    net = RandomNetwork(8, 20, 20, seed=3)
    net.pool(net.conv("input", 16), "global")
    path = tmp_path / "net.image"
    image = compile_graph(net.graph(), TINY)
    image.save(path)
    report = check_model(str(path), TINY)
    assert report.source == "image" and report.runs and report.cycles == image.metadata.predicted_cycles
    assert [node.cycles for node in report.nodes] == [
        layer.predicted_cycles for layer in image.metadata.layers
    ]
    assert [node.unit for node in report.nodes] == ["conv", "pool"] and len(report.memories) == 4
    other = check_model(str(path), ZCU)
    assert not other.runs and other.cycles is None and not other.memories
    assert "'tiny'" in other.problems[0].what and "compile it for this target" in other.problems[0].advice
    path.write_bytes(path.read_bytes()[:-1])
    with pytest.raises(ModelFileError):
        check_model(str(path), TINY)


def test_the_built_in_model_runs_on_its_target():
    report = check_model("resnet18", ZCU)
    assert report.runs and report.source == "builtin" and len(report.nodes) == 23
    assert sum(node.cycles for node in report.nodes) < report.cycles
    assert report.cycles == pytest.approx(120_930, rel=0.05)


@settings(max_examples=25, deadline=None)
@given(
    channels=st.integers(1, 40),
    size=st.tuples(st.integers(8, 70), st.integers(8, 70)),
    filters=st.lists(st.integers(1, 60), min_size=1, max_size=4),
    depths=st.tuples(st.integers(64, 512), st.integers(64, 1024), st.integers(64, 128)),
)
def test_the_verdict_is_the_compilers(channels, size, filters, depths):
    net = RandomNetwork(channels, *size)
    last = "input"
    for count in filters:
        last = net.conv(last, count, pads=(1, 1, 1, 1), density=0.1)
    feature, stream, table = depths
    config = replace(
        TINY,
        feature_depth_words=feature,
        feature_depth_rest_words=feature,
        stream_depth_words=stream,
        table_depth_words=table,
    )
    graph = net.graph()
    found = check_network(graph, {}, True, config, None, lambda *_: None)
    least = {memory.memory: memory.needed for memory in least_memory(graph, {}, config)}
    try:
        metadata = compile_graph(graph, config).metadata
    except CapacityError:
        assert found.network and found.total is None
    else:
        assert not found.network and not found.problems and found.total == metadata.predicted_cycles
        used = {memory.memory: memory.used for memory in metadata.memory}
        assert all(needed <= used[memory] for memory, needed in least.items())


@settings(max_examples=30, deadline=None)
@given(density=st.floats(0.02, 1.0), bits=st.integers(1, 8))
def test_assumed_weights_are_as_many_and_as_large_as_asked_for(density, bits, tmp_path_factory):
    path = residual_network().save(tmp_path_factory.mktemp("net") / "net.onnx")
    graph = load_onnx(path)
    densities = {node.name: density for node in graph.nodes}
    sized, skipped = size_graph(graph, densities, bits, most_weights=1 << 30)
    check_graph(sized)
    assert not skipped and [node.name for node in sized.nodes] == [node.name for node in graph.nodes]
    for node in sized.nodes:
        if isinstance(node, Conv):
            assert np.count_nonzero(node.weights) == pytest.approx(density * node.weights.size, abs=1.01)
    again, _ = size_graph(graph, densities, bits, most_weights=1 << 30)
    for one, other in zip(sized.nodes, again.nodes, strict=True):
        if isinstance(one, Conv):
            assert (one.weights == other.weights).all()


def test_without_options_the_budgets_of_compress_are_kept(tmp_path):
    net = Net((1, 8, 20, 20))
    for _ in range(3):
        net.conv(8 if len(net.nodes) == 0 else 64, 64, pads=[1] * 4)
    net.add("GlobalAveragePool")
    net.conv(64, 4000, (1, 1))
    graph = load_onnx(net.save(tmp_path / "net.onnx"))
    convs = [node for node in graph.nodes if isinstance(node, FloatConv)]
    densities = default_densities(graph, 4)
    macs = {node.name: dense_macs(graph, node) for node in convs}
    kept = sum(densities[name] * count for name, count in macs.items())
    assert 0.15 < kept / sum(macs.values()) <= CompressOptions().mac_fraction
    assert densities[convs[-1].name] > densities[convs[1].name]  # its weights cost few cycles


def test_identities_stay_as_sparse_as_they_are(tmp_path):
    net = Net((1, 16, 8, 8))
    net.add("Relu")
    graph = load_onnx(net.save(tmp_path / "net.onnx"))
    sized, _ = size_graph(graph, {graph.nodes[0].name: 0.3}, 4, most_weights=1 << 30)
    assert (sized.nodes[0].weights[:, :, 0, 0] != 0).tolist() == np.eye(16, dtype=bool).tolist()
