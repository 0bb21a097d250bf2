"""`espalier evaluate`: scores, paired differences, fidelity by layer, and its command line."""

import json
import math

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from onnx_net import Net
from PIL import Image
from typer.testing import CliRunner

from espalier.cli.main import app
from espalier.compress.build import CompressOptions
from espalier.compress.from_onnx import PictureOptions, compress_onnx
from espalier.errors import ModelFileError, PictureError, UserError
from espalier.evaluation.evaluate import evaluate_pictures
from espalier.evaluation.fidelity import FidelityMeter, LayerFidelity, first_below
from espalier.evaluation.pictures import picture_set
from espalier.evaluation.scores import in_top, paired
from espalier.frontend import load_onnx
from espalier.ir.storage import save_graph
from espalier.numerics.execute import run_output
from espalier.numerics.floating import float_run
from espalier.runtime.preprocess import Preprocessing

answers = st.lists(st.tuples(st.booleans(), st.booleans()), min_size=1, max_size=60)


@settings(deadline=None)
@given(st.data())
def test_the_first_of_equal_scores_wins(data):
    row = data.draw(st.lists(st.integers(0, 4), min_size=2, max_size=12))
    wanted = data.draw(st.integers(0, len(row) - 1))
    count = data.draw(st.integers(1, 5))
    ranked = sorted(range(len(row)), key=lambda index: (-row[index], index))
    found = in_top(np.array([row], np.uint8), np.array([wanted]), count)
    assert bool(found[0]) == (wanted in ranked[:count])


@settings(deadline=None)
@given(answers)
def test_paired_differences(pairs):
    first, second = np.array(pairs, bool).T
    found, mirrored = paired(first, second), paired(second, first)
    assert math.isclose(found.difference, second.mean() - first.mean(), abs_tol=1e-12)
    assert found.low < found.high and math.isclose(found.low, -mirrored.high, abs_tol=1e-12)


def test_the_interval_covers_the_truth_about_as_often_as_it_says():
    generator = np.random.default_rng(1)
    covered = 0
    for _ in range(2000):
        case = generator.choice(4, 300, p=[0.7, 0.05, 0.02, 0.23])  # both, only first, only second, none
        found = paired(case <= 1, (case == 0) | (case == 2))
        covered += found.low <= -0.03 <= found.high
    assert 0.93 < covered / 2000 < 0.98


def test_equal_answers_leave_doubt():
    right = np.ones(50, bool)
    found = paired(right, right)
    assert found.difference == 0 and found.low < -0.005 and found.high > 0.005


@pytest.fixture(scope="module")
def case(tmp_path_factory):
    """A network, pictures with classes, and the compressed model."""
    folder = tmp_path_factory.mktemp("evaluate")
    generator = np.random.default_rng(2)
    net = Net((1, 3, 16, 16))
    net.conv(3, 8, strides=[2, 2], pads=[1, 1, 1, 1])
    net.add("Relu")
    net.conv(8, 6, pads=[1, 1, 1, 1])
    net.add("GlobalAveragePool")
    net.save(folder / "net.onnx")
    pictures = folder / "pictures"
    pictures.mkdir()
    lines = ["file,class"]
    for number in range(20):
        coarse = generator.integers(0, 256, (4, 4, 3), dtype=np.uint8)
        Image.fromarray(np.kron(coarse, np.ones((4, 4, 1), np.uint8))).save(pictures / f"{number:02d}.png")
        lines.append(f"{number:02d}.png,{number % 6}")
    (folder / "classes.csv").write_text("\n".join(lines) + "\n")
    names = [node.name for node in load_onnx(folder / "net.onnx").nodes if hasattr(node, "weights")]
    options = CompressOptions(bits=8, densities=dict.fromkeys(names, 1.0))
    model = compress_onnx(folder / "net.onnx", pictures, options, PictureOptions(rule="crop"))
    save_graph(model, folder / "net.espalier")
    return folder, load_onnx(folder / "net.onnx"), model


def arguments(folder, *more):
    given = ("--pictures", folder / "pictures", "--classes", folder / "classes.csv", *more)
    return ["evaluate", str(folder / "net.espalier"), *map(str, given)]


def test_scores_are_those_of_the_integer_semantics(case):
    folder, graph, model = case
    preprocessing = Preprocessing.of(model.metadata, model.tensors[model.input])
    chosen = picture_set(folder / "pictures", folder / "classes.csv", 6)
    found = evaluate_pictures(model, graph, chosen, preprocessing, layer_pictures=8)
    pixels = np.stack([preprocessing.load(path) for path in chosen.files])
    stored = run_output(model, preprocessing.quantise(pixels)).reshape(20, 6)
    real = float_run(graph, preprocessing.normalise(pixels))[graph.output].reshape(20, 6)
    classes = np.arange(20) % 6
    assert found.top1 == {
        "integer": (stored.argmax(axis=1) == classes).mean(),
        "float": (real.argmax(axis=1) == classes).mean(),
    }
    assert found.agreement == (stored.argmax(axis=1) == real.argmax(axis=1)).mean()
    assert math.isclose(found.difference1.difference, found.top1["integer"] - found.top1["float"])
    assert found.layer_pictures == 8
    assert all(layer.sqnr > 20 and layer.cosine > 0.99 for layer in found.layers)


def test_fidelity_is_measured_per_layer(case):
    _, graph, model = case
    meter = FidelityMeter(graph, model)
    generator = np.random.default_rng(5)
    stored = {
        name: generator.integers(0, 256, (2, t.channels, t.height, t.width), dtype=np.uint8)
        for name, t in model.tensors.items()
    }
    real = {
        name: (value.astype(np.float64) - model.tensors[name].zero_point) * model.tensors[name].scale
        for name, value in stored.items()
    }
    noisy = graph.nodes[1].output
    real[noisy] = real[noisy] * 1.1
    meter.add(real, stored)
    first, second, *_ = meter.result()
    assert first.sqnr > 100
    assert math.isclose(second.sqnr, 20 * math.log10(11), abs_tol=1e-3)
    assert math.isclose(second.cosine, 1, abs_tol=1e-9)
    assert first_below(meter.result(), 30) == second.name
    assert first_below([LayerFidelity("a", math.inf, 1.0)], 30) is None


def test_networks_that_do_not_belong_together_are_refused(case):
    _, graph, model = case
    other = Net((1, 3, 16, 16))
    other.conv(3, 8)
    with pytest.raises(ModelFileError, match="was not made of"):
        FidelityMeter(type(graph)("other", graph.input, graph.output, graph.nodes[:1], graph.shapes), model)


def test_command_line_and_json_say_the_same(case, tmp_path):
    folder, *_ = case
    path = tmp_path / "out.json"
    result = CliRunner().invoke(
        app, arguments(folder, "--float", folder / "net.onnx", "--json", path), catch_exceptions=False
    )
    content = json.loads(path.read_text())
    assert result.exit_code == 0 and content["pictures"] == 20 and content["skipped"] == 0
    assert f"same class: {content['agreement']:.2%}" in result.output
    assert "no layer is below 10 dB" in result.output and content["first_layer_below_limit"] is None
    alone = CliRunner().invoke(app, arguments(folder, "--compare", "integer"), catch_exceptions=False)
    assert "float" not in alone.output and "top-1" in alone.output


@pytest.mark.parametrize(
    ("more", "message"),
    [
        (("--compare", "float,integer"), "needs the network"),
        (("--compare", "integer,fpga"), "cannot compare"),
        (("--rule", "squash"), "unknown rule"),
    ],
)
def test_wrong_requests_are_refused(case, more, message):
    with pytest.raises(UserError, match=message):
        CliRunner().invoke(app, arguments(case[0], *more), catch_exceptions=False)


def test_few_unreadable_pictures_are_skipped_many_are_an_error(case, tmp_path):
    folder, _, model = case
    preprocessing = Preprocessing.of(model.metadata, model.tensors[model.input])
    for path in (folder / "pictures").iterdir():
        (tmp_path / path.name).write_bytes(path.read_bytes())
    for number in (3, 17):
        (tmp_path / f"{number:02d}.png").write_bytes(b"no picture")
    chosen = picture_set(tmp_path, folder / "classes.csv", 6)
    found = evaluate_pictures(model, None, chosen, preprocessing)
    assert (found.pictures, found.skipped) == (18, 2) and found.difference1 is None
    (tmp_path / "05.png").write_bytes(b"")
    with pytest.raises(PictureError, match="3 of 20 pictures cannot be read"):
        evaluate_pictures(model, None, chosen, preprocessing)


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("file,class\n00.png,6\n", "none of the network's 6"),
        ("file,class\n00.png,cat\n", "none of the network's 6"),
        ("file,class\nxx.png,1\n", "no picture 'xx.png'"),
        ("name,class\n00.png,1\n", "columns 'file' and 'class'"),
        ("file,class\n00.png\n", "columns 'file' and 'class'"),
        ("file,class\n", "names no pictures"),
    ],
)
def test_tables_of_classes_that_do_not_fit(case, tmp_path, text, message):
    (tmp_path / "table.csv").write_text(text)
    with pytest.raises(PictureError, match=message):
        picture_set(case[0] / "pictures", tmp_path / "table.csv", 6)
