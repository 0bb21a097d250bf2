"""One picture through the simulated accelerator, checked and measured."""

from __future__ import annotations

import time
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from espalier.arch.config import HardwareConfig, load_config, with_ddr
from espalier.backend.image import ProgramImage
from espalier.errors import UserError
from espalier.estimate.resources import check_fits
from espalier_sim.build import build_simulator
from espalier_sim.device import SimulatedAccelerator
from espalier_sim.progress import Progress, silent
from espalier_sim.result import SCHEMA, RunResult, layer_results, ratio
from espalier_sim.verify import check_layers, check_output, output_tensor
from espalier_sim.verilog import accelerator_verilog
from espalier_sim.workload import Workload, load_workload

BEST = 5  # classes shown


@dataclass(frozen=True)
class RunOptions:
    """What to run and how; see `sim run --help`. check: "layers" or "final"."""

    model: str
    target: str = "zcu104"
    picture: Path | None = None
    stalls: int | None = None
    waves: Path | None = None
    check: str = "layers"
    calibration: Path | None = None
    ddr: str | None = None


def run_model(options: RunOptions, progress: Progress = silent) -> RunResult:
    """Build what is missing, run the picture, compare every layer with the integer model.

    Raises:
        UserError: model, target, picture or tools are missing or unsuitable.
        VerificationMismatch: hardware and model differ, or the hardware hangs or breaks a bus rule.

    """
    config = with_ddr(load_config(options.target), options.ddr)
    check_fits(config)
    _wave_kind(options.waves)
    # What may fail because of the user comes first: building takes minutes.
    workload = load_workload(options.model, config, options.calibration, progress)
    return run_workload(workload, workload.picture(options.picture), config, options, progress)


def run_workload(
    workload: Workload,
    tensor: NDArray[np.uint8],
    config: HardwareConfig,
    options: RunOptions,
    progress: Progress = silent,
) -> RunResult:
    """Run one input tensor uint8[channels, height, width]; `options`: stalls, waves and check count.

    Raises:
        UserError: a tool is missing.
        VerificationMismatch: hardware and model differ, or the hardware hangs or breaks a bus rule.

    """
    started = time.monotonic()
    verilog = accelerator_verilog(config, progress)
    built = build_simulator(verilog, config, _wave_kind(options.waves), progress)
    build_seconds = time.monotonic() - started

    progress("computing the expected result")
    expected = workload.reference(tensor, config)
    started = time.monotonic()
    with SimulatedAccelerator(config, options.stalls, options.waves, progress, built) as accelerator:
        accelerator.load(workload.image)
        load_cycles = accelerator.load_cycles
        inference = accelerator.infer(workload.input_bytes(tensor, config))
    simulate_seconds = time.monotonic() - started

    progress("comparing")
    image = workload.image
    checked = check_layers(image, inference, expected, config) if options.check == "layers" else 0
    scores = output_tensor(image, inference.output, config)
    check_output(image, scores, expected[image.metadata.output])
    metadata = image.metadata
    fraction = ratio(metadata.effective_macs, metadata.dense_macs)
    return RunResult(
        schema=SCHEMA,
        model=workload.name,
        target=config.name,
        backend="rtl-simulation",
        bit_exact=True,
        layers_checked=checked,
        cycles=inference.cycles,
        predicted_cycles=metadata.predicted_cycles,
        clock_mhz=config.clock_mhz,
        clock_source=config.clock_source,
        latency_ms=inference.cycles / (1000 * config.clock_mhz),
        pes=config.pes,
        lanes=config.lanes,
        utilisation=ratio(metadata.effective_macs, config.lanes * inference.cycles),
        compute_fraction=fraction,
        sparsity=1 - fraction if metadata.dense_macs else 0.0,
        weight_bits=sorted({layer.weight_bits for layer in metadata.layers if layer.kind == "conv"}),
        build_seconds=build_seconds,
        simulate_seconds=simulate_seconds,
        program_bytes=len(image.program),
        load_cycles=load_cycles,
        ddr_read_bytes=inference.read_bytes,
        ddr_write_bytes=inference.write_bytes,
        top=_best_classes(image, scores),
        layers=layer_results(metadata, inference.counters, config),
    )


def _wave_kind(waves: Path | None) -> str:
    if waves is None:
        return ""
    if waves.suffix not in (".vcd", ".fst"):
        raise UserError(f"waves file '{waves}': the name must end in .vcd or .fst")
    if not waves.parent.is_dir():
        raise UserError(f"waves file '{waves}': the folder does not exist")
    return waves.suffix[1:]


def _best_classes(image: ProgramImage, scores: NDArray[np.uint8]) -> list[dict[str, Any]]:
    """Labels and real-valued scores of the best classes; nothing if the output is not a vector."""
    if scores.shape[1:] != (1, 1):
        return []
    info, labels = image.output, image.metadata.labels
    values = (scores.reshape(-1).astype(np.float64) - info.zero_point) * info.scale
    order = np.argsort(-values, kind="stable")[:BEST]
    return [
        {"label": labels[index] if index < len(labels) else str(index), "score": float(values[index])}
        for index in order.tolist()
    ]
