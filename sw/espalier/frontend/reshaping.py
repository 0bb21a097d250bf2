"""Import of what moves no data: views of the same values, and what inference leaves out."""

from __future__ import annotations

import dataclasses
from collections.abc import Sequence

import numpy as np
import onnx

from espalier.frontend.context import Context, Value, refuse
from espalier.frontend.source import SourceNode
from espalier.ir.imported_graph import Pad

_FLOATS = (
    onnx.TensorProto.FLOAT,
    onnx.TensorProto.FLOAT16,
    onnx.TensorProto.BFLOAT16,
    onnx.TensorProto.DOUBLE,
)


def _view(context: Context, node: SourceNode, value: Value, vector: bool) -> None:
    context.values[node.outputs[0]] = dataclasses.replace(value, vector=vector)


def _any_value(context: Context, node: SourceNode) -> Value:
    """Return the input, even behind a Softmax: a view of scores changes nothing."""
    name = node.inputs[0]
    if name not in context.values:
        refuse(f"input 0 ({name}) must be computed from the picture")
    return context.values[name]


def identity(context: Context, node: SourceNode) -> None:
    """Identity."""
    value = _any_value(context, node)
    _view(context, node, value, value.vector)


def dropout(context: Context, node: SourceNode) -> None:
    """Dropout, which does nothing in inference."""
    training = context.constant(node, 2)
    if training is not None and bool(training.reshape(-1)[0]):
        refuse("it is in training mode; export the network for inference")
    if any(name and name in _readers(context) for name in node.outputs[1:]):
        refuse("its mask is used")
    identity(context, node)


def _readers(context: Context) -> set[str]:
    return {name for node in context.source.nodes for name in node.inputs} | {context.source.output}


def cast(context: Context, node: SourceNode) -> None:
    """Cast between floating-point types."""
    if node.attributes.get("to") not in _FLOATS:
        refuse("it converts to a type that is not floating point")
    identity(context, node)


def flatten(context: Context, node: SourceNode) -> None:
    """Flatten of everything but the batch."""
    value = _any_value(context, node)
    axis = int(node.attributes.get("axis", 1))
    if axis % len(value.dimensions) != 1:
        refuse(f"axis {axis}; supported is 1")
    _view(context, node, value, vector=True)


def reshape(context: Context, node: SourceNode) -> None:
    """Reshape of a map to a vector, or back to the same map."""
    value = _any_value(context, node)
    target = context.constant(node, 1)
    if target is None:
        refuse("its shape is absent")
    _reshape_to(context, node, value, [int(size) for size in target.reshape(-1)])


def _reshape_to(context: Context, node: SourceNode, value: Value, target: Sequence[int]) -> None:
    old = value.dimensions
    total = int(np.prod(old))
    copy = not node.attributes.get("allowzero", 0)
    sizes = [old[i] if size == 0 and copy and i < len(old) else size for i, size in enumerate(target)]
    rest = int(np.prod([size for size in sizes if size != -1]))
    if sizes.count(-1) == 1 and rest > 0:
        sizes[sizes.index(-1)] = total // rest
    if sizes == [1, total]:
        _view(context, node, value, vector=True)
    elif sizes == [1, *value.shape]:
        _view(context, node, value, vector=False)
    else:
        refuse(f"it changes {list(old)} to {list(target)}; supported is a vector of all values, [1, {total}]")


def _axes(context: Context, node: SourceNode) -> list[int]:
    axes = node.attributes.get("axes")
    if axes is None:
        given = context.constant(node, 1)
        axes = [] if given is None else given.reshape(-1).tolist()
    return sorted(int(axis) % 4 for axis in axes)


def squeeze(context: Context, node: SourceNode) -> None:
    """Squeeze of a 1x1 map to a vector."""
    value = _any_value(context, node)
    if value.vector or value.shape[1:] != (1, 1) or _axes(context, node) != [2, 3]:
        refuse("supported is the removal of axes 2 and 3 of a 1x1 map")
    _view(context, node, value, vector=True)


def unsqueeze(context: Context, node: SourceNode) -> None:
    """Unsqueeze of a vector to a 1x1 map."""
    value = _any_value(context, node)
    if not value.vector or value.shape[1:] != (1, 1) or _axes(context, node) != [2, 3]:
        refuse("supported is the addition of axes 2 and 3 to a vector")
    _view(context, node, value, vector=False)


def transpose(context: Context, node: SourceNode) -> None:
    """Transpose that changes nothing."""
    value = _any_value(context, node)
    count = len(value.dimensions)
    order = list(node.attributes.get("perm") or reversed(range(count)))
    moved = [axis for axis in order if value.dimensions[axis] != 1]
    if moved != sorted(moved) or [value.dimensions[axis] for axis in order] != list(value.dimensions):
        refuse(f"permutation {order}; export the network in the layout N x C x H x W")
    _view(context, node, value, value.vector)


def pad(context: Context, node: SourceNode) -> None:
    """Pad of height and width with zeros."""
    value = context.feature_map(node)
    given = node.attributes.get("pads")
    if given is None:
        constant = context.constant(node, 1)
        given = [] if constant is None else constant.reshape(-1).tolist()
    fill = context.constant(node, 2) if len(node.inputs) > 2 else node.attributes.get("value")
    if node.attributes.get("mode", "constant") != "constant":
        refuse(f"mode {node.attributes['mode']}; supported is constant")
    if fill is not None and np.any(np.asarray(fill) != 0):
        refuse("it fills with a number other than zero; supported is zero")
    if len(node.inputs) > 3 and node.inputs[3]:
        refuse("it names axes; supported is padding of all four, zero for batch and channels")
    sizes = [int(size) for size in given]
    if len(sizes) != 8 or min(sizes) < 0 or any(sizes[axis] for axis in (0, 1, 4, 5)):
        refuse(f"padding {sizes}; supported is padding of height and width by numbers that are not negative")
    if not any(sizes):
        _view(context, node, value, vector=False)
        return
    pads = sizes[2], sizes[3], sizes[6], sizes[7]
    channels, height, width = value.shape
    new = Pad(context.name(node), value.tensor, node.outputs[0], pads)
    context.emit(new, (channels, height + pads[0] + pads[2], width + pads[1] + pads[3]))


def softmax(context: Context, node: SourceNode) -> None:
    """Softmax and LogSoftmax at the end: left out, the largest score stays the largest."""
    value = context.value(node)
    count = len(value.dimensions)
    axis = int(node.attributes.get("axis", 1 if context.opset < 13 else -1)) % count
    whole = value.shape[1:] == (1, 1)
    if not (axis == 1 and (whole or context.opset >= 13 or value.vector)):
        refuse(f"axis {axis}; supported is the axis of the channels")
    context.notes.append(
        f"{node.op} '{node.name}' left out: the accelerator delivers the scores before it, in the same order"
    )
    context.values[node.outputs[0]] = dataclasses.replace(value, final=True)
