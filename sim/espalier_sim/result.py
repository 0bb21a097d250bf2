"""What a simulated run measured, as JSON and as tables."""

from __future__ import annotations

import dataclasses
from dataclasses import dataclass, field
from typing import Any

from rich.console import Console
from rich.table import Table

from espalier.arch.config import HardwareConfig
from espalier.arch.registers import COUNTERS
from espalier.backend.image import ImageMetadata, LayerInfo
from espalier_sim.device import Inference

SCHEMA = 2
_FOREIGN_SHARE = 0.1  # of a layer's operators, above which its counters say little about itself
# Below the table of layers.
LAYER_NOTES = (
    "layers overlap: a row counts from the end of the layer that ended before to the layer's own last word",
    "busy: PE cycles with an operator of any layer; use: the layer's MACs / (lanes x cycles), where nine"
    " tenths of a row are its own",
)
# Counters that say why a layer took longer than its operators.
STALL_COUNTERS = tuple(name for name, _ in COUNTERS if name not in ("cycles", "operators", "null_operators"))


@dataclass(frozen=True)
class LayerResult:
    """One layer. cycles, operators, null_operators, stalls: counted by the hardware; the rest is compiled.

    kind: "conv", "max" or "global". Layers overlap, and the hardware counts from the end of the layer that
    ended before to the layer's own last word: what a layer did while the one before still wrote counts there.
    busy: share of those PE cycles in which an operator was issued, whichever layer's. utilisation: effective
    MACs / (lanes * cycles), None if a tenth or more of the operators issued belongs to other layers, or if
    they are too few for the layer.
    """

    name: str
    kind: str
    cycles: int
    predicted_cycles: int
    dense_macs: int
    effective_macs: int
    operators: int
    null_operators: int
    busy: float
    utilisation: float | None
    stalls: dict[str, int]


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


def ratio(part: float, whole: float) -> float:
    """`part / whole`, 0 for nothing of nothing."""
    return part / whole if whole else 0.0


def layer_results(metadata: ImageMetadata, inference: Inference, config: HardwareConfig) -> list[LayerResult]:
    """Join the compiler's numbers of every layer with the hardware's."""
    return [
        _layer_result(layer, counters, config)
        for layer, counters in zip(metadata.layers, inference.counters, strict=True)
    ]


def _layer_result(layer: LayerInfo, counters: dict[str, int], config: HardwareConfig) -> LayerResult:
    cycles, operators = counters["cycles"], counters["operators"] + counters["null_operators"]
    own = layer.operators + layer.null_operators
    busy = ratio(counters["operators"], config.pes * cycles)
    utilisation = ratio(layer.effective_macs, config.lanes * cycles)
    # A row with less work than the layer has would show more than can be.
    is_own = 0 < utilisation <= busy and abs(operators - own) < _FOREIGN_SHARE * own
    return LayerResult(
        name=layer.name,
        kind=layer.kind,
        cycles=cycles,
        predicted_cycles=layer.predicted_cycles,
        dense_macs=layer.dense_macs,
        effective_macs=layer.effective_macs,
        operators=counters["operators"],
        null_operators=counters["null_operators"],
        busy=busy,
        utilisation=utilisation if is_own else None,
        stalls={name: counters[name] for name in STALL_COUNTERS},
    )


def show(result: RunResult, console: Console) -> None:
    """Print classes, layers, totals and the verdict."""
    if result.top:
        table = Table("class", "score", title="best classes", title_justify="left")
        for entry in result.top:
            table.add_row(str(entry["label"]), f"{entry['score']:.3f}")
        console.print(table)
    console.print(_layer_table(result.layers))
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


def worst_stall(layer: LayerResult) -> str:
    """Name and number of the stall that was counted most often."""
    name = max(layer.stalls, key=lambda key: layer.stalls[key])
    return f"{name} {layer.stalls[name]}" if layer.stalls[name] else "none"


def _layer_table(layers: list[LayerResult]) -> Table:
    table = Table("layer", title="layers (stalls: PE cycles or branch cycles, see docs/registers.md)")
    table.title_justify = "left"
    header = "cycles,predicted,dense MACs,effective,operators,nulls,busy %,use %,stalls"
    for name in header.split(","):
        table.add_column(name, justify="right")
    for layer in layers:
        use = "" if layer.utilisation is None else f"{100 * layer.utilisation:.1f}"
        table.add_row(
            layer.name, str(layer.cycles), str(layer.predicted_cycles), str(layer.dense_macs),
            str(layer.effective_macs), str(layer.operators), str(layer.null_operators),
            f"{100 * layer.busy:.1f}", use, worst_stall(layer),
        )  # fmt: skip
    return table
