"""`espalier build`: stages, resuming, hash and delivery, with the stand-in in place of Vivado."""

from __future__ import annotations

import json
import re
import shutil
from xml.etree import ElementTree

import pytest
import typer
import yaml
from tcl_mutations import measure
from typer.testing import CliRunner

from espalier.arch.board import BOARD_FOLDER, board_names, load_board
from espalier.arch.config import PRESET_FOLDER, load_config
from espalier.errors import BuildError, CapacityError, ConfigError, UserError
from espalier_hw.build_command import build
from espalier_hw.vivado.deliver import write_scripts
from espalier_hw.vivado.stages import STAGES, STAND_IN, Build, check_scripts
from espalier_sim.board.boards import BOARDS
from espalier_sim.board.hwh import hardware_description

APP = typer.Typer()
APP.command()(build)
NAMES = [stage.name for stage in STAGES]

pytestmark = pytest.mark.skipif(shutil.which("tclsh") is None, reason="needs tclsh")


@pytest.fixture(scope="module")
def verilog(tmp_path_factory):
    """A folder with the Verilog of `tiny`."""
    folder = tmp_path_factory.mktemp("verilog")
    result = CliRunner().invoke(APP, ["--target", "tiny", "--out", str(folder), "--stop-after", "verilog"])
    assert result.exit_code == 0, result.output
    return folder


@pytest.fixture
def out(tmp_path, verilog):
    shutil.copytree(verilog, tmp_path / "bitstreams")
    return tmp_path / "bitstreams"


def run(out, *options, board="zcu104"):
    result = CliRunner().invoke(
        APP, ["--target", "tiny", "--board", board, "--out", str(out), *options], catch_exceptions=True
    )
    if result.exception is not None and not isinstance(result.exception, SystemExit):
        raise result.exception
    assert "Verilog of tiny: up to date" in result.output
    return result


def fake_vivado(tmp_path, monkeypatch, killed=""):
    """The stand-in behind a script that records the stages, and dies at the end of one of them."""
    path, calls = tmp_path / "vivado", tmp_path / "calls"
    path.write_text(
        "#!/bin/sh\n"
        'for word in "$@"; do case "$word" in */scripts/*.tcl)'
        f' basename "$word" .tcl >> {calls};; esac; done\n'
        f'{STAND_IN} "$@" || exit 1\n'
        f'case "$*" in *scripts/{killed or "none"}.tcl*) kill -9 $$;; esac\n'
    )
    path.chmod(0o755)
    monkeypatch.setenv("ESPALIER_VIVADO", str(path))
    return lambda: calls.read_text().split()


def manifest(out):
    return json.loads((out / "tiny" / "manifest.json").read_text())


@pytest.mark.parametrize("board", board_names())
def test_without_vivado_all_but_the_bitstream_is_there(out, monkeypatch, board):
    monkeypatch.setenv("ESPALIER_VIVADO", "no-such-program")
    result = run(out, board=board)
    assert result.exit_code == 3
    assert "Vivado is not installed" in result.output and "pass their check" in result.output
    there = {path.name for path in (out / "tiny").iterdir()}
    assert {"espalier.v", "manifest.json", "scripts", "espalier.checked.hwh"} <= there
    assert manifest(out)["bitstream"] is None and manifest(out)["part"] == load_board(board).part


def test_stages_in_order_and_nothing_twice(out, tmp_path, monkeypatch):
    calls = fake_vivado(tmp_path, monkeypatch)
    assert run(out).exit_code == 0
    assert calls() == NAMES
    found = manifest(out)
    assert found["bitstream"] == "espalier.bit" and found["timing"]["setup_slack_ns"] == 0.123
    assert set(found["sha256"]) == {"espalier.bit", "espalier.hwh", "espalier.xsa"}
    assert found["design_hash"] in (out / "tiny" / "espalier.hwh").read_text()
    assert "stand-in" in found["tool"]
    again = run(out)
    assert again.exit_code == 0 and again.output.count("up to date") == 1 + len(NAMES)
    assert calls() == NAMES and manifest(out) == found
    monkeypatch.setenv("ESPALIER_VIVADO", "no-such-program")
    elsewhere = run(out)
    assert elsewhere.exit_code == 0 and "espalier.bit is up to date" in elsewhere.output
    assert manifest(out) == found


@pytest.mark.parametrize("killed", NAMES)
def test_a_killed_build_resumes(out, tmp_path, monkeypatch, killed):
    calls = fake_vivado(tmp_path, monkeypatch, killed)
    with pytest.raises(BuildError, match=f"stage {killed} failed: Vivado exited with code -9"):
        run(out)
    assert manifest(out)["bitstream"] is None
    fake_vivado(tmp_path, monkeypatch)
    assert run(out).exit_code == 0
    assert calls() == [*NAMES[: NAMES.index(killed) + 1], *NAMES[NAMES.index(killed) :]]


def test_another_clock_is_another_design(out, tmp_path, monkeypatch):
    calls = fake_vivado(tmp_path, monkeypatch)
    run(out)
    first = manifest(out)
    run(out, "--clock-mhz", "70", "--stop-after", "synth")
    second = manifest(out)
    assert second["clock_mhz"] == pytest.approx(1500 / 22)
    assert first["design_hash"] != second["design_hash"] and second["bitstream"] is None
    assert not (out / "tiny" / "espalier.bit").exists()
    assert calls() == [*NAMES, *NAMES[:3]]


@pytest.mark.parametrize(
    ("fault", "message"),
    [
        ("old", "older than 2022.1"),
        ("no_part", "part xczu7ev-ffvc1156-2-e is not installed"),
        ("integrity", "does not pass Vivado's integrity check"),
        ("no_board", "no board files match xilinx.com:zcu104"),
        ("no_ip", "is not in the catalogue"),
        ("no_hwh", r"Vivado has not written espalier\.hwh"),
        ("clock", "choose another --clock-mhz"),
        ("progress", "run synth_1 did not finish"),
        ("unrouted", "run impl_1 did not finish"),
        ("slack", r"timing not met at .* MHz: setup slack -0.214 ns"),
        ("hold", r"timing not met at .* MHz: hold slack -0.214 ns"),
        ("no_paths", "no setup path is constrained"),
    ],
)
def test_what_vivado_refuses_fails_the_build(out, tmp_path, monkeypatch, fault, message):
    fake_vivado(tmp_path, monkeypatch)
    monkeypatch.setenv("STAND_IN_FAULT", fault)
    with pytest.raises(BuildError, match=message) as caught:
        run(out)
    assert caught.value.exit_code == 2
    assert not (out / "tiny" / "espalier.bit").exists()


def description(text):
    """What PYNQ takes from a .hwh: IPs, registers, addresses, interrupts."""
    root = ElementTree.fromstring(text)
    modules = {module.get("INSTANCE"): module for module in root.iter("MODULE")}
    registers = {
        register.get("NAME"): (
            {p.get("NAME"): p.get("VALUE") for p in register.findall("PROPERTY")}["ADDRESS_OFFSET"],
            {p.get("NAME"): p.get("VALUE") for p in register.findall("PROPERTY")}["ACCESS"],
            [
                (f.get("NAME"), [p.get("VALUE") for p in f.findall("PROPERTY")][:2])
                for f in register.iter("FIELD")
            ],
        )
        for register in modules["espalier_0"].iter("REGISTER")
    }
    ranges = sorted(tuple(sorted(entry.attrib.items())) for entry in root.iter("MEMRANGE"))
    wires = {
        (name, port.get("NAME"), end.get("INSTANCE"), end.get("PORT"))
        for name, module in modules.items()
        for port in module.iter("PORT")
        if port.get("SIGIS") == "INTERRUPT"
        for end in port.iter("CONNECTION")
    }
    return registers, ranges, wires, {name: module.get("VLNV") for name, module in modules.items()}


@pytest.mark.parametrize("name", sorted(BOARDS))
def test_the_description_is_the_simulated_boards(out, monkeypatch, name):
    monkeypatch.setenv("ESPALIER_VIVADO", "no-such-program")
    run(out, board=name)
    registers, ranges, wires, cells = description((out / "tiny" / "espalier.checked.hwh").read_text())
    expected = description(hardware_description(load_config("tiny"), BOARDS[name]))
    for ours, other in zip(registers.items(), expected[0].items(), strict=True):
        assert (ours[0], int(ours[1][0], 16), *ours[1][1:]) == (other[0], int(other[1][0], 16), *other[1][1:])
    assert ranges == expected[1] and wires == expected[2]
    assert expected[3].items() <= cells.items()
    facts = load_board(name)
    assert (BOARDS[name].base, BOARDS[name].controller) == (
        facts.accelerator_address,
        facts.controller_address,
    )
    assert BOARDS[name].part == facts.part


def test_a_target_without_board_stops_after_verilog(out):
    result = CliRunner().invoke(APP, ["--target", "tiny", "--out", str(out)])
    assert result.exit_code == 3 and f"--board: {', '.join(board_names())}" in result.output


def test_unknown_targets_and_boards_list_the_others(tmp_path):
    for options, message in ((["--target", "zcu999"], "tiny, .*zcu104"), (["--board", "x"], "kv260, pynqz2")):
        result = CliRunner().invoke(APP, [*options, "--out", str(tmp_path)])
        assert isinstance(result.exception, ConfigError) and re.search(message, str(result.exception))
    assert not list(tmp_path.iterdir())


def test_an_over_full_configuration_is_refused_before_verilog(tmp_path):
    content = yaml.safe_load((PRESET_FOLDER / "zcu104.yaml").read_text()) | {"pes_per_branch": 30}
    (tmp_path / "big.yaml").write_text(yaml.safe_dump(content))
    result = CliRunner().invoke(APP, ["--target", str(tmp_path / "big.yaml"), "--out", str(tmp_path / "out")])
    assert isinstance(result.exception, CapacityError) and "DSP" in str(result.exception)
    assert not (tmp_path / "out").exists()


def test_a_board_is_added_by_one_file(out, tmp_path):
    text = (BOARD_FOLDER / "zcu104.yaml").read_text()
    (tmp_path / "mine.yaml").write_text(text.replace("0xA0010000", "0xA0040000"))
    board = load_board("mine", tmp_path)
    design_hash = write_scripts(out / "tiny", load_config("tiny"), board, 100.0, "", "test")
    found = check_scripts(out / "tiny", design_hash)
    assert 'BASEVALUE="0xA0040000"' in found.read_text()


@pytest.mark.parametrize(
    ("old", "new", "message"),
    [
        ("0xA0010000", "0xA0000000", "share an address"),
        ("0xA0010000", "0xB0000000", "must be a multiple"),
        ("hp_bits: 128", "hp_bits: 256", "hp_bits"),
        ("zynq_ultra_ps_e", "versal", "system"),
        ("title", "titel", "exactly the fields"),
    ],
)
def test_wrong_board_files_are_refused(tmp_path, old, new, message):
    text = (BOARD_FOLDER / "zcu104.yaml").read_text()
    (tmp_path / "mine.yaml").write_text(text.replace(old, new))
    with pytest.raises(UserError, match=message):
        load_board("mine", tmp_path)


def test_clocks_are_never_above_the_limit():
    board = load_board("zcu104")
    for limit in (1, 33, 100, 187.5, 200, 214, 299, 300, 450):
        clock = board.best_clock(limit)
        assert limit * 0.5 < clock <= limit and (board.io_pll_mhz / clock).denominator == 1
    assert board.best_clock(300) == 300
    with pytest.raises(ConfigError, match=r"no clock of 0\.1 MHz"):
        board.best_clock(0.1)


def test_a_missing_result_is_noticed(out, tmp_path, monkeypatch):
    path = tmp_path / "silent"
    path.write_text("#!/bin/sh\nexit 0\n")
    path.chmod(0o755)
    with pytest.raises(BuildError, match=r"stage ip has not written .*component.xml"):
        Build(out / "tiny", path, "0").run(None, lambda message: None)


def test_damaged_scripts_are_noticed():
    """A sample of the measurement on docs/bitstream.md."""
    results = measure("design", typos=1, sample=12)
    noticed = sum(len(lines) for (_, what), lines in results.items() if what != "missed")
    assert noticed >= 11, results
