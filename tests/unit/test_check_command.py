"""`espalier check` as users run it: exit codes, table, JSON."""

import json
import re
import sys
from pathlib import Path

import pytest
from onnx_net import Net

from espalier.cli import main as command_line
from espalier.cli.handling import run_command


@pytest.fixture
def run(monkeypatch, capsys):
    """Call the command line; returns exit code, stdout and stderr."""

    def call(*arguments):
        monkeypatch.setattr(sys, "argv", ["espalier", "check", *map(str, arguments)])
        with pytest.raises(SystemExit) as caught:
            run_command(command_line.app)
        output = capsys.readouterr()
        return caught.value.code, output.out, output.err

    return call


def chain(count, operator="Relu"):
    net = Net((1, 3, 12, 12))
    net.conv(3, 4, pads=[1] * 4)
    for _ in range(count):
        net.conv(4, 4, pads=[1] * 4)
        net.add(operator)
    return net


def test_what_runs_exits_with_0_and_says_what_is_assumed(run, tmp_path):
    path, target = chain(1).save(tmp_path / "net.onnx"), tmp_path / "report.json"
    code, out, err = run(path, "--target", "tiny", "--json", target, "--density", 0.4, "--bits", 5)
    values = json.loads(target.read_text())
    assert code == 0 and not err
    assert values["runs"] and values["schema"] == 1
    assert values["assumption"] == {"density": pytest.approx(0.4), "bits": 5, "uniform": True}
    assert "assumed: 40.0% of the weights are kept, the same share in every layer, 5 bits each" in out
    assert f"predicted: {values['cycles']:,} cycles, {values['latency_ms']:.3f} ms at 100 MHz" in out
    assert values["clock_source"] in out
    for node in values["nodes"]:
        assert node["name"] in out and node["how"] in out
    for memory in values["memory"]:
        assert f"{memory['needed']} of {memory['available']} words" in out
    assert "\x1b" not in out
    assert out.splitlines()[-1].endswith("everything runs (3 nodes)")


def test_json_on_stdout_is_all_there(run, tmp_path):
    path = chain(2, "Tanh").save(tmp_path / "net.onnx")
    code, out, _ = run(path, "--target", "tiny", "--json", "-")
    values = json.loads(out)
    assert code == 1 and [node["name"] for node in values["nodes"]] == ["n0", "n1", "n2", "n3", "n4"]


def test_the_documented_keys_are_those_of_the_report(run, tmp_path):
    page = (Path(__file__).parents[2] / "docs" / "check.md").read_text(encoding="utf-8")
    table = page[page.index("| key |") :].splitlines()[2:]
    names = {name for row in table for name in re.findall(r"`(\w+)`", row.split("|")[1])}
    _, out, _ = run(chain(2).save(tmp_path / "net.onnx"), "--target", "tiny", "--json", "-")
    assert json.loads(out).keys() == names
    documented = {
        row.split("|")[1].strip(" `"): set(re.findall(r"`(\w+)`", row.split("|")[2])) for row in table
    }
    for key in ("nodes", "memory"):
        for item in json.loads(out)[key]:
            assert item.keys() <= documented[key]


def test_what_does_not_run_exits_with_1_and_lists_reasons(run, tmp_path):
    path, target = chain(3, "Tanh").save(tmp_path / "net.onnx"), tmp_path / "report.json"
    code, out, err = run(path, "--target", "tiny", "--json", target)
    assert code == 1 and not err
    assert out.count("problem: ") == out.count("to do: ") == 3
    assert "DOES NOT RUN: 3 of 7 nodes" in out.splitlines()[-1]
    values = json.loads(target.read_text())
    assert not values["runs"] and values["cycles"] is None and values["latency_ms"] is None
    assert [node["runs"] for node in values["nodes"]] == [True, True, False] + [True, False] * 2


def test_files_that_cannot_be_read_exit_with_2_and_one_message(run, tmp_path):
    (tmp_path / "bad.onnx").write_bytes(b"hello, world")
    (tmp_path / "bad.espalier").write_bytes(b"hello, world")
    for name in ("bad.onnx", "bad.espalier", "absent.onnx", "absent"):
        code, out, err = run(tmp_path / name, "--target", "tiny")
        assert code == 2 and not out
        assert err.startswith("error: ") and err.count("\n") == 1 and "Traceback" not in err


@pytest.mark.parametrize(
    "options", [("--density", "0"), ("--density", "nan"), ("--bits", "9"), ("--target", "x")]
)
def test_wrong_options_exit_with_2(options, run, tmp_path):
    assert run(chain(1).save(tmp_path / "net.onnx"), *options)[0] == 2


def test_many_nodes_that_are_fine_are_counted_unless_all_are_asked_for(run, tmp_path):
    net = chain(20)
    net.add("Tanh")
    path = net.save(tmp_path / "net.onnx")
    code, out, _ = run(path, "--target", "tiny")
    assert code == 1
    assert "n0 .. n40" in out and "41 nodes" in out and "n7 " not in out
    assert "n41   " in out
    _, out, _ = run(path, "--target", "tiny", "--all")
    assert "n0 .. " not in out
    assert all(f"\nn{index} " in out for index in range(42))


def test_names_cannot_send_escape_sequences(run, tmp_path):
    net = chain(1)
    net.nodes[0].name = "evil\x1b[2J[/bold]\n"
    code, out, _ = run(net.save(tmp_path / "net.onnx"), "--target", "tiny")
    assert code == 0
    assert "\x1b" not in out and "evil?[2J[/bold]?" in out


def test_terminals_get_a_table(run, tmp_path, monkeypatch):
    path = chain(2, "Tanh").save(tmp_path / "net.onnx")
    monkeypatch.setattr("sys.stdout.isatty", lambda: True)
    code, out, _ = run(path, "--target", "tiny")
    assert code == 1 and "┃" in out and "DOES NOT RUN" in out
