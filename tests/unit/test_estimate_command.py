"""`espalier estimate` as users run it."""

import json

import pytest
from typer.testing import CliRunner

from espalier.arch.config import load_config
from espalier.backend.synthetic import RandomNetwork
from espalier.cli.main import app
from espalier.errors import UserError
from espalier.ir.storage import save_graph


@pytest.fixture
def model(tmp_path):
    net = RandomNetwork(8, 20, 20)
    net.conv(net.pool(net.conv("input", 16), "max", (2, 2), 2), 8)
    path = tmp_path / "small.espalier"
    save_graph(net.graph(), path)
    return path


def run(*arguments):
    result = CliRunner().invoke(app, ["estimate", *map(str, arguments)])
    if result.exception is not None and not isinstance(result.exception, SystemExit):
        raise result.exception
    return result.output


def test_table_and_file_say_the_same(model, tmp_path):
    target = tmp_path / "numbers.json"
    output = run(model, "--target", "tiny", "--json", target)
    values = json.loads(target.read_text())
    config = load_config("tiny")
    assert f"{values['cycles']} cycles" in output
    assert values["latency_ms"] == pytest.approx(values["cycles"] / config.clock_mhz / 1000)
    assert config.clock_source in output
    assert [layer["kind"] for layer in values["layers"]] == ["conv", "max", "conv"]
    assert sum(layer["share"] for layer in values["layers"]) == pytest.approx(1)
    assert sum(layer["cycles"] for layer in values["layers"]) < values["cycles"]
    assert sum(values["pe_cycles"].values()) == config.pes * values["cycles"]
    for layer in values["layers"]:
        assert layer["bound"] in (*layer["needs"], "dependency")
        assert f"{layer['cycles']}" in output
    assert {memory["memory"] for memory in values["memory"]} >= {"feature", "stream", "table", "program"}


def test_models_that_are_not_compressed_are_refused():
    with pytest.raises(UserError, match="not compressed yet"):
        run("network.onnx")


def test_unknown_targets_are_refused(model):
    with pytest.raises(UserError, match="unknown target"):
        run(model, "--target", "nothing")
