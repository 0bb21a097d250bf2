"""`espalier doctor`."""

from __future__ import annotations

import importlib.metadata

import pytest
import typer
from typer.testing import CliRunner

from espalier.cli import doctor

APP = typer.Typer()
APP.command()(doctor.doctor)


@pytest.fixture
def programs(tmp_path, monkeypatch):
    """A PATH with programs of our own only."""
    monkeypatch.setenv("PATH", str(tmp_path))

    def add(name, text):
        (tmp_path / name).write_text(f"#!/bin/sh\n{text}\n")
        (tmp_path / name).chmod(0o755)

    return add


def lines_of(result):
    return {
        line.split()[1]: line for line in result.output.splitlines() if line.startswith(("ok", "missing"))
    }


def test_versions_and_what_is_missing(programs):
    programs("vivado", "echo 'vivado v2024.1.2 (64-bit)'")
    programs("make", "exit 1")
    result = CliRunner().invoke(APP, [])
    lines = lines_of(result)
    assert result.exit_code == 0
    assert lines["vivado"].split() == ["ok", "vivado", "2024.1.2"]
    assert lines["amaranth"].split()[2] == importlib.metadata.version("amaranth")
    assert lines["make"].startswith("missing")  # there, but does not work
    assert lines["g++"].startswith("missing") and "compiling the simulator" in lines["g++"]
    assert "apt install g++" in result.output


def test_a_missing_requirement_is_a_failure(monkeypatch):
    def version(name):
        raise importlib.metadata.PackageNotFoundError(name)

    monkeypatch.setattr(importlib.metadata, "version", version)
    result = CliRunner().invoke(APP, [])
    assert result.exit_code == 1 and "pip install amaranth" in result.output


def test_every_tool_says_what_it_is_for():
    assert len({tool.name for tool in doctor.TOOLS}) == len(doctor.TOOLS)
    assert all(tool.needed_for and tool.remedy for tool in doctor.TOOLS)
