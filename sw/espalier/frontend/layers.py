"""Import of layers with weights: convolution, fully connected layers, batch normalisation, arithmetic."""

from __future__ import annotations

from typing import Any

import numpy as np
import numpy.typing as npt

from espalier.frontend.context import Context, Value, check_all, refuse
from espalier.frontend.source import SourceNode
from espalier.frontend.windows import check_kernel, read_window
from espalier.ir.float_graph import FloatConv
from espalier.ir.imported_graph import Add, Affine, Relu

Double = npt.NDArray[np.float64]


def convolution(context: Context, node: SourceNode) -> None:
    """Conv."""
    value = context.feature_map(node)
    weights = context.weights(node, 1)
    channels, height, width = value.shape
    group = int(node.attributes.get("group", 1))
    if weights.ndim != 4:
        refuse(f"it works on {weights.ndim - 2} spatial dimensions; supported are 2")
    check_all(
        lambda: _check_groups(group, weights.shape, channels),
        lambda: read_window(node, weights.shape[2:], (height, width)),
    )
    window = read_window(node, weights.shape[2:], (height, width))
    bias = context.constant(node, 2)
    new = FloatConv(
        context.name(node),
        value.tensor,
        node.outputs[0],
        weights.astype(np.float32),
        _bias(bias, len(weights)),
        window.stride,
        window.pads,
        window.dilation,
    )
    context.emit(new, (len(weights), window.rows, window.columns))


def _check_groups(group: int, weights: tuple[int, ...], channels: int) -> None:
    if weights[1] * group != channels:
        refuse(f"weights {list(weights)} in {group} groups do not fit an input of {channels} channels")
    if group != 1:
        refuse(f"{group} groups; supported is 1 (no grouped or depthwise convolution)")


def gemm(context: Context, node: SourceNode) -> None:
    """Gemm: a convolution whose kernel is the whole map."""
    if node.attributes.get("transA", 0):
        refuse("transA = 1; supported is 0")
    weights = context.weights(node, 1)
    if weights.ndim != 2:
        refuse(f"weights of {weights.ndim} dimensions; supported are 2")
    if not node.attributes.get("transB", 0):
        weights = weights.T
    bias = context.constant(node, 2)
    scaled = None if bias is None else bias.astype(np.float64) * node.attributes.get("beta", 1.0)
    _dense(context, node, weights * node.attributes.get("alpha", 1.0), scaled)


def matmul(context: Context, node: SourceNode) -> None:
    """MatMul with constant weights; its bias, an Add, is folded by a pass."""
    weights = context.weights(node, 1)
    if weights.ndim != 2:
        refuse(f"weights of {weights.ndim} dimensions; supported are 2")
    _dense(context, node, weights.T, None)


def _dense(context: Context, node: SourceNode, weights: Double, bias: npt.NDArray[Any] | None) -> None:
    value = context.value(node)
    if not value.vector:
        refuse("its input is a map, not a vector; put a Flatten before it")
    features = value.dimensions[1]
    if weights.shape[1] != features:
        refuse(f"weights for {weights.shape[1]} features do not fit an input of {features}")
    check_kernel(value.shape[1:], value.shape[1:])
    count = len(weights)
    kernel = weights.reshape(count, *value.shape).astype(np.float32)
    new = FloatConv(context.name(node), value.tensor, node.outputs[0], kernel, _bias(bias, count))
    context.emit(new, (count, 1, 1), vector=True)


def _bias(bias: npt.NDArray[Any] | None, count: int) -> npt.NDArray[np.float32]:
    if bias is None:
        return np.zeros(count, np.float32)
    if bias.size not in (1, count):
        refuse(f"bias {list(bias.shape)} does not fit {count} output channels")
    return np.broadcast_to(bias.reshape(-1), (count,)).astype(np.float32)


def batch_normalisation(context: Context, node: SourceNode) -> None:
    """BatchNormalization with fixed statistics."""
    if node.attributes.get("training_mode", 0):
        refuse("it is in training mode; export the network for inference")
    if not node.attributes.get("spatial", 1):
        refuse("spatial = 0; supported is one scale per channel")
    value = context.value(node)
    channels = _channels(value)
    scale, shift, mean, variance = (context.weights(node, index) for index in range(1, 5))
    if any(array.shape != (channels,) for array in (scale, shift, mean, variance)):
        refuse(f"its parameters do not fit {channels} channels")
    if (variance < 0).any():
        refuse("it has negative variances")
    factor = scale / np.sqrt(variance + node.attributes.get("epsilon", 1e-5))
    _affine(context, node, value, factor, shift - mean * factor)


def _channels(value: Value) -> int:
    if value.vector and value.shape[1:] != (1, 1):
        refuse(f"its input is a flattened map {list(value.shape)}, which has no channels of its own")
    return value.shape[0]


def _affine(context: Context, node: SourceNode, value: Value, scale: Double, shift: Double) -> None:
    if not (np.isfinite(scale).all() and np.isfinite(shift).all()):
        refuse("its scale or shift is not finite")
    new = Affine(
        context.name(node),
        value.tensor,
        node.outputs[0],
        scale.astype(np.float32),
        shift.astype(np.float32),
    )
    context.emit(new, value.shape, value.vector)


def arithmetic(context: Context, node: SourceNode) -> None:
    """Add of two maps; Add, Sub, Mul and Div of a map and a constant per channel."""
    names = [name for name in node.inputs if name not in context.constants]
    if len(names) == 2 and node.op == "Add":
        _add(context, node)
        return
    if len(names) != 1:
        refuse("it combines two maps; supported for Add only, otherwise with a constant per channel")
    first = node.inputs[1] in context.constants
    value = context.value(node, 0 if first else 1)
    constant = _per_channel(context.weights(node, 1 if first else 0), value)
    one, zero = np.ones_like(constant), np.zeros_like(constant)
    if node.op == "Add":
        _affine(context, node, value, one, constant)
    elif node.op == "Sub":
        _affine(context, node, value, one if first else -one, -constant if first else constant)
    elif node.op == "Mul":
        _affine(context, node, value, constant, zero)
    elif first:
        with np.errstate(divide="ignore"):
            _affine(context, node, value, one / constant, zero)
    else:
        refuse("it divides a constant by a map")


def _add(context: Context, node: SourceNode) -> None:
    left, right = context.value(node, 0), context.value(node, 1)
    if left.dimensions != right.dimensions or left.shape != right.shape:
        refuse(f"it adds {list(left.dimensions)} and {list(right.dimensions)}; supported are equal shapes")
    new = Add(context.name(node), left.tensor, right.tensor, node.outputs[0])
    context.emit(new, left.shape, left.vector)


def _per_channel(constant: Double, value: Value) -> Double:
    """Return a constant as one number per channel of `value`; refuses what varies inside a channel."""
    channels = value.shape[0]
    if constant.size == 1:
        return np.full(channels, constant.reshape(-1)[0])
    axis = 1 - len(value.dimensions)  # of the channels, counted from the end
    expected = [1] * constant.ndim
    if constant.ndim >= -axis:
        expected[axis] = _channels(value)
    if list(constant.shape) != expected or constant.ndim > len(value.dimensions):
        refuse(
            f"its constant {list(constant.shape)} is not one number per channel of {list(value.dimensions)}"
        )
    return constant.reshape(-1)


def relu(context: Context, node: SourceNode) -> None:
    """Relu, and Clip with the same meaning."""
    value = context.value(node)
    context.emit(Relu(context.name(node), value.tensor, node.outputs[0]), value.shape, value.vector)


def clip(context: Context, node: SourceNode) -> None:
    """Clip from 0 without an upper limit."""
    limits = []
    for index, name in ((1, "min"), (2, "max")):
        constant = context.constant(node, index) if len(node.inputs) > 1 else node.attributes.get(name)
        default = -np.inf if name == "min" else np.inf
        limits.append(default if constant is None else float(np.asarray(constant).reshape(-1)[0]))
    largest = float(np.finfo(np.float32).max)
    if limits[0] != 0 or limits[1] < largest:
        refuse(f"limits {limits[0]:g} to {limits[1]:g}; supported is 0 without an upper limit (ReLU)")
    relu(context, node)
