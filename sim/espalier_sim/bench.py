"""`sim bench`: measures what docs/performance.md reports and writes the page, its plots and its JSON twin."""

from __future__ import annotations

import io
import json
import re
import time
from datetime import datetime, timezone
from pathlib import Path
from typing import Annotated, Any

import typer
from rich.console import Console

from espalier import numerics
from espalier.backend.compiler import compile_graph, lower_integer_graph
from espalier.errors import UserError
from espalier.models.builtin import manifest
from espalier.report.figure import check_matplotlib
from espalier_sim.bench_plan import SECTIONS, Plan, full_plan, quick_plan
from espalier_sim.bench_resources import check_yosys
from espalier_sim.bench_resources import resources as count_resources
from espalier_sim.bench_runs import run_jobs
from espalier_sim.performance_page import page
from espalier_sim.performance_plots import draw
from espalier_sim.progress import Progress, progress_on_stderr
from espalier_sim.result import RunResult, show
from espalier_sim.variants import picture_for

_MODEL_PICTURES = 8  # for the speed of the integer model
_PICTURE_COLUMNS = 132  # characters


def bench(
    out: Annotated[
        Path | None,
        typer.Option(
            help="Page to write; plots and JSON twin lie beside it. docs/performance.md if not given, with"
            " --quick build/performance.md."
        ),
    ] = None,
    resources: Annotated[
        bool,
        typer.Option(help="Count resources with yosys (minutes) if the Verilog is not that of the twin."),
    ] = True,
    quick: Annotated[
        bool, typer.Option(help="Small networks on the target tiny: tries the page itself, measures nothing.")
    ] = False,
    only: Annotated[
        list[str] | None,
        typer.Option(help=f"Leave out all runs but these: {', '.join(SECTIONS)} (several times)."),
    ] = None,
) -> None:
    """Measure networks, ablations and densities in RTL, every run bit-exact; finished runs are kept."""
    for name in only or []:
        if name not in SECTIONS:
            raise UserError(f"--only {name}: choose of {', '.join(SECTIONS)}")
    check_matplotlib("the performance page")
    if resources and not quick:
        check_yosys()
    out = out or Path("build" if quick else "docs") / "performance.md"
    plan = quick_plan() if quick else full_plan()
    jobs = [job for job in plan.jobs if not only or job.section in ("run", *only)]
    twin = out.with_suffix(".json")
    with progress_on_stderr() as progress:
        found: dict[str, Any] = {
            "date": datetime.now(timezone.utc).date().isoformat(),
            **run_jobs(jobs, progress),
            "speed": _speed(plan, progress),
        }
        if plan.model:
            found["model"] = manifest(plan.model)
        if resources and not quick:
            found["resources"] = count_resources(plan.config, twin, progress)
    out.parent.mkdir(parents=True, exist_ok=True)
    images = out.parent / "images"
    draw(found, images)
    _picture(RunResult.from_json(found["run"][0]["result"]), images / "sim_run.svg")
    out.write_text(page(found), encoding="utf-8")
    twin.write_text(json.dumps(_slim(found), indent=2) + "\n", encoding="utf-8")
    typer.echo(f"wrote {out}, {twin} and the plots in {images}")


def _slim(found: dict[str, Any]) -> dict[str, Any]:
    """Leave out the layers of all runs but the main one."""
    small = dict(found)
    for section, rows in found.items():
        if section != "run" and isinstance(rows, list):
            small[section] = [
                {**row, "result": {key: value for key, value in row["result"].items() if key != "layers"}}
                if "result" in row
                else row
                for row in rows
            ]
    return small


def _picture(result: RunResult, path: Path) -> None:
    """Draw what `sim run` prints, for the README."""
    console = Console(record=True, width=_PICTURE_COLUMNS, file=io.StringIO())
    show(result, console)
    path.parent.mkdir(parents=True, exist_ok=True)
    # Without the web fonts of Rich's template: a picture in a repository loads nothing from elsewhere.
    title = f"sim run {result.model}"
    text = re.sub(r"@font-face \{.*?\}", "", console.export_svg(title=title), flags=re.DOTALL)
    path.write_text(text, encoding="utf-8")


def _speed(plan: Plan, progress: Progress) -> dict[str, float]:
    """Time the compiler, and the integer model with all tensors of every picture computed exactly."""
    progress("timing the compiler")
    graph = plan.graph()
    started = time.perf_counter()
    compile_graph(graph, plan.config)
    compiler = time.perf_counter() - started
    progress("timing the integer model")
    lowered = lower_integer_graph(graph, plan.config)
    tensor = picture_for(lowered)
    numerics.run(lowered, tensor)  # warms the caches
    started = time.perf_counter()
    for _ in range(_MODEL_PICTURES):
        numerics.run(lowered, tensor)
    pictures = _MODEL_PICTURES / (time.perf_counter() - started)
    return {"compile_seconds": compiler, "model_pictures_per_second": pictures}
