"""Counters of the layers beside the compiler's numbers, and as a table."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from rich.table import Table

from espalier.arch.config import HardwareConfig
from espalier.arch.registers import COUNTERS
from espalier.backend.image import ImageMetadata, LayerInfo

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


def ratio(part: float, whole: float) -> float:
    """`part / whole`, 0 for nothing of nothing."""
    return part / whole if whole else 0.0


def layer_results(
    metadata: ImageMetadata, counters: Sequence[dict[str, int]], config: HardwareConfig
) -> list[LayerResult]:
    """Join the compiler's numbers of every layer with the hardware's `counters`, one mapping per layer."""
    return [
        _layer_result(layer, counted, config)
        for layer, counted in zip(metadata.layers, counters, strict=True)
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


def worst_stall(layer: LayerResult) -> str:
    """Name and number of the stall that was counted most often."""
    name = max(layer.stalls, key=lambda key: layer.stalls[key])
    return f"{name} {layer.stalls[name]}" if layer.stalls[name] else "none"


def layer_table(layers: Sequence[LayerResult]) -> Table:
    """Lay out one row per layer."""
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
