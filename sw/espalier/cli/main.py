"""The `espalier` command line: one command per module, further ones by the entry point group."""

from __future__ import annotations

from importlib.metadata import entry_points
from typing import Annotated

import typer

from espalier import __version__
from espalier.cli.check import check
from espalier.cli.compile_command import compile_model
from espalier.cli.compress_command import compress
from espalier.cli.doctor import doctor
from espalier.cli.estimate import estimate
from espalier.cli.evaluate import evaluate
from espalier.cli.explore import explore
from espalier.cli.handling import run_command

# Packages above this one (hardware, simulation) add commands through this entry point group.
COMMAND_GROUP = "espalier.commands"

app = typer.Typer(
    name="espalier",
    help="Compresses a trained CNN and compiles it for a sparse FPGA accelerator.",
    no_args_is_help=True,
    pretty_exceptions_enable=False,
)


def _print_version(value: bool) -> None:
    if value:
        typer.echo(f"espalier {__version__}")
        raise typer.Exit


@app.callback()
def _options(
    version: Annotated[bool, typer.Option("--version", callback=_print_version, is_eager=True)] = False,
) -> None:
    pass


app.command("check")(check)
app.command("compress")(compress)
app.command("compile")(compile_model)
app.command("doctor")(doctor)
app.command("estimate")(estimate)
app.command("evaluate")(evaluate)
app.command("explore")(explore)


@app.command()
def targets() -> None:
    """List the targets with their lanes and clocks."""
    from espalier.arch.config import load_config, preset_names

    for name in preset_names():
        config = load_config(name)
        typer.echo(f"{name:12s} {config.lanes:6d} lanes  {config.clock_mhz} MHz ({config.clock_source})")


def main() -> None:
    """Console script `espalier`."""
    for point in entry_points(group=COMMAND_GROUP):
        app.command(point.name)(point.load())
    run_command(app)
