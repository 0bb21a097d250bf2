"""Runs of the benchmark: each is compared with the integer model, and kept so that it is made only once."""

from __future__ import annotations

import dataclasses
import hashlib
import json
import os
from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Any

import numpy as np
from numpy.typing import NDArray

import espalier.numerics
from espalier.arch.config import HardwareConfig
from espalier.backend.compiler import DEFAULT_OPTIONS, lower_integer_graph
from espalier.backend.options import CompileOptions
from espalier.errors import CapacityError
from espalier.ir.graph import IntegerGraph
from espalier_sim.bench_losses import losses
from espalier_sim.build import HARNESS_FOLDER, cache_folder, locked
from espalier_sim.deviations import deviations
from espalier_sim.hashing import source_hash
from espalier_sim.images import compiled
from espalier_sim.progress import Progress
from espalier_sim.result import SCHEMA, RunResult
from espalier_sim.run import RunOptions, run_workload
from espalier_sim.variants import picture_for
from espalier_sim.verilog import accelerator_verilog
from espalier_sim.workload import Workload


@dataclass(frozen=True)
class Job:
    """One run. section: part of the page that it belongs to; facts: what the page says about it besides."""

    section: str
    name: str
    graph: Callable[[], IntegerGraph]
    config: HardwareConfig
    options: CompileOptions = DEFAULT_OPTIONS
    facts: dict[str, Any] = field(default_factory=dict)


def run_jobs(jobs: list[Job], progress: Progress) -> dict[str, list[dict[str, Any]]]:
    """Run all jobs, or take them from the cache; rows by section, in order.

    A row holds name, facts and `result` (`RunResult.as_json`) with `losses` and `prediction` (`Deviations`),
    or `error` if the network does not fit the target.

    Raises:
        UserError: a tool is missing.
        VerificationMismatch: hardware and integer model differ.

    """
    sections: dict[str, list[dict[str, Any]]] = {}
    for number, job in enumerate(jobs, 1):
        head = f"[{number}/{len(jobs)}] {job.section}, {job.name}: "

        def show(message: str, head: str = head) -> None:
            progress(head + message)

        sections.setdefault(job.section, []).append({"name": job.name, **job.facts, **_outcome(job, show)})
    return sections


def _outcome(job: Job, progress: Progress) -> dict[str, Any]:
    progress("compiling")
    graph = job.graph()
    try:
        image = compiled(graph, job.config, progress, job.options)
    except CapacityError as error:
        progress("does not fit")
        return {"error": str(error)}
    workload = Workload(graph.name, image, lower_integer_graph(graph, job.config))
    result = _run(workload, job.config, progress)
    prediction = dataclasses.asdict(deviations(result))
    return {"result": result.as_json(), "losses": losses(result), "prediction": prediction}


def _run(workload: Workload, config: HardwareConfig, progress: Progress) -> RunResult:
    """Run on the network's own picture if it has one, otherwise on a random one."""
    assert workload.graph is not None, "benchmarks are compiled from graphs"
    has_picture = "picture_size" in workload.graph.metadata
    tensor = workload.picture(None) if has_picture else picture_for(workload.graph)
    path = cache_folder() / "benchmarks" / f"{config.name}-{_key(workload, tensor, config, progress)}.json"
    with locked(path):
        if path.is_file():
            return RunResult.from_json(json.loads(path.read_text(encoding="utf-8")))
        result = run_workload(workload, tensor, config, RunOptions(workload.name, config.name), progress)
        unfinished = path.with_name(f"{path.name}.{os.getpid()}.unfinished")
        unfinished.write_text(json.dumps(result.as_json()), encoding="utf-8")
        unfinished.replace(path)
    return result


def _key(workload: Workload, tensor: NDArray[np.uint8], config: HardwareConfig, progress: Progress) -> str:
    """Hash of all that a run's numbers and its verdict depend on."""
    digest = hashlib.sha256(workload.image.to_bytes())
    harness = [path.read_text(encoding="utf-8") for path in sorted(HARNESS_FOLDER.glob("*.[ch]pp"))]
    texts = [
        accelerator_verilog(config, progress),
        harness,
        dataclasses.asdict(config),
        workload.name,
        SCHEMA,
    ]
    digest.update(json.dumps(texts, sort_keys=True).encode())
    digest.update(tensor.tobytes())
    return source_hash((espalier.numerics,), digest.hexdigest())
