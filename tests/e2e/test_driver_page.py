"""The examples of docs/driver.md run as they stand."""

from __future__ import annotations

import importlib.util
import re
import shutil
import subprocess
import sys
from pathlib import Path

import pytest
from driver_networks import CONFIG, classifier

from espalier.models.builtin import PICTURE
from espalier_sim.board.boards import find_board
from espalier_sim.board.files import write_board_files

PAGE = Path(__file__).parents[2] / "docs" / "driver.md"
TEXT = PAGE.read_text(encoding="utf-8")
EXAMPLES = re.findall(r"^```python\n(.*?)^```", TEXT, re.MULTILINE | re.DOTALL)
BOARD_EXAMPLES = re.findall(r"^```python board\n(.*?)^```", TEXT, re.MULTILINE | re.DOTALL)

pytestmark = pytest.mark.xdist_group("tiny")


@pytest.fixture
def folder(tmp_path):
    """What the examples find."""
    shutil.copy(PICTURE, tmp_path / "chelsea.png")
    classifier().image.save(tmp_path / "small.image")
    return tmp_path


def test_examples_run_one_after_the_other(tiny_simulator, folder, monkeypatch, capsys):
    monkeypatch.chdir(folder)
    assert len(EXAMPLES) >= 2
    names = {}
    for example in EXAMPLES:
        exec(compile(example, str(PAGE), "exec"), names)
    printed = capsys.readouterr().out
    assert "class" in printed and "is the best class" in printed and "total:" in printed


@pytest.mark.skipif(
    importlib.util.find_spec("pynq") is None, reason="pynq is not installed: PYNQ_REMOTE=1 pip install pynq"
)
def test_examples_for_boards_run_on_the_simulated_one(tiny_simulator, folder):
    assert len(BOARD_EXAMPLES) >= 2
    write_board_files(folder, CONFIG, find_board("zcu104"))
    (folder / "script.py").write_text("\n".join(BOARD_EXAMPLES), encoding="utf-8")
    answer = subprocess.run(
        [sys.executable, "-m", "espalier_sim.board", "script.py"],
        cwd=folder, capture_output=True, text=True, check=False, timeout=250,
    )  # fmt: skip
    assert answer.returncode == 0, answer.stderr
    assert answer.stdout.count("class ") == 5 and "49.9995 MHz" in answer.stdout
