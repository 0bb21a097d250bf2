"""`espalier explore`: which configurations are worth building for a model on a target's device."""

from __future__ import annotations

import enum
import json
import os
import shlex
import sys
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

if TYPE_CHECKING:
    from espalier.explore.executors import Executor
    from espalier.ir.graph import IntegerGraph

_SHOWN = 24  # rows of the table
_MINUTES = 10.0
_CRASHED, _INTERRUPTED = 1, 130  # exit codes


class ExecutorName(str, enum.Enum):
    """Where evaluations run."""

    LOCAL = "local"
    DASK = "dask"


def explore(
    model: Annotated[str, typer.Argument(help="built-in name or .espalier file")],
    target: Annotated[str, typer.Option(help="whose device and limits: preset or YAML file")] = "zcu104",
    designs: Annotated[int | None, typer.Option(min=1, help="evaluate at most so many (120)")] = None,
    budget_minutes: Annotated[
        float, typer.Option(min=0, help="begin no evaluation after so many")
    ] = _MINUTES,
    jobs: Annotated[int, typer.Option(min=0, help="processes; 0: one per core")] = 0,
    executor: Annotated[
        ExecutorName, typer.Option(help="processes on this machine, or a Dask cluster")
    ] = ExecutorName.LOCAL,
    dask_address: Annotated[
        str | None, typer.Option(help="scheduler of the Dask cluster; without, one is started here")
    ] = None,
    state: Annotated[Path | None, typer.Option(help="file to keep results in, and to go on from")] = None,
    restart: Annotated[bool, typer.Option("--restart", help="forget what is in the state file")] = False,
    json_file: Annotated[Path | None, typer.Option("--json", help="write the front to this file")] = None,
    plot: Annotated[Path | None, typer.Option(help="draw the front (.svg)")] = None,
    output: Annotated[Path | None, typer.Option(help="write the fastest one as a target (.yaml)")] = None,
) -> None:
    """Search the fastest accelerators for MODEL on the device of TARGET; Ctrl-C keeps what was found.

    Exits with 1 if an evaluation ended with an unexpected error; the others are reported all the same.
    """
    from espalier.arch.config import load_config
    from espalier.cli.models import load_compressed
    from espalier.errors import UserError
    from espalier.explore.identity import identity_of
    from espalier.explore.report import plot as draw
    from espalier.explore.report import rows, values, write_configuration
    from espalier.explore.search import DESIGNS, STOPPED, Search
    from espalier.explore.space import DesignSpace
    from espalier.explore.state import State
    from espalier.report.progress import progress_on_stderr

    if dask_address is not None and executor != ExecutorName.DASK:
        raise UserError("--dask-address is for --executor dask")
    _check_outputs(json_file, plot, output)
    base = load_config(target)
    graph = load_compressed(model, "explore")
    kept = State(state, identity_of(graph, base), restart)
    with progress_on_stderr() as progress:
        progress("counting what the network needs")
        space = DesignSpace(graph, base)
        workers = _executor(graph, executor, jobs or os.cpu_count() or 1, dask_address)
        search = Search(space, workers, kept, progress, 60 * budget_minutes, designs or DESIGNS)
        try:
            search.run()
        except KeyboardInterrupt:
            progress("stopped; these are the results so far")
        finally:
            workers.close()
    result = values(search)
    if json_file is not None:
        json_file.write_text(json.dumps(result, indent=2) + "\n", encoding="utf-8")
    if plot is not None and search.front:
        draw(result, plot)
    if output is not None and search.front:
        command = ["espalier", "explore", model, "--target", target]
        command += [] if designs is None else ["--designs", str(designs)]
        command += [] if budget_minutes == _MINUTES else ["--budget-minutes", f"{budget_minutes:g}"]
        write_configuration(search, output, shlex.join(command))
    _print(result, rows(result, _device(base), _SHOWN))
    if search.end == STOPPED:
        raise typer.Exit(_INTERRUPTED)
    if search.crashed:
        raise typer.Exit(_CRASHED)


def _check_outputs(json_file: Path | None, plot: Path | None, output: Path | None) -> None:
    """Fail before minutes of work."""
    from espalier.errors import UserError
    from espalier.report.figure import check_matplotlib

    for option, path in (("--json", json_file), ("--plot", plot), ("--output", output)):
        if path is not None and not path.absolute().parent.is_dir():
            raise UserError(f"{option} {path}: the folder does not exist")
    if plot is not None and plot.suffix != ".svg":
        raise UserError(f"--plot {plot}: the plot is an SVG file, its name ends with .svg")
    if plot is not None:
        check_matplotlib("--plot")
    if output is not None and output.suffix not in (".yaml", ".yml"):
        raise UserError(f"--output {output}: the name of a target file ends with .yaml")


def _executor(graph: IntegerGraph, name: ExecutorName, jobs: int, address: str | None) -> Executor:
    from espalier.explore.evaluate import Task

    if name == ExecutorName.DASK:
        from espalier.explore.dask_executor import DaskExecutor

        return DaskExecutor(Task(graph), jobs, address)
    from espalier.explore.executors import LocalExecutor

    return LocalExecutor(Task(graph), jobs)


def _device(base: Any) -> dict[str, float]:
    from espalier.estimate.resources import RESOURCES

    return {name: float(getattr(base.device, name)) for name in RESOURCES} if base.device is not None else {}


def _print(result: dict[str, Any], table: list[list[str]]) -> None:
    from rich.console import Console
    from rich.table import Table

    console = Console(width=None if sys.stdout.isatty() else 160)
    shown = Table(title=f"designs for {result['target']} that no other one beats (cycles are predicted)")
    for name in table[0]:
        shown.add_column(name, justify="left" if name == "branches" else "right")
    for row in table[1:]:
        shown.add_row(*row)
    console.print(shown)
    if len(table) - 1 < len(result["front"]):
        console.print(f"{len(table) - 1} of {len(result['front'])} designs on the front; all: --json, --plot")
    known = result["target_cycles"]
    console.print(f"the target as it is: {f'{known:,} cycles' if known else result['target_failed']}")
    console.print(
        f"{result['evaluated']} designs evaluated, {len(result['failed'])} of them do not run the model"
    )
    for design, reason in result["crashed"].items():
        print(f"error: design {design}: {reason}", file=sys.stderr)
    if result["end"] in ("out of time", "stopped"):
        console.print("the search is not finished: go on with --state, or give more --budget-minutes")
