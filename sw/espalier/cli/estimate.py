"""`espalier estimate`: cycles, latency and memory use of a model on a target, without running it."""

from __future__ import annotations

import dataclasses
import json
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

if TYPE_CHECKING:
    from espalier.arch.config import HardwareConfig
    from espalier.backend.image import ImageMetadata
    from espalier.estimate.report import Estimate
    from espalier.estimate.resources import ResourceEstimate

SCHEMA = 1


def estimate(
    model: Annotated[str, typer.Argument(help="built-in name or .espalier file")],
    target: Annotated[str, typer.Option(help="preset name or configuration file")] = "zcu104",
    ddr: Annotated[
        str | None,
        typer.Option(help="memory, if not the target's: slow, bursty, stalling, or numbers, see `sim run`"),
    ] = None,
    json_file: Annotated[Path | None, typer.Option("--json", help="write the numbers to this file")] = None,
) -> None:
    """Predict what MODEL costs on TARGET: cycles of every layer, latency, DDR traffic, resources."""
    from espalier.arch.config import load_config, with_ddr
    from espalier.backend.compiler import compile_graph
    from espalier.cli.models import load_compressed
    from espalier.estimate.report import estimate_program
    from espalier.estimate.resources import FIT_FILE, estimate_resources

    config = with_ddr(load_config(target), ddr)
    image = compile_graph(load_compressed(model, "estimate"), config)
    values = summary(image.metadata, estimate_program(image.program, config), config)
    if FIT_FILE.is_file():
        values["resources"] = _resources(estimate_resources(config))
    if json_file is not None:
        json_file.write_text(json.dumps(values, indent=2) + "\n", encoding="utf-8")
    _print(values)


def summary(metadata: ImageMetadata, result: Estimate, config: HardwareConfig) -> dict[str, Any]:
    """All numbers of the report as plain values for JSON.

    share: of the cycles of all layers. utilisation: operators other than null over PE cycles of the layer;
    above 1 where a layer began while the one before still wrote. pe_cycles: where the cycles of all PEs went.
    """
    total = sum(layer.cycles for layer in result.layers)
    layers = [
        {
            "name": info.name,
            "kind": info.kind,
            "cycles": own.cycles,
            "share": own.cycles / total,
            "utilisation": own.operators / (config.pes * own.cycles),
            "bound": own.bound,
            "needs": own.needs,
            "operators": own.operators,
            "null_operators": own.nulls,
            "ring_empty": own.ring_empty,
            "accumulators_full": own.accumulators_full,
            "idle": own.idle,
            "ring_full": own.ring_full,
            "window_wait": own.window_wait,
            "windows": own.windows,
        }
        for info, own in zip(metadata.layers, result.layers, strict=True)
    ]
    return {
        "schema": SCHEMA,
        "model": metadata.network,
        "target": config.name,
        "cycles": result.cycles,
        "clock_mhz": config.clock_mhz,
        "clock_source": config.clock_source,
        "latency_ms": result.cycles / (1000 * config.clock_mhz),
        "lanes": config.lanes,
        "dense_macs": metadata.dense_macs,
        "effective_macs": metadata.effective_macs,
        "utilisation": metadata.effective_macs / (config.lanes * result.cycles),
        "pe_cycles": result.pe_cycles,
        "ddr_read_bytes": result.ddr_read_bytes,
        "ddr_write_bytes": result.ddr_write_bytes,
        "memory": [
            {"memory": memory.memory, "used": memory.used, "available": memory.available}
            for memory in metadata.memory
        ],
        "layers": layers,
    }


def _resources(estimated: ResourceEstimate) -> dict[str, dict[str, float]]:
    """Primitives used, and their share of the device if the target names one."""
    used = dataclasses.asdict(estimated.total)
    return {
        name: {"used": count, **({"share": estimated.shares[name]} if estimated.shares else {})}
        for name, count in used.items()
    }


def _print(values: dict[str, Any]) -> None:
    typer.echo(f"{'layer':24s} {'cycles':>9s} {'share':>7s} {'utilisation':>12s}  bound by")
    for layer in values["layers"]:
        used = f"{layer['utilisation']:12.1%}" if layer["operators"] else f"{'':12s}"
        typer.echo(f"{layer['name']:24s} {layer['cycles']:9d} {layer['share']:7.1%} {used}  {layer['bound']}")
    typer.echo(
        f"{values['cycles']} cycles, {values['latency_ms']:.3f} ms at {values['clock_mhz']} MHz"
        f" ({values['clock_source']}); {values['utilisation']:.1%} of {values['lanes']} lanes used"
    )
    pes = sum(values["pe_cycles"].values())
    shares = (f"{name.replace('_', ' ')} {count / pes:.1%}" for name, count in values["pe_cycles"].items())
    typer.echo(f"cycles of the PEs: {', '.join(shares)}")
    typer.echo(
        f"DDR per inference: {values['ddr_read_bytes']} bytes read, {values['ddr_write_bytes']} written"
    )
    for memory in values["memory"]:
        typer.echo(
            f"{memory['memory']} memory: {memory['used']} of {memory['available']} words"
            f" ({memory['used'] / memory['available']:.1%})"
        )
    for name, resource in values.get("resources", {}).items():
        share = f" ({resource['share']:.1%} of the device)" if "share" in resource else ""
        typer.echo(f"{name.upper()}: {resource['used']:g}{share}")
