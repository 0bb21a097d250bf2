"""Import of ONNX networks."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path

import onnx

from espalier.errors import UnsupportedModelError
from espalier.frontend import layers, pooling, reshaping
from espalier.frontend.constants import evaluate, is_constant, is_open_size
from espalier.frontend.context import Context, RefusedError, refuse
from espalier.frontend.model_file import inferred_shapes, read_model
from espalier.frontend.source import SourceNode, read_source
from espalier.ir.float_graph import FloatGraph
from espalier.ir.imported_graph import ImportedGraph
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


@dataclass(frozen=True)
class Outcome:
    """What became of one ONNX node.

    kind: "node" (`made` is its name in the network), "constant" (known without the picture), "view" (moves no
    data), "refused" (for `reasons`), or "unjudged" (it reads something whose shape is unknown).
    """

    node: SourceNode
    kind: str
    made: str = ""
    reasons: tuple[str, ...] = ()


@dataclass(frozen=True)
class Imported:
    """A network as far as it could be imported; whole if `complete`.

    problems: of the network as a whole, each with the file's name. graph: before any pass; where nodes were
    refused their results have shapes, if known, but no producer.
    """

    path: Path
    graph: ImportedGraph
    outcomes: list[Outcome]
    problems: list[str]

    @property
    def refused(self) -> list[Outcome]:
        """Nodes that cannot be supported."""
        return [outcome for outcome in self.outcomes if outcome.kind == "refused"]

    @property
    def complete(self) -> bool:
        """Whether the passes can go on with `graph`."""
        return not self.problems and not self.refused


def load_onnx(path: str | Path) -> FloatGraph:
    """Import a trained network from an ONNX file, batch normalisation folded and activations fused.

    Opsets 7 to 25; one input 1 x C x H x W (or an open batch size) and one output. `metadata` of the result
    holds `source` (file name) and `notes` (what was left out, in words).

    Raises:
        ModelFileError: missing, damaged or incomplete file, weights that are not finite.
        UnsupportedModelError: lists every node that cannot be supported, with the reason.

    """
    imported = import_onnx(path)
    if not imported.complete:
        raise UnsupportedModelError(_message(imported))
    return lower(imported.graph)


def import_onnx(path: str | Path) -> Imported:
    """Import what can be imported, and say what became of every node.

    Raises:
        ModelFileError: as `load_onnx`.
        UnsupportedModelError: the network cannot be judged node by node: its opset is unknown, it has no
            input or no output.

    """
    file = Path(path)
    model = read_model(file)
    source = read_source(model, file)
    context = Context(source)
    outcomes = _import_nodes(context, model)
    graph, problems = context.graph, list(source.problems)
    refused = any(outcome.kind == "refused" for outcome in outcomes)
    result = context.values.get(source.output)
    if result is not None:
        graph.output = result.tensor
    if not (refused or problems) and (result is None or not graph.nodes):
        problems.append(f"network {file}: its output does not depend on the picture")
    graph.metadata = {"source": file.name, "notes": context.notes}
    return Imported(file, graph, outcomes, problems)


def _import_nodes(context: Context, model: onnx.ModelProto) -> list[Outcome]:
    """Import all nodes, or find out why not."""
    outcomes = []
    shapes: dict[str, tuple[int, ...]] = {}
    for node in context.source.nodes:
        try:
            outcomes.append(_import_node(context, node))
        except RefusedError as error:
            shapes = shapes or inferred_shapes(model)
            outcomes.append(Outcome(node, "refused", reasons=error.reasons))
            context.stand_in(node, shapes)
    return outcomes


def _import_node(context: Context, node: SourceNode) -> Outcome:
    if is_open_size(context, node):
        context.sizes.update(node.outputs)
        context.unknown.update(node.outputs)
        return Outcome(node, "unjudged")
    if node.domain or (node.op not in HANDLERS and not is_constant(context, node)):
        origin = f" of domain '{node.domain}'" if node.domain else ""
        refuse(f"operator{origin} is not supported")
    # What reads a result of unknown shape cannot be judged any further.
    if context.unknown.intersection(node.inputs):
        context.unknown.update(node.outputs)
        return Outcome(node, "unjudged")
    if is_constant(context, node):
        evaluate(context, node)
        return Outcome(node, "constant")
    before = len(context.graph.nodes)
    HANDLERS[node.op](context, node)
    made = [new.name for new in context.graph.nodes[before:]]
    return Outcome(node, "node", made[0]) if made else Outcome(node, "view")


def _message(imported: Imported) -> str:
    lines = list(imported.problems)
    if refused := imported.refused:
        count = "a node" if len(refused) == 1 else f"{len(refused)} nodes"
        lines.append(f"network {imported.path} holds {count} that the accelerator cannot run:")
        lines += [f"  {o.node.name} ({o.node.op}): {'; '.join(o.reasons)}" for o in refused]
        lines.append(f"Supported operators: {', '.join(sorted(HANDLERS))}.")
    return "\n".join(lines)
