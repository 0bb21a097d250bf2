"""Densities: how many weights each layer may keep under a budget of multiply-accumulates and operators."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import numpy as np
import numpy.typing as npt

from espalier.arch.operators import DIGIT_BITS
from espalier.compress.execute import patch_matrix
from espalier.compress.parameters import dense_macs
from espalier.errors import CapacityError
from espalier.ir.float_graph import FloatConv, FloatGraph
from espalier.numerics.floating import float_run

LEAST_DENSITY = 0.02


def weight_scores(graph: FloatGraph, pictures: npt.NDArray[Any]) -> dict[str, npt.NDArray[np.float64]]:
    """Share of a layer's output energy that each weight brings in: (w |x|)^2, summing to one per layer.

    Args:
        graph: the network.
        pictures: [N, C, height, width]; a few are enough.

    """
    convs = [node for node in graph.nodes if isinstance(node, FloatConv)]
    norms = {node.name: np.zeros(node.weights[0].size) for node in convs}
    for picture in pictures:
        maps = float_run(graph, picture[None].astype(np.float32), {node.input for node in convs})
        for node in convs:
            columns = patch_matrix(node, maps[node.input].transpose(1, 0, 2, 3))
            norms[node.name] += (columns.astype(np.float64) ** 2).mean(axis=1)
    scores = {}
    for node in convs:
        flat = node.weights.reshape(len(node.weights), -1).astype(np.float64)
        value = flat**2 * norms[node.name][None, :]
        scores[node.name] = value / max(float(value.sum()), 1e-30)
    return scores


def fit_densities(
    graph: FloatGraph,
    scores: Mapping[str, npt.NDArray[np.float64]],
    bits: Mapping[str, int],
    mac_fraction: float,
    max_operators: int,
    bounds: Mapping[str, tuple[float, float]],
    lower: float = LEAST_DENSITY,
) -> dict[str, float]:
    """Densities that keep the weights of the highest score per cost within both budgets.

    A weight costs (multiply-accumulates / budget) + pressure * (operators / budget); the pressure on
    operators is raised until both budgets hold.

    Args:
        graph: the network.
        scores: `weight_scores`.
        bits: weight bits of every layer.
        mac_fraction: budget of multiply-accumulates, as a share of all.
        max_operators: budget of operators.
        bounds: smallest and largest density of single layers.
        lower: smallest density of the others.

    Raises:
        CapacityError: the budgets are too small for `lower` in every layer.

    """
    convs = [node for node in graph.nodes if isinstance(node, FloatConv)]
    macs = np.array([dense_macs(graph, node) for node in convs], dtype=float)
    weights = np.array([node.weights.size for node in convs], dtype=float)
    digits = np.array([1 if bits[node.name] <= DIGIT_BITS else 2 for node in convs])
    least, most = np.array([bounds.get(node.name, (lower, 1.0)) for node in convs]).T
    ordered = [np.sort(-scores[node.name], axis=None) for node in convs]
    budget = mac_fraction * macs.sum()

    def densities(threshold: float, pressure: float) -> npt.NDArray[np.float64]:
        cost = macs / weights / budget + pressure * digits / max_operators
        kept = [
            np.searchsorted(values, -threshold * c, side="right") / values.size
            for values, c in zip(ordered, cost, strict=True)
        ]
        clipped: npt.NDArray[np.float64] = np.clip(np.array(kept), least, most)
        return clipped

    def used(d: npt.NDArray[np.float64]) -> tuple[float, float]:
        return float((d * macs).sum() / budget), float((d * weights * digits).sum() / max_operators)

    if max(used(least)) > 1:
        raise CapacityError(
            f"budget of {mac_fraction:.1%} of the multiply-accumulates and {max_operators} operators is too"
            f" small for this network: it leaves less than {lower:.0%} of the weights; raise the budget"
        )

    def tightest(pressure: float) -> npt.NDArray[np.float64]:
        low, high = -30.0, 30.0  # logarithm of the threshold
        for _ in range(80):
            middle = (low + high) / 2
            if max(used(densities(np.exp(middle), pressure))) > 1:
                low = middle
            else:
                high = middle
        return densities(np.exp(high), pressure)

    # Without pressure the budget of multiply-accumulates binds; find the pressure where both do.
    best = tightest(0.0)
    low, high = -12.0, 12.0
    for _ in range(50):
        middle = (low + high) / 2
        candidate = tightest(np.exp(middle))
        mac_use, operator_use = used(candidate)
        if mac_use > operator_use:
            high = middle
        else:
            low = middle
        if min(mac_use, operator_use) > min(used(best)):
            best = candidate
    return {node.name: float(d) for node, d in zip(convs, best, strict=True)}
