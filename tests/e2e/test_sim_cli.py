"""The `sim` command line: exit codes, messages, JSON."""

from __future__ import annotations

import json
import subprocess
import sys

import numpy as np
import onnx
import pytest
from onnx import TensorProto, helper, numpy_helper
from PIL import Image

from espalier.arch.config import load_config
from espalier.backend.compiler import compile_graph
from espalier.ir.storage import save_graph
from espalier_sim.random_networks import random_network

KEYS = [
    "schema", "model", "target", "backend", "bit_exact", "layers_checked", "cycles", "predicted_cycles",
    "clock_mhz", "clock_source", "latency_ms", "pes", "lanes", "utilisation", "compute_fraction", "sparsity",
    "weight_bits", "build_seconds", "simulate_seconds", "program_bytes", "load_cycles", "ddr_read_bytes",
    "ddr_write_bytes", "top", "layers",
]  # fmt: skip
LAYER_KEYS = [
    "name", "kind", "cycles", "predicted_cycles", "dense_macs", "effective_macs", "operators",
    "null_operators", "busy", "utilisation", "stalls",
]  # fmt: skip

pytestmark = pytest.mark.xdist_group("tiny")


def sim(*arguments):
    """Run the command as a user would."""
    command = [sys.executable, "-c", "from espalier_sim.cli import main; main()", *map(str, arguments)]
    return subprocess.run(command, capture_output=True, text=True, check=False, timeout=500)


@pytest.fixture
def picture_network(tmp_path):
    """A file of a random network that takes pictures."""
    seed = next(seed for seed in range(1000) if random_network(seed)[0].tensors["picture"].channels == 3)
    graph, _ = random_network(seed)
    source = graph.tensors["picture"]
    graph.metadata |= {"picture_size": [source.height, source.width], "preprocessing": "cifar"}
    save_graph(graph, tmp_path / "network.espalier")
    return tmp_path / "network.espalier", graph


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (["run", "nothing"], "no model 'nothing'"),
        (["run", "resnet18", "--target", "moon"], "unknown target 'moon'"),
        (["run", "resnet18", "--target", "tiny"], "memory"),
        (["run", "resnet18", "--image", "nowhere.png"], "no picture at nowhere.png"),
        (["run", "resnet18", "--waves", "waves.txt"], "must end in .vcd or .fst"),
        (["run", "resnet18", "--waves", "nowhere/waves.vcd"], "folder does not exist"),
        (["run", "resnet18", "--json", "nowhere/out.json"], "folder does not exist"),
        (["run", "resnet18", "--json", "/"], "it is a folder"),
    ],
)
def test_what_users_can_mend_exits_with_2(arguments, message):
    answer = sim(*arguments)
    assert answer.returncode == 2, answer.stderr
    assert message in answer.stderr
    assert "Traceback" not in answer.stderr and answer.stdout == ""


@pytest.mark.parametrize("content", [b"", b"ESPALIER and then nothing", b"PK\x03\x04broken", b"\x08\x07onnx"])
def test_damaged_files_exit_with_2(tmp_path, content):
    for name in ("model.espalier", "model.img"):
        (tmp_path / name).write_bytes(content)
        answer = sim("run", tmp_path / name, "--target", "tiny")
        assert answer.returncode == 2, answer.stderr
        assert "Traceback" not in answer.stderr


def test_onnx_files_need_calibration(tmp_path):
    (tmp_path / "model.onnx").write_bytes(b"")
    answer = sim("run", tmp_path / "model.onnx")
    assert answer.returncode == 2
    assert "--calibration" in answer.stderr


def test_list():
    answer = sim("list")
    assert answer.returncode == 0
    assert "resnet18" in answer.stdout and "zcu104" in answer.stdout


def test_json_alone_on_stdout(tiny_simulator, picture_network):
    file, _ = picture_network
    answer = sim("run", file, "--target", "tiny", "--json", "-")
    assert answer.returncode == 0, answer.stderr
    result = json.loads(answer.stdout)
    assert list(result) == KEYS
    assert result["bit_exact"] is True and result["layers_checked"] == len(result["layers"])
    assert all(list(layer) == LAYER_KEYS for layer in result["layers"])
    assert result["lanes"] == load_config("tiny").lanes
    assert result["latency_ms"] == result["cycles"] / (1000 * result["clock_mhz"])


def test_tables_and_verdict(tiny_simulator, picture_network, tmp_path):
    file, _ = picture_network
    answer = sim("run", file, "--target", "tiny", "--stalls", 3, "--json", tmp_path / "out.json")
    assert answer.returncode == 0, answer.stderr
    assert "bit-exact" in answer.stdout and "at 100 MHz (assumed" in answer.stdout
    assert json.loads((tmp_path / "out.json").read_text())["bit_exact"] is True


def test_compiled_images_run_against_their_emulation(tiny_simulator, picture_network, tmp_path):
    _, graph = picture_network
    compile_graph(graph, load_config("tiny")).save(tmp_path / "network.img")
    answer = sim("run", tmp_path / "network.img", "--target", "tiny", "--check", "final")
    assert answer.returncode == 0, answer.stderr
    assert "layers not compared" in answer.stdout
    answer = sim("run", tmp_path / "network.img", "--target", "zcu104")
    assert answer.returncode == 2 and "for 'tiny'" in answer.stderr


def test_onnx_with_calibration_pictures(tiny_simulator, tmp_path):
    """Export by hand, import, compress, compile, simulate."""
    rng = np.random.default_rng(0)
    weights = {
        "w1": rng.normal(0, 0.3, (8, 3, 3, 3)), "b1": rng.normal(0, 0.1, 8),
        "w2": rng.normal(0, 0.2, (32, 8, 3, 3)), "b2": rng.normal(0, 0.1, 32),
        "w3": rng.normal(0, 0.3, (5, 32)), "b3": rng.normal(0, 0.1, 5),
    }  # fmt: skip
    nodes = [
        helper.make_node("Conv", ["x", "w1", "b1"], ["c"], pads=[1, 1, 1, 1], strides=[2, 2]),
        helper.make_node("Relu", ["c"], ["r"]),
        helper.make_node("Conv", ["r", "w2", "b2"], ["d"], pads=[1, 1, 1, 1]),
        helper.make_node("GlobalAveragePool", ["d"], ["g"]),
        helper.make_node("Flatten", ["g"], ["f"]),
        helper.make_node("Gemm", ["f", "w3", "b3"], ["y"], transB=1),
    ]
    graph = helper.make_graph(
        nodes,
        "small",
        [helper.make_tensor_value_info("x", TensorProto.FLOAT, [1, 3, 32, 32])],
        [helper.make_tensor_value_info("y", TensorProto.FLOAT, [1, 5])],
        [numpy_helper.from_array(value.astype(np.float32), name) for name, value in weights.items()],
    )
    model = helper.make_model(graph, opset_imports=[helper.make_opsetid("", 17)])
    model.ir_version = 8
    onnx.save(model, tmp_path / "small.onnx")
    (tmp_path / "pictures").mkdir()
    for index in range(6):
        pixels = rng.integers(0, 256, (40, 40, 3), dtype=np.uint8)
        Image.fromarray(pixels).save(tmp_path / "pictures" / f"{index}.png")
    arguments = ["run", tmp_path / "small.onnx", "--target", "tiny", "--calibration", tmp_path / "pictures"]
    answer = sim(*arguments, "--json", "-")
    assert answer.returncode == 0, answer.stderr
    result = json.loads(answer.stdout)
    assert result["model"] == "small" and result["bit_exact"] is True
    assert [entry["label"] for entry in result["top"]] and len(result["top"]) == 5
    assert "compressing" not in sim(*arguments).stderr  # taken from the cache
    assert sim(*arguments[:-1], tmp_path / "nowhere").returncode == 2
