"""An evaluation as text and as plain values for JSON."""

from __future__ import annotations

import math
from dataclasses import asdict
from typing import Any

from espalier.evaluation.evaluate import Evaluation
from espalier.evaluation.fidelity import first_below
from espalier.evaluation.scores import Paired


def values(found: Evaluation, limit: float) -> dict[str, Any]:
    """Fields of `Evaluation` (SQNR null where nothing differs) and the first layer below `limit` dB."""
    content = asdict(found)
    for layer in content["layers"]:
        layer["sqnr"] = layer["sqnr"] if math.isfinite(layer["sqnr"]) else None
    content["limit"] = limit
    content["first_layer_below_limit"] = first_below(found.layers, limit)
    return content


def text_lines(found: Evaluation, limit: float) -> list[str]:
    """Lines for a terminal; `limit` in dB is where a layer counts as disagreeing."""
    lines = [f"{found.pictures} pictures, {found.skipped} skipped"]
    for name in sorted(found.top1):
        lines.append(f"{name:8s} top-1 {found.top1[name]:7.2%}   top-5 {found.top5[name]:7.2%}")
    if found.difference1 is not None and found.difference5 is not None:
        lines.append(f"integer - float, top-1: {_points(found.difference1)}")
        lines.append(f"integer - float, top-5: {_points(found.difference5)}")
    if found.agreement is not None:
        lines.append(f"same class: {found.agreement:.2%} of the pictures")
    if found.layers:
        lines.append(f"against float, {found.layer_pictures} pictures:")
        lines.append(f"{'layer':24s} {'SQNR dB':>8s} {'cosine':>8s}")
        lines += [f"{layer.name:24s} {layer.sqnr:8.2f} {layer.cosine:8.5f}" for layer in found.layers]
        first = first_below(found.layers, limit)
        lines.append(
            f"no layer is below {limit:g} dB" if first is None else f"first layer below {limit:g} dB: {first}"
        )
    return lines


def _points(difference: Paired) -> str:
    low, high = 100 * difference.low, 100 * difference.high
    return f"{100 * difference.difference:+.2f} points (95 % interval {low:+.2f} to {high:+.2f})"
