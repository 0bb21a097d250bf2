"""The `espalier build` command: from a target to Verilog, and to a bitstream where Vivado is installed."""

from __future__ import annotations

import hashlib
import json
import shutil
from pathlib import Path
from typing import Annotated

import typer

from espalier import __version__
from espalier.arch.config import load_config

EXIT_TOOL_MISSING = 3


def build(
    target: Annotated[str, typer.Option(help="preset name or configuration file")] = "zcu104",
    out: Annotated[Path, typer.Option(help="folder that gets one folder per target")] = Path("bitstreams"),
) -> None:
    """Write the accelerator's Verilog and its manifest for TARGET."""
    from espalier.estimate.resources import check_fits
    from espalier_hw.generate import generate_verilog

    config = load_config(target)
    check_fits(config)
    folder = out / config.name
    folder.mkdir(parents=True, exist_ok=True)
    typer.echo(f"generating Verilog of {config.name} ({config.lanes} lanes) ...", err=True)
    modules = generate_verilog(config, primitives="xilinx")
    text = "\n".join(modules[name] for name in sorted(modules))
    path = folder / "espalier.v"
    temporary = path.with_suffix(".tmp")
    temporary.write_text(text, encoding="utf-8")
    temporary.replace(path)
    manifest = {
        "target": config.name,
        "part": config.device.part if config.device else None,
        "config_hash": f"{config.hash:08x}",
        "verilog_sha256": hashlib.sha256(text.encode()).hexdigest(),
        "generator": f"espalier {__version__}",
        "bitstream": None,
        "timing": None,
    }
    (folder / "manifest.json").write_text(json.dumps(manifest, indent=2) + "\n", encoding="utf-8")
    typer.echo(f"wrote {path} and {folder / 'manifest.json'}")
    found = shutil.which("vivado")
    typer.echo(
        "no bitstream: this version stops after the Verilog; the Vivado project is not written yet"
        + ("" if found else ", and Vivado is not installed here"),
        err=True,
    )
    raise typer.Exit(EXIT_TOOL_MISSING)
