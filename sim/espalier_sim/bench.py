"""`sim bench`: measures what docs/performance.md reports and writes the page with its JSON twin."""

from __future__ import annotations

import hashlib
import io
import json
import re
import time
from dataclasses import asdict
from datetime import datetime, timezone
from pathlib import Path
from typing import Annotated, Any

import typer
from rich.console import Console

from espalier import numerics
from espalier.arch.config import HardwareConfig, load_config
from espalier.backend.compiler import compile_graph
from espalier.backend.options import CompileOptions
from espalier.models.builtin import load_builtin, manifest
from espalier_sim.build import build_simulator
from espalier_sim.device import SimulatedAccelerator
from espalier_sim.performance_page import page
from espalier_sim.progress import Progress, progress_on_stderr
from espalier_sim.result import RunResult, ratio, show
from espalier_sim.run import RunOptions, run_model
from espalier_sim.verify import check_layers
from espalier_sim.verilog import accelerator_verilog
from espalier_sim.workload import Workload, load_workload

MODEL, TARGET = "resnet18", "zcu104"
ABLATIONS = (
    ("neither", CompileOptions(reorder=False, pad=False)),
    ("padding only", CompileOptions(reorder=False, pad=True)),
    ("reordering only", CompileOptions(reorder=True, pad=False)),
    ("both", CompileOptions(reorder=True, pad=True)),
)
_MODEL_PICTURES = 8  # for the speed of the integer model
_PICTURE_COLUMNS = 132  # characters


def bench(
    out: Annotated[Path, typer.Option(help="page to write; the JSON twin lies beside it")] = Path(
        "docs/performance.md"
    ),
    resources: Annotated[
        bool, typer.Option(help="count resources with yosys (minutes) if the Verilog is not that of the twin")
    ] = True,
) -> None:
    """Measure the built-in model in RTL, with and without reordering and padding, and count resources."""
    config = load_config(TARGET)
    twin = out.with_suffix(".json")
    with progress_on_stderr() as progress:
        result = run_model(RunOptions(MODEL, TARGET), progress)
        workload = load_workload(MODEL, config, progress=progress)
        found: dict[str, Any] = {
            "date": datetime.now(timezone.utc).date().isoformat(),
            "run": result.as_json(),
            "model": manifest(MODEL),
            "ablation": _ablation(workload, config, progress),
            "integer_model": _integer_model_speed(workload, progress),
        }
        if resources:
            found["resources"] = _resources(config, _counted(twin), progress)
    twin.write_text(json.dumps(found, indent=2) + "\n", encoding="utf-8")
    out.write_text(page(found), encoding="utf-8")
    _picture(result, out.parent / "images" / "sim_run.svg")
    typer.echo(f"wrote {out} and {twin}")


def _picture(result: RunResult, path: Path) -> None:
    """Draw what `sim run` prints, for the README."""
    console = Console(record=True, width=_PICTURE_COLUMNS, file=io.StringIO())
    show(result, console)
    path.parent.mkdir(parents=True, exist_ok=True)
    # Without the web fonts of Rich's template: a picture in a repository loads nothing from elsewhere.
    text = re.sub(r"@font-face \{.*?\}", "", console.export_svg(title=f"sim run {MODEL}"), flags=re.DOTALL)
    path.write_text(text, encoding="utf-8")


def _ablation(workload: Workload, config: HardwareConfig, progress: Progress) -> list[dict[str, Any]]:
    built = build_simulator(accelerator_verilog(config, progress), config, "", progress)
    graph, tensor = load_builtin(MODEL), workload.picture(None)
    content, expected = workload.input_bytes(tensor, config), workload.reference(tensor, config)
    rows = []
    for name, options in ABLATIONS:
        progress(f"ablation: {name}")
        image = compile_graph(graph, config, options)
        with SimulatedAccelerator(config, progress=progress, built=built) as accelerator:
            accelerator.load(image)
            load_cycles = accelerator.load_cycles
            inference = accelerator.infer(content)
        check_layers(image, inference, expected, config)
        metadata = image.metadata
        rows.append(
            {
                "name": name,
                "cycles": inference.cycles,
                "predicted_cycles": metadata.predicted_cycles,
                "utilisation": ratio(metadata.effective_macs, config.lanes * inference.cycles),
                "null_operators": metadata.null_operators,
                "program_bytes": len(image.program),
                "load_cycles": load_cycles,
            }
        )
    return rows


def _integer_model_speed(workload: Workload, progress: Progress) -> dict[str, Any]:
    """Pictures per second of the integer model, all tensors of every picture computed exactly."""
    progress("timing the integer model")
    assert workload.graph is not None, "built-in models are graphs"
    tensor = workload.picture(None)
    numerics.run(workload.graph, tensor)  # warms the caches
    started = time.perf_counter()
    for _ in range(_MODEL_PICTURES):
        numerics.run(workload.graph, tensor)
    return {"pictures_per_second": _MODEL_PICTURES / (time.perf_counter() - started)}


def _counted(twin: Path) -> dict[str, Any]:
    """Read the resources of an earlier run, empty if there is none."""
    try:
        found: dict[str, Any] = json.loads(twin.read_text(encoding="utf-8"))["resources"]
    except (OSError, ValueError, KeyError):
        return {}
    return found


def _resources(config: HardwareConfig, earlier: dict[str, Any], progress: Progress) -> dict[str, Any]:
    from espalier_hw.generate import generate_verilog
    from espalier_hw.resources import count, count_output_stage

    progress("generating Verilog with Xilinx primitives")
    texts = generate_verilog(config, "xilinx")
    digest = hashlib.sha256(json.dumps(texts, sort_keys=True).encode()).hexdigest()
    if earlier.get("verilog_sha256") == digest:
        return earlier
    progress("counting resources with yosys (minutes)")
    design = count(config)
    assert config.device is not None, "the benchmark's target names its device"
    return {
        "verilog_sha256": digest,
        "modules": {name: asdict(found) for name, found in design.modules.items()},
        "instances": design.instances,
        "output_stage": asdict(count_output_stage(config)),
        "total": asdict(design.total),
        "device": asdict(config.device),
    }
