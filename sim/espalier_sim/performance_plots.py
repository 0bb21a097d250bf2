"""The plots of docs/performance.md, from what `sim bench` measured."""

from __future__ import annotations

from pathlib import Path
from typing import Any

from espalier_sim import plots

# Latency of ResNet-18 at 224x224, batch 1, as others published it; ms.
PUBLISHED = (
    ("DPU on ZCU104", 5.11),
    ("NPU of a flagship phone", 0.233),
    ("published sparse FPGA system", 0.174),
)


def draw(found: dict[str, Any], folder: Path) -> None:
    """Write all plots into `folder`."""
    row = found["run"][0]
    run = row["result"]
    title = f"{run['model']} on {run['target']}"
    plots.waterfall(row["losses"], f"{title}: where the cycles go (counted in RTL)", folder / "waterfall.svg")
    plots.layers(
        run["layers"], run["lanes"], f"{title}: cycles of every layer (counted in RTL)", folder / "layers.svg"
    )
    if "density" in found:
        plots.densities(
            _curves(found["density"]), "ResNet-18, random weights and masks", folder / "density.svg"
        )
    plots.latencies(_latencies(found), "ResNet-18, 224x224, batch 1", folder / "latency.svg")


def _curves(rows: list[dict[str, Any]]) -> dict[str, list[tuple[float, float, float]]]:
    """Points (density, cycles, utilisation) by width of the network."""
    curves: dict[str, list[tuple[float, float, float]]] = {}
    for row in rows:
        if "result" in row:
            point = row["density"], row["result"]["cycles"], row["result"]["utilisation"]
            curves.setdefault(row["width"], []).append(point)
    return curves


def _latencies(found: dict[str, Any]) -> list[tuple[str, float, bool]]:
    clock = found["run"][0]["result"]["clock_mhz"]
    ours = [
        ("built-in network", found["run"][0]),
        *((row["name"] + ", random masks", row) for row in found.get("variant", [])),
    ]
    return [(f"{name}\npublished", value, False) for name, value in PUBLISHED] + [
        (f"{name}\nsimulated cycles at an assumed {clock} MHz", row["result"]["latency_ms"], True)
        for name, row in ours
        if "result" in row
    ]
