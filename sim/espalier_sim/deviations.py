"""How far the predictions for a run lie from what the hardware counted."""

from __future__ import annotations

from dataclasses import dataclass

from espalier_sim.result import RunResult, ratio

# Layers of fewer cycles are not looked at one by one: a cycle is much of them.
LONG_LAYER = 500


@dataclass(frozen=True)
class Deviations:
    """Prediction against RTL; all deviations are (predicted - counted) / counted.

    total: of the whole run. long_layers: layers for which more than `LONG_LAYER` cycles were counted; layer,
    largest: the one of them that deviates most, and by how much ("" and 0 if all are exact).
    """

    total: float
    long_layers: int
    layer: str
    largest: float


def deviations(result: RunResult) -> Deviations:
    """Compare a run with its prediction."""
    found = [
        (ratio(layer.predicted_cycles - layer.cycles, layer.cycles), layer.name)
        for layer in result.layers
        if layer.cycles > LONG_LAYER
    ]
    largest, name = max(found, key=lambda own: abs(own[0]), default=(0.0, ""))
    total = ratio(result.predicted_cycles - result.cycles, result.cycles)
    return Deviations(total, len(found), name if largest else "", largest)
