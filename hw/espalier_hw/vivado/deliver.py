"""What a build leaves in its folder: the generated inputs of Vivado, results and the manifest."""

from __future__ import annotations

import dataclasses
import hashlib
import json
import shutil
from collections.abc import Callable
from pathlib import Path
from typing import Any

import amaranth

from espalier import __version__
from espalier.arch import registers
from espalier.arch.board import BoardFacts
from espalier.arch.config import HardwareConfig
from espalier_hw.generate import generate_verilog
from espalier_hw.vivado.settings import registers_tcl, settings_tcl
from espalier_hw.vivado.stages import SCRIPTS

_RESULTS = ("espalier.bit", "espalier.hwh", "espalier.xsa")
_SOURCES = (Path(__file__).parents[1], Path(registers.__file__).parent)


def write_verilog(folder: Path, config: HardwareConfig, progress: Callable[[str], None]) -> str:
    """Write espalier.v unless it is there, of this configuration and by these sources; return its SHA-256."""
    folder.mkdir(parents=True, exist_ok=True)
    path, origin_path = folder / "espalier.v", folder / "espalier.v.origin"
    origin = _origin(config)
    if path.is_file() and origin_path.is_file():
        recorded = origin_path.read_text(encoding="utf-8").split()
        if recorded == [origin, _sha256(path.read_bytes())]:
            progress(f"Verilog of {config.name}: up to date")
            return recorded[1]
    progress(f"Verilog of {config.name} ({config.lanes} lanes) ...")
    modules = generate_verilog(config, primitives="xilinx")
    text = "\n".join(modules[name] for name in sorted(modules))
    _write(path, text)
    digest = _sha256(text.encode())
    _write(origin_path, f"{origin} {digest}\n")
    return digest


def write_scripts(
    folder: Path, config: HardwareConfig, board: BoardFacts, clock_mhz: float, verilog: str, tool: str
) -> str:
    """Write all that Vivado runs into `folder`/scripts; return the design hash.

    It is the hash of Verilog, scripts, settings (configuration, board, clock) and tool version.
    """
    scripts = folder / "scripts"
    shutil.rmtree(scripts, ignore_errors=True)
    shutil.copytree(SCRIPTS, scripts)
    _write(scripts / "registers.tcl", registers_tcl())
    content = [verilog, tool, settings_tcl(config, board, clock_mhz, "")]
    content += [path.read_text(encoding="utf-8") for path in sorted(scripts.iterdir())]
    design_hash = _sha256("\0".join(content).encode())[:32]
    _write(scripts / "settings.tcl", settings_tcl(config, board, clock_mhz, design_hash))
    return design_hash


def read_manifest(folder: Path) -> dict[str, Any]:
    """Return manifest.json as the build before has left it; empty if there is none."""
    try:
        content: dict[str, Any] = json.loads((folder / "manifest.json").read_text(encoding="utf-8"))
    except (OSError, ValueError):
        return {}
    return content


def write_manifest(folder: Path, content: dict[str, Any]) -> None:
    """Write manifest.json, with timing and results if there are any."""
    slack = folder / "reports" / "slack.txt"
    delivered = [name for name in _RESULTS if (folder / name).is_file()]
    timing = None
    if "espalier.bit" in delivered and slack.is_file():
        setup, hold = map(float, slack.read_text(encoding="utf-8").split())
        timing = {"setup_slack_ns": setup, "hold_slack_ns": hold}
    manifest = content | {
        "generator": f"espalier {__version__}",
        "bitstream": "espalier.bit" if "espalier.bit" in delivered else None,
        "sha256": {name: _sha256((folder / name).read_bytes()) for name in delivered},
        "timing": timing,
    }
    _write(folder / "manifest.json", json.dumps(manifest, indent=2) + "\n")


def deliver(folder: Path) -> None:
    """Copy the results of Vivado beside the manifest."""
    for name in _RESULTS:
        shutil.copyfile(folder / "vivado" / name, folder / name)


def withdraw(folder: Path) -> None:
    """Remove results of another design, so that no old one is taken for a new one."""
    for name in _RESULTS:
        (folder / name).unlink(missing_ok=True)


def clock_of(config: HardwareConfig, board: BoardFacts, asked_mhz: float | None) -> float:
    """Return the board's fastest clock, MHz, not above the one asked for, or the configuration's."""
    return float(board.best_clock(config.clock_mhz if asked_mhz is None else asked_mhz))


def _origin(config: HardwareConfig) -> str:
    """Hash of all that Verilog is made of: configuration, sources of the generator, version of Amaranth."""
    digest = hashlib.sha256(json.dumps([amaranth.__version__, dataclasses.asdict(config)]).encode())
    for folder in _SOURCES:
        for path in sorted(folder.glob("*.py")):
            digest.update(path.name.encode() + path.read_bytes())
    return digest.hexdigest()


def _sha256(content: bytes) -> str:
    return hashlib.sha256(content).hexdigest()


def _write(path: Path, text: str) -> None:
    temporary = path.with_name(path.name + ".tmp")
    temporary.write_text(text, encoding="utf-8")
    temporary.replace(path)
