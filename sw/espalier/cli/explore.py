"""`espalier explore`: which configurations are worth building for a model on a target's device."""

from __future__ import annotations

import hashlib
import json
import os
from pathlib import Path
from typing import Annotated, Any

import typer

_SHOWN = 24  # rows of the table


def explore(
    model: Annotated[str, typer.Argument(help="built-in name or .espalier file")],
    target: Annotated[str, typer.Option(help="whose device and limits: preset or YAML file")] = "zcu104",
    budget_minutes: Annotated[float, typer.Option(help="begin no evaluation after so many")] = 10.0,
    jobs: Annotated[int, typer.Option(min=0, help="processes; 0: one per core")] = 0,
    state: Annotated[Path | None, typer.Option(help="file to keep results in, and to go on from")] = None,
    json_file: Annotated[Path | None, typer.Option("--json", help="write the front to this file")] = None,
    plot: Annotated[Path | None, typer.Option(help="draw the front (.svg)")] = None,
    output: Annotated[Path | None, typer.Option(help="write the fastest one as a target (.yaml)")] = None,
) -> None:
    """Search the fastest accelerators for MODEL on the device of TARGET; Ctrl-C keeps what was found."""
    from espalier.arch.config import load_config
    from espalier.cli.models import load_compressed
    from espalier.errors import UserError
    from espalier.explore.evaluate import evaluate, processes
    from espalier.explore.report import plot as draw
    from espalier.explore.report import rows, values, write_configuration
    from espalier.explore.search import Search
    from espalier.explore.space import DesignSpace
    from espalier.explore.state import State
    from espalier.report.figure import check_matplotlib
    from espalier.report.progress import progress_on_stderr

    if plot is not None and plot.suffix != ".svg":
        raise UserError(f"--plot {plot}: the plot is an SVG file, its name ends with .svg")
    if plot is not None:
        check_matplotlib("--plot")
    if output is not None and output.suffix not in (".yaml", ".yml"):
        raise UserError(f"--output {output}: the name of a target file ends with .yaml")
    base = load_config(target)
    graph = load_compressed(model, "explore")
    jobs = jobs or os.cpu_count() or 1
    with progress_on_stderr() as progress:
        progress("counting what the network needs")
        space = DesignSpace(graph, base)
        reference = evaluate(graph, base).cycles
        with processes(graph, jobs) as evaluator:
            search = Search(
                space, evaluator, State(state, _identity(model, base)), 60 * budget_minutes, progress
            )
            try:
                search.run()
            except KeyboardInterrupt:
                progress("stopped; these are the results so far")
    result = values(search, space, reference)
    if json_file is not None:
        json_file.write_text(json.dumps(result, indent=2) + "\n", encoding="utf-8")
    if plot is not None and search.front:
        draw(result, plot)
    if output is not None and search.front:
        write_configuration(search.front[0], space, output, f"espalier explore {model} --target {target}")
    device = {name: float(most) for name, most in _device(base).items()}
    _print(result, rows(result, device))


def _identity(model: str, base: Any) -> str:
    """Change when the model, the target or the format of programs does."""
    content = Path(model).read_bytes() if Path(model).is_file() else model.encode()
    digest = hashlib.sha256(content)
    digest.update(f"{base.hash} {base.device}".encode())
    return digest.hexdigest()


def _device(base: Any) -> dict[str, Any]:
    from espalier.estimate.resources import RESOURCES

    return {name: getattr(base.device, name) for name in RESOURCES} if base.device is not None else {}


def _print(result: dict[str, Any], table: list[list[str]]) -> None:
    from rich.console import Console
    from rich.table import Table

    console = Console(width=None if os.isatty(1) else 160)
    shown = Table(title=f"designs for {result['target']} that no other one beats (cycles are predicted)")
    for name in table[0]:
        shown.add_column(name, justify="left" if name == "branches" else "right")
    for row in table[1 : _SHOWN + 1]:
        shown.add_row(*row)
    console.print(shown)
    if len(table) - 1 > _SHOWN:
        console.print(f"{len(table) - 1 - _SHOWN} smaller and slower ones: see --json, --plot")
    known = result["target_cycles"]
    console.print(f"the target as it is: {f'{known:,} cycles' if known else 'does not run the model'}")
    console.print(
        f"{result['evaluated']} designs evaluated, {len(result['failed'])} of them do not run the model"
    )
    if not result["finished"]:
        console.print("the search is not finished: go on with --state, or give more --budget-minutes")
