"""What the handlers of single operators share: values, constants, the network under construction."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any, NoReturn

import numpy as np
import numpy.typing as npt

from espalier.frontend.source import Source, SourceNode
from espalier.ir.float_graph import Shape
from espalier.ir.imported_graph import ImportedGraph, ImportedNode

Array = npt.NDArray[Any]

# ONNX does not infer the shapes of these; they have one result, as large as the first input.
_SAME_SHAPE = ("GroupNormalization", "MeanVarianceNormalization", "RMSNormalization", "Swish")


class RefusedError(Exception):
    """A node cannot be supported; `reasons` say why. Collected, never shown by itself."""

    def __init__(self, *reasons: str) -> None:
        super().__init__("; ".join(reasons))
        self.reasons = reasons


def refuse(reason: str) -> NoReturn:
    """Refuse the node at hand."""
    raise RefusedError(reason)


def check_all(*checks: Callable[[], object]) -> None:
    """Run checks that do not depend on each other; refuses with the reasons of all that do."""
    reasons: list[str] = []
    for check in checks:
        try:
            check()
        except RefusedError as error:
            reasons += error.reasons
    if reasons:
        raise RefusedError(*reasons)


@dataclass(frozen=True)
class Value:
    """A feature map during import.

    `tensor` is its name in the new network and `shape` its (channels, height, width). A `vector` is the
    same values seen as N x (channels*height*width). After a `final` operator (softmax) nothing may follow.
    """

    tensor: str
    shape: Shape
    vector: bool = False
    final: bool = False

    @property
    def dimensions(self) -> tuple[int, ...]:
        """The ONNX shape, for one picture."""
        return (1, int(np.prod(self.shape))) if self.vector else (1, *self.shape)


class Context:
    """State of an import."""

    def __init__(self, source: Source) -> None:
        self.source = source
        self.opset = source.opset
        self.graph = ImportedGraph(source.name, source.input, source.output, [], {})
        self.notes: list[str] = []
        self.constants: dict[str, Array] = dict(source.constants)
        self.values: dict[str, Value] = {}
        # Inputs and results of refused nodes whose shape is unknown: what reads them cannot be judged.
        self.unknown: set[str] = set(source.other_inputs)
        # Of these, what would be constants if the shapes were known: computed from nothing but them.
        self.sizes: set[str] = set()
        if source.shape is None:
            self.unknown.add(source.input)
        else:
            self.values[source.input] = Value(source.input, source.shape)
            self.graph.shapes[source.input] = source.shape
        self._names: set[str] = set()

    def value(self, node: SourceNode, index: int = 0) -> Value:
        """Feature map at an input of a node; refuses constants and what follows a final operator."""
        name = node.inputs[index] if index < len(node.inputs) else ""
        if name not in self.values:
            refuse(f"input {index} ({name or 'absent'}) must be computed from the picture, but is a constant")
        value = self.values[name]
        if value.final:
            refuse("it follows a Softmax, which is supported at the end of the network only")
        return value

    def feature_map(self, node: SourceNode) -> Value:
        """Feature map N x C x H x W at the first input; refuses vectors."""
        value = self.value(node)
        if value.vector:
            refuse("its input is a vector, not a map N x C x H x W")
        return value

    def constant(self, node: SourceNode, index: int) -> Array | None:
        """Constant at an input of a node, None if the input is absent; refuses computed inputs."""
        name = node.inputs[index] if index < len(node.inputs) else ""
        if not name:
            return None
        if name not in self.constants:
            refuse(f"input {index} ({name}) must be a constant, but is computed from the picture")
        return self.constants[name]

    def weights(self, node: SourceNode, index: int) -> Array:
        """Constant at an input as float64; refuses its absence."""
        array = self.constant(node, index)
        if array is None:
            refuse(f"input {index} is absent")
        return array.astype(np.float64)

    def name(self, node: SourceNode) -> str:
        """Name for the node that replaces `node`, unique in the network."""
        base = node.name.lstrip("/") or node.op
        name, count = base, 1
        while name in self._names:
            count += 1
            name = f"{base}_{count}"
        self._names.add(name)
        return name

    def stand_in(self, node: SourceNode, shapes: Mapping[str, tuple[int, ...]]) -> None:
        """Let what follows a refused node be judged too, where the shape of its result is known."""
        source = self.values.get(node.inputs[0]) if node.inputs else None
        for name in node.outputs:
            dimensions = shapes.get(name, ())[1:]
            if not dimensions and source is not None and node.op in _SAME_SHAPE:
                dimensions = source.dimensions[1:]
            if len(dimensions) not in (1, 3) or not all(dimensions):
                self.unknown.add(name)
                continue
            vector = len(dimensions) == 1
            shape = (dimensions[0], 1, 1) if vector else (dimensions[0], dimensions[1], dimensions[2])
            self.values[name] = Value(name, shape, vector)
            self.graph.shapes[name] = shape

    def emit(self, new: ImportedNode, shape: Shape, vector: bool = False) -> None:
        """Add a node to the network; its output becomes known."""
        self.graph.nodes.append(new)
        self.graph.shapes[new.output] = shape
        self.values[new.output] = Value(new.output, shape, vector)
