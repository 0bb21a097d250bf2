"""What a simulated run measured, as JSON and as tables."""

from __future__ import annotations

import dataclasses
from dataclasses import dataclass, field
from typing import Any

from rich.console import Console
from rich.table import Table

from espalier.runtime.layer_table import (
    LAYER_NOTES,
    LayerResult,
    layer_results,
    layer_table,
    ratio,
    worst_stall,
)

__all__ = ["SCHEMA", "LayerResult", "RunResult", "layer_results", "ratio", "show", "verdict", "worst_stall"]

SCHEMA = 2


@dataclass(frozen=True)
class RunResult:
    """A whole run; the field names are the keys of the JSON output.

    utilisation: effective MACs / (lanes * cycles). compute_fraction: effective / dense MACs; sparsity: the
    rest. weight_bits: all widths that occur. load_cycles: of the program load, once per model.
    """

    schema: int
    model: str
    target: str
    backend: str
    bit_exact: bool
    layers_checked: int
    cycles: int
    predicted_cycles: int
    clock_mhz: int
    clock_source: str
    latency_ms: float
    pes: int
    lanes: int
    utilisation: float
    compute_fraction: float
    sparsity: float
    weight_bits: list[int]
    build_seconds: float
    simulate_seconds: float
    program_bytes: int
    load_cycles: int
    ddr_read_bytes: int
    ddr_write_bytes: int
    top: list[dict[str, Any]] = field(default_factory=list)
    layers: list[LayerResult] = field(default_factory=list)

    def as_json(self) -> dict[str, Any]:
        """Plain values for `json.dump`."""
        return dataclasses.asdict(self)

    @classmethod
    def from_json(cls, content: dict[str, Any]) -> RunResult:
        """Make the result from what `as_json` gave."""
        return cls(**{**content, "layers": [LayerResult(**layer) for layer in content["layers"]]})


def show(result: RunResult, console: Console) -> None:
    """Print classes, layers, totals and the verdict."""
    if result.top:
        table = Table("class", "score", title="best classes", title_justify="left")
        for entry in result.top:
            table.add_row(str(entry["label"]), f"{entry['score']:.3f}")
        console.print(table)
    console.print(layer_table(result.layers))
    lines = [
        *LAYER_NOTES,
        f"total: {result.cycles} cycles, predicted {result.predicted_cycles}"
        f" ({100 * ratio(result.cycles - result.predicted_cycles, result.predicted_cycles):+.1f} %)",
        f"latency: {result.latency_ms:.3f} ms at {result.clock_mhz} MHz ({result.clock_source})",
        *_work(result),
        f"memory traffic: {result.ddr_read_bytes} bytes read, {result.ddr_write_bytes} bytes written",
        f"build {result.build_seconds:.1f} s, simulation {result.simulate_seconds:.1f} s",
    ]
    for line in [*lines, verdict(result)]:
        console.print(line, highlight=False, soft_wrap=True)


def _work(result: RunResult) -> list[str]:
    """Say how much was computed; nothing for a network without weights."""
    if not result.weight_bits:
        return []
    operators = sum(layer.operators for layer in result.layers)
    nulls = sum(layer.null_operators for layer in result.layers)
    bits = ", ".join(str(width) for width in result.weight_bits)
    return [
        f"work: {100 * result.compute_fraction:.1f} % of the dense multiply-accumulates, {bits}-bit weights,"
        f" {operators} operators and {nulls} null operators",
        f"utilisation: {100 * result.utilisation:.1f} % of {result.lanes} lanes",
    ]


def verdict(result: RunResult) -> str:
    """Say in one line what was compared; a difference never gets this far."""
    if result.layers_checked:
        return f"bit-exact: all {result.layers_checked} layers and the output equal the integer model"
    return "bit-exact: the output equals the integer model (layers not compared)"
