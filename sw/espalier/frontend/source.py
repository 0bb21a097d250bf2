"""The ONNX graph as plain Python values, in execution order, without what the output does not need."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy.typing as npt
import onnx

from espalier.errors import ModelFileError, UnsupportedModelError
from espalier.frontend.model_file import DEFAULT_DOMAINS, opset, to_array
from espalier.ir.float_graph import Shape

Array = npt.NDArray[Any]


@dataclass(frozen=True)
class SourceNode:
    """One ONNX node; `attributes` holds plain values (tensors as arrays), absent inputs are ''."""

    proto: onnx.NodeProto
    name: str
    op: str
    domain: str
    inputs: tuple[str, ...]
    outputs: tuple[str, ...]
    attributes: dict[str, Any]


@dataclass(frozen=True)
class Source:
    """A network as the file holds it.

    `problems` of the network as a whole: several inputs or outputs, sizes that are not fixed. With them nodes
    can still be judged by what does not depend on these.
    """

    name: str
    opset: int
    input: str
    shape: Shape | None  # None: it cannot be supported, see `problems`
    output: str
    nodes: list[SourceNode]
    constants: dict[str, Array]
    other_inputs: tuple[str, ...] = ()
    problems: tuple[str, ...] = ()


def read_source(model: onnx.ModelProto, path: Path) -> Source:
    """Take the network out of a parsed file.

    Raises:
        UnsupportedModelError: no input or no output, sparse weights.
        ModelFileError: nodes that read what nothing computes, damaged weights.

    """
    graph = model.graph
    if graph.sparse_initializer:
        raise UnsupportedModelError(f"network {path}: sparse initialisers are not supported; make them dense")
    names = {tensor.name for tensor in graph.initializer}
    inputs = [value for value in graph.input if value.name not in names]
    problems = []
    for kind, values in (("inputs", inputs), ("outputs", graph.output)):
        if len(values) != 1:
            listed = ", ".join(value.name for value in values) or "none"
            problems.append(
                f"network {path} has {len(values)} {kind} ({listed}), exactly one is supported;"
                " cut the rest off (onnx.utils.extract_model)"
            )
    if not inputs or not graph.output:
        raise UnsupportedModelError("; ".join(problems))
    others = tuple(value.name for value in inputs[1:])
    nodes = _needed(model, {inputs[0].name, *others, *names}, [value.name for value in graph.output], path)
    used = {name for node in nodes for name in node.inputs}
    constants = {t.name: to_array(t, t.name) for t in graph.initializer if t.name in used}
    shape, found = _picture_shape(inputs[0], path)
    problems += found
    return Source(
        graph.name or path.stem,
        opset(model),
        inputs[0].name,
        shape,
        graph.output[0].name,
        nodes,
        constants,
        others,
        tuple(problems),
    )


def _picture_shape(value: onnx.ValueInfoProto, path: Path) -> tuple[Shape | None, list[str]]:
    """(channels, height, width) of the input, N x C x H x W with N = 1 or open, and what is wrong with it."""
    where = f"network {path}: input {value.name}"
    if not value.type.HasField("tensor_type") or not value.type.tensor_type.HasField("shape"):
        return None, [f"{where} has no shape; export the network with a fixed picture size"]
    dimensions = value.type.tensor_type.shape.dim
    shown = " x ".join(str(d.dim_value) if d.dim_value > 0 else d.dim_param or "?" for d in dimensions)
    if len(dimensions) != 4:
        return None, [f"{where} has shape {shown}; supported is 1 x channels x height x width"]
    problems = []
    if dimensions[0].dim_value > 1:
        problems.append(
            f"{where} has shape {shown}; export the network with batch size 1 or an open batch size"
        )
    channels, height, width = (int(d.dim_value) for d in dimensions[1:])
    if min(channels, height, width) > 0:
        return (channels, height, width), problems
    problems.append(
        f"{where} has shape {shown}: channels, height and width must be fixed numbers;"
        " export the network with the picture size it will run with"
    )
    return None, problems


def _needed(model: onnx.ModelProto, known: set[str], outputs: list[str], path: Path) -> list[SourceNode]:
    """Nodes the outputs depend on, in the order of the file (which ONNX requires to be executable)."""
    graph, version = model.graph, opset(model)
    wanted, kept = set(outputs), []
    for index in reversed(range(len(graph.node))):
        proto = graph.node[index]
        if wanted.intersection(proto.output):
            wanted.update(name for name in proto.input if name)
            kept.append(_node(proto, index, version, path))
    computed = set(known)
    for node in reversed(kept):
        for name in node.inputs:
            if name and name not in computed:
                raise ModelFileError(
                    f"network {path} is damaged: node {node.name} reads {name}, which nothing computes"
                )
        computed.update(node.outputs)
    missing = [output for output in outputs if output not in computed]
    if missing:
        raise ModelFileError(f"network {path} is damaged: nothing computes its output {missing[0]}")
    return kept[::-1]


def _node(proto: onnx.NodeProto, index: int, version: int, path: Path) -> SourceNode:
    outputs = tuple(proto.output)
    name = proto.name or next((text for text in outputs if text), f"{proto.op_type}_{index}")
    attributes: dict[str, Any] = {}
    for item in proto.attribute:
        if item.type == onnx.AttributeProto.TENSOR:
            attributes[item.name] = to_array(item.t, outputs[0] if outputs else name)
        elif item.type == onnx.AttributeProto.STRING:
            attributes[item.name] = item.s.decode("utf-8", "replace")
        elif item.type in _PLAIN:
            attributes[item.name] = onnx.helper.get_attribute_value(item)
        else:
            attributes[item.name] = item
    _check_against_standard(proto, name, version, path)
    domain = "" if proto.domain in DEFAULT_DOMAINS else proto.domain
    return SourceNode(proto, name, proto.op_type, domain, tuple(proto.input), outputs, attributes)


def _check_against_standard(proto: onnx.NodeProto, name: str, version: int, path: Path) -> None:
    """Refuse nodes without the inputs, or with other types of attributes, than ONNX says."""
    if proto.domain not in DEFAULT_DOMAINS or not onnx.defs.has(proto.op_type):
        return  # not known here either; refused later, together with all others
    try:
        schema = onnx.defs.get_schema(proto.op_type, version)
    except onnx.defs.SchemaError:
        return  # not in this version
    if not schema.min_input <= len(proto.input) <= schema.max_input or not proto.output:
        raise ModelFileError(
            f"network {path} is damaged: node {name} of type {proto.op_type} has {len(proto.input)} inputs,"
            f" {len(proto.output)} outputs"
        )
    for item in proto.attribute:
        known = schema.attributes.get(item.name)
        if known is not None and known.type.value != item.type:
            raise ModelFileError(
                f"network {path} is damaged: attribute {item.name} of node {name} has type"
                f" {onnx.AttributeProto.AttributeType.Name(item.type)} instead of {known.type.name}"
            )


_PLAIN = (
    onnx.AttributeProto.FLOAT,
    onnx.AttributeProto.INT,
    onnx.AttributeProto.FLOATS,
    onnx.AttributeProto.INTS,
)
