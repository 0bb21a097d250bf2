"""Import of ONNX networks."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

import onnx

from espalier.errors import UnsupportedModelError
from espalier.frontend import layers, pooling, reshaping
from espalier.frontend.constants import evaluate, is_constant
from espalier.frontend.context import Context, RefusedError, refuse
from espalier.frontend.model_file import inferred_shapes, read_model
from espalier.frontend.source import SourceNode, read_source
from espalier.ir.float_graph import FloatGraph
from espalier.passes.pipeline import lower

Handler = Callable[[Context, SourceNode], None]

HANDLERS: dict[str, Handler] = {
    "Add": layers.arithmetic,
    "AveragePool": pooling.average_pool,
    "BatchNormalization": layers.batch_normalisation,
    "Cast": reshaping.cast,
    "Clip": layers.clip,
    "Conv": layers.convolution,
    "Div": layers.arithmetic,
    "Dropout": reshaping.dropout,
    "Flatten": reshaping.flatten,
    "Gemm": layers.gemm,
    "GlobalAveragePool": pooling.global_average_pool,
    "GlobalMaxPool": pooling.global_max_pool,
    "Identity": reshaping.identity,
    "LogSoftmax": reshaping.softmax,
    "MatMul": layers.matmul,
    "MaxPool": pooling.max_pool,
    "Mul": layers.arithmetic,
    "Pad": reshaping.pad,
    "ReduceMean": pooling.reduce_mean,
    "Relu": layers.relu,
    "Reshape": reshaping.reshape,
    "Softmax": reshaping.softmax,
    "Squeeze": reshaping.squeeze,
    "Sub": layers.arithmetic,
    "Transpose": reshaping.transpose,
    "Unsqueeze": reshaping.unsqueeze,
}


def load_onnx(path: str | Path) -> FloatGraph:
    """Import a trained network from an ONNX file, batch normalisation folded and activations fused.

    Opsets 7 to 25; one input 1 x C x H x W (or an open batch size) and one output. `metadata` of the result
    holds `source` (file name) and `notes` (what was left out, in words).

    Raises:
        ModelFileError: missing, damaged or incomplete file, weights that are not finite.
        UnsupportedModelError: lists every node that cannot be supported, with the reason.

    """
    file = Path(path)
    model = read_model(file)
    source = read_source(model, file)
    context = Context(source)
    refused = _import_nodes(context, model)
    if refused:
        raise UnsupportedModelError(_message(file, refused))
    result = context.values.get(source.output)
    if result is None or not context.graph.nodes:
        raise UnsupportedModelError(f"network {file}: its output does not depend on the picture")
    context.graph.output = result.tensor
    context.graph.metadata = {"source": file.name, "notes": context.notes}
    return lower(context.graph)


def _import_nodes(context: Context, model: onnx.ModelProto) -> list[tuple[SourceNode, str]]:
    """Import all nodes; the result lists those that were refused, with the reason."""
    refused = []
    shapes: dict[str, tuple[int, ...]] = {}
    for node in context.source.nodes:
        try:
            if node.domain or (node.op not in HANDLERS and not is_constant(context, node)):
                origin = f" of domain '{node.domain}'" if node.domain else ""
                refuse(f"operator{origin} is not supported")
            # What reads a result of unknown shape cannot be judged any further.
            if context.unknown.intersection(node.inputs):
                context.unknown.update(node.outputs)
            elif is_constant(context, node):
                evaluate(context, node)
            else:
                HANDLERS[node.op](context, node)
        except RefusedError as error:
            shapes = shapes or inferred_shapes(model)
            refused.append((node, str(error)))
            context.stand_in(node, shapes)
    return refused


def _message(path: Path, refused: list[tuple[SourceNode, str]]) -> str:
    count = "a node" if len(refused) == 1 else f"{len(refused)} nodes"
    lines = [f"network {path} holds {count} that the accelerator cannot run:"]
    lines += [f"  {node.name} ({node.op}): {reason}" for node, reason in refused]
    lines.append(f"Supported operators: {', '.join(sorted(HANDLERS))}.")
    return "\n".join(lines)
