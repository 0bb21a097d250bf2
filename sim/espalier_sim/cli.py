"""The `sim` command line."""

from __future__ import annotations

import json
import sys
from enum import Enum
from importlib.metadata import entry_points
from pathlib import Path
from typing import Annotated

import typer
from rich.console import Console

from espalier.cli.handling import run_command
from espalier.errors import UserError
from espalier_sim.progress import progress_on_stderr
from espalier_sim.result import RunResult, show

COMMAND_GROUP = "espalier.sim_commands"

app = typer.Typer(
    name="sim",
    help="Runs networks on the accelerator's RTL in a compiled simulator and checks every layer.",
    no_args_is_help=True,
    pretty_exceptions_enable=False,
)


class Check(str, Enum):
    """What is compared with the integer model."""

    layers = "layers"
    final = "final"


@app.command()
def run(
    model: Annotated[str, typer.Argument(help="Built-in name, .onnx, .espalier or compiled image file.")],
    target: Annotated[str, typer.Option(help="Hardware preset or YAML file.")] = "zcu104",
    image: Annotated[
        Path | None, typer.Option(help="Picture to classify; a built-in one if not given.")
    ] = None,
    stalls: Annotated[
        int | None, typer.Option(min=0, help="Seed of random stalls on all AXI channels; none if not given.")
    ] = None,
    ddr: Annotated[
        str | None,
        typer.Option(
            help="Memory, if not the target's: slow, bursty, stalling, or for example"
            " latency=50-500,beat=2,pause=64/128."
        ),
    ] = None,
    json_file: Annotated[
        str | None, typer.Option("--json", metavar="FILE|-", help="Write the result as JSON; - is stdout.")
    ] = None,
    waves: Annotated[Path | None, typer.Option(help="Write waves to this .vcd or .fst file.")] = None,
    check: Annotated[
        Check, typer.Option(help="Compare every layer, or the final output only.")
    ] = Check.layers,
    calibration: Annotated[
        Path | None, typer.Option(help="Folder of pictures; for .onnx models, see also espalier compress.")
    ] = None,
) -> None:
    """Run MODEL on one picture; exits with 1 if hardware and integer model differ."""
    from espalier_sim.run import RunOptions, run_model

    options = RunOptions(model, target, image, stalls, waves, check.value, calibration, ddr)
    _check_json_target(json_file)
    with progress_on_stderr() as progress:
        result = run_model(options, progress)
    if json_file != "-":
        # Wide enough for the table where the output is not a terminal.
        console = Console(width=None if sys.stdout.isatty() else 140)
        show(result, console)
    if json_file is not None:
        _write_json(result, json_file)


@app.command("list")
def list_models() -> None:
    """List built-in models and targets."""
    from espalier.arch.config import load_config, preset_names
    from espalier.models.builtin import builtin_names

    for name in builtin_names():
        typer.echo(f"model   {name}")
    for name in preset_names():
        config = load_config(name)
        typer.echo(f"target  {name:10s} {config.lanes} lanes, {config.clock_mhz} MHz ({config.clock_source})")


def _check_json_target(json_file: str | None) -> None:
    """Fail before the run, not after it."""
    if json_file is None or json_file == "-":
        return
    if not Path(json_file).absolute().parent.is_dir():
        raise UserError(f"cannot write '{json_file}': the folder does not exist")
    if Path(json_file).is_dir():
        raise UserError(f"cannot write '{json_file}': it is a folder")


def _write_json(result: RunResult, json_file: str) -> None:
    text = json.dumps(result.as_json(), indent=2) + "\n"
    if json_file == "-":
        sys.stdout.write(text)
        return
    try:
        Path(json_file).write_text(text, encoding="utf-8")
    except OSError as error:
        raise UserError(f"cannot write '{json_file}': {error.strerror or error}") from error


def main() -> None:
    """Console script `sim`."""
    for point in entry_points(group=COMMAND_GROUP):
        app.command(point.name)(point.load())
    run_command(app)
