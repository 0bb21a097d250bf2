"""Evaluation of what does not depend on the picture: shapes that exporters compute, converted weights."""

from __future__ import annotations

import numpy as np
import onnx
from onnx import helper
from onnx.reference import ReferenceEvaluator

from espalier.frontend.context import Context, refuse
from espalier.frontend.source import SourceNode

# These make new values on every call.
_RANDOM = (
    "Bernoulli",
    "Multinomial",
    "RandomNormal",
    "RandomUniform",
    "RandomNormalLike",
    "RandomUniformLike",
)


def is_constant(context: Context, node: SourceNode) -> bool:
    """Whether the outputs of a node are known without the picture."""
    if node.op == "Shape" and node.domain == "":
        return node.inputs[0] in context.values or node.inputs[0] in context.constants
    return node.op not in _RANDOM and all(not name or name in context.constants for name in node.inputs)


def is_open_size(context: Context, node: SourceNode) -> bool:
    """Whether a node computes with nothing but sizes that are unknown, so that it cannot be judged."""
    if node.op == "Shape" and node.domain == "":
        return any(name in context.unknown for name in node.inputs[:1])
    known = context.constants.keys() | context.sizes
    return (
        node.op not in _RANDOM
        and not context.sizes.isdisjoint(node.inputs)
        and all(not name or name in known for name in node.inputs)
    )


def _alone(context: Context, node: SourceNode) -> onnx.ModelProto:
    """Make a network of one node: given the node alone, the evaluator ignores its opset."""
    empty = onnx.TypeProto()
    inputs = [helper.make_value_info(name, empty) for name in dict.fromkeys(node.inputs) if name]
    outputs = [helper.make_value_info(name, empty) for name in node.outputs if name]
    graph = helper.make_graph([node.proto], "constants", inputs, outputs)
    return helper.make_model(graph, opset_imports=[helper.make_opsetid("", context.opset)])


def evaluate(context: Context, node: SourceNode) -> None:
    """Evaluate a node for which `is_constant` holds."""
    if node.op == "Shape" and node.inputs[0] in context.values:
        dimensions = context.values[node.inputs[0]].dimensions
        part = dimensions[node.attributes.get("start", 0) : node.attributes.get("end", len(dimensions))]
        context.constants[node.outputs[0]] = np.array(part, np.int64)
        return
    if node.op == "Constant" and "value" in node.attributes:
        context.constants[node.outputs[0]] = node.attributes["value"]
        return
    feeds = {name: context.constants[name] for name in node.inputs if name}
    try:
        results = ReferenceEvaluator(_alone(context, node)).run(None, feeds)
    except Exception as error:  # the evaluator raises whatever its operators do
        refuse(f"its inputs are constants, but it cannot be evaluated ({type(error).__name__}: {error})")
    for name, result in zip(filter(None, node.outputs), results, strict=False):
        array = np.asarray(result)
        if np.issubdtype(array.dtype, np.floating) and not np.isfinite(array).all():
            refuse("its inputs are constants, but its result is not finite")
        context.constants[name] = array
