"""Verdicts for the nodes of an ONNX file, from what import and passes made of them."""

from __future__ import annotations

from collections.abc import Mapping

from espalier.check.advice import advice
from espalier.check.verdict import NodeVerdict, Problem
from espalier.frontend.onnx_import import Imported, Outcome

_NO_WORK = {"constant": "constant, known without the picture", "view": "moves no data"}
_LEFT_OUT = ("Dropout", "Identity", "LogSoftmax", "Softmax")


def onnx_verdicts(
    imported: Imported,
    layers: Mapping[str, tuple[str, str]],
    problems: Mapping[str, list[Problem]],
    cycles: Mapping[str, int],
) -> tuple[NodeVerdict, ...]:
    """One verdict for every ONNX node, in the order of the file.

    layers: unit and description of every layer by its name in the network; problems, cycles: of layers.
    """
    names = {outcome.made: outcome.node.name for outcome in imported.outcomes if outcome.made}
    return tuple(
        _verdict(outcome, imported, names, layers, problems, cycles) for outcome in imported.outcomes
    )


def _verdict(
    outcome: Outcome,
    imported: Imported,
    names: Mapping[str, str],
    layers: Mapping[str, tuple[str, str]],
    problems: Mapping[str, list[Problem]],
    cycles: Mapping[str, int],
) -> NodeVerdict:
    node, made = outcome.node, outcome.made
    name, operator = node.name, f"{node.domain}.{node.op}" if node.domain else node.op
    if outcome.kind == "refused":
        todo = advice(node.op, node.domain, outcome.reasons)
        found = tuple(Problem(reason, todo) for reason in outcome.reasons)
        return NodeVerdict(name, operator, False, "", "does not run", problems=found)
    if outcome.kind == "unjudged":
        return NodeVerdict(name, operator, None, "", "the size of its input is unknown")
    if outcome.kind != "node":
        how = "left out" if node.op in _LEFT_OUT else _NO_WORK[outcome.kind]
        return NodeVerdict(name, operator, True, "none", how)
    if made in problems:
        return NodeVerdict(name, operator, False, "", "does not run", problems=tuple(problems[made]))
    if made in layers:
        unit, how = layers[made]
        return NodeVerdict(name, operator, True, unit, how, cycles=cycles.get(made))
    into = tuple(names.get(other, other) for other in dict.fromkeys(imported.graph.fused.get(made, ())))
    if into:
        return NodeVerdict(name, operator, True, "fused", f"fused into {', '.join(into)}", into)
    if imported.complete:
        return NodeVerdict(name, operator, True, "none", "left out: the output does not need it")
    # Fusion was not tried, because nodes are missing. Whatever is not fused becomes a layer of its own.
    return NodeVerdict(name, operator, True, "fused", "fused, or a 1x1 convolution of its own")
