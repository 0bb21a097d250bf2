"""`espalier check`: whether a network runs on a target, node by node, before any work."""

from __future__ import annotations

import json
import sys
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

if TYPE_CHECKING:
    from espalier.arch.config import HardwareConfig
    from espalier.check import CheckReport


def check(
    model: Annotated[str, typer.Argument(help=".onnx or .espalier file, program image or built-in name")],
    target: Annotated[str, typer.Option(help="preset name or configuration file")] = "zcu104",
    json_file: Annotated[
        Path | None, typer.Option("--json", help="write the report to this file; -: to stdout, and no table")
    ] = None,
    density: Annotated[
        float | None,
        typer.Option(
            help="share of the weights that an .onnx network is assumed to keep; not given: as compress does"
        ),
    ] = None,
    bits: Annotated[int, typer.Option(min=1, max=8, help="weight bits assumed for an .onnx network")] = 4,
    every: Annotated[bool, typer.Option("--all", help="list all nodes, however many are fine")] = False,
) -> None:
    """Say which nodes of MODEL run on TARGET, what does not and why, and whether it fits.

    Exit code 0: everything runs; 1: something does not, all reasons are listed; 2: the file cannot be read.
    """
    from espalier.arch.config import load_config
    from espalier.check.show import show
    from espalier.errors import UserError
    from espalier.estimate.resources import check_fits

    if density is not None and not 0 < density <= 1:
        raise UserError(f"--density {density}: must be above 0 and at most 1")
    config = load_config(target)
    check_fits(config)
    report = _checked(model, config, density, bits)
    if json_file is not None:
        text = json.dumps(report.values(), indent=2) + "\n"
        if str(json_file) == "-":
            sys.stdout.write(text)
        else:
            json_file.write_text(text, encoding="utf-8")
    if str(json_file) != "-":
        show(report, every)
    if not report.runs:
        raise typer.Exit(1)


def _checked(model: str, config: HardwareConfig, density: float | None, bits: int) -> CheckReport:
    """Check with a line of progress on a terminal, in silence elsewhere."""
    from espalier.check import check_model
    from espalier.report.progress import progress_on_stderr

    if not sys.stderr.isatty():
        return check_model(model, config, density, bits)
    with progress_on_stderr() as show_progress:
        return check_model(
            model, config, density, bits, lambda what, done, total: show_progress(f"[{done}/{total}] {what}")
        )
