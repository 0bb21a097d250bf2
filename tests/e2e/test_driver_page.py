"""The examples of docs/driver.md run as they stand."""

from __future__ import annotations

import re
import shutil
from pathlib import Path

import pytest
from driver_networks import classifier

from espalier.models.builtin import PICTURE

PAGE = Path(__file__).parents[2] / "docs" / "driver.md"
EXAMPLES = re.findall(r"^```python\n(.*?)^```", PAGE.read_text(encoding="utf-8"), re.MULTILINE | re.DOTALL)

pytestmark = pytest.mark.xdist_group("tiny")


def test_examples_run_one_after_the_other(tiny_simulator, tmp_path, monkeypatch, capsys):
    shutil.copy(PICTURE, tmp_path / "chelsea.png")
    classifier().image.save(tmp_path / "small.image")
    monkeypatch.chdir(tmp_path)
    assert len(EXAMPLES) >= 2
    names = {}
    for example in EXAMPLES:
        exec(compile(example, str(PAGE), "exec"), names)
    printed = capsys.readouterr().out
    assert "class" in printed and "is the best class" in printed and "total:" in printed
