"""Float execution of a float graph, for calibration and for the accuracy that compression is measured by."""

from __future__ import annotations

from collections.abc import Collection

import numpy as np
import numpy.typing as npt

from espalier.errors import InternalError
from espalier.ir.float_graph import FloatConv, FloatGraph, FloatPool
from espalier.ir.geometry import node_output_shape
from espalier.numerics.windows import pad, taps, unfold

Floats = npt.NDArray[np.float32]


def _conv(node: FloatConv, maps: Floats, residual: Floats | None) -> Floats:
    filters, _, kernel_y, kernel_x = node.weights.shape
    _, rows, columns = node_output_shape(node, (maps.shape[0], maps.shape[2], maps.shape[3]))
    padded = pad(maps, node.pads, 0.0, np.float32)
    matrix = node.weights.reshape(filters, -1)
    output = np.empty((filters, maps.shape[1], rows, columns), np.float32)
    for part, unfolded in unfold(padded, (kernel_y, kernel_x), node.stride, node.dilation):
        output[:, :, part] = (matrix @ unfolded).reshape(filters, maps.shape[1], -1, columns)
    output += node.bias[:, None, None, None]
    if residual is not None:
        output += residual
    return output


def _pool(node: FloatPool, maps: Floats) -> Floats:
    if node.kind == "global":
        return np.asarray(maps.mean(axis=(2, 3), keepdims=True), np.float32)
    fill = -np.inf if node.kind == "max" else 0.0
    views = taps(pad(maps, node.pads, fill, np.float32), node.kernel, node.stride)
    result = next(views).copy()
    for view in views:
        if node.kind == "max":
            np.maximum(result, view, out=result)
        else:
            result += view
    if node.kind == "average":
        result /= np.float32(node.kernel[0] * node.kernel[1])
    return result


def float_run(graph: FloatGraph, pictures: Floats, taps: Collection[str] | None = None) -> dict[str, Floats]:
    """Run pictures float32[N, C, H, W] (normalised) through the graph.

    Returns tensors float32[N, channels, height, width] by name: those named in `taps`, or the output alone
    if `taps` is None. Values that no later node needs are dropped on the way.
    """
    wanted = {graph.output} if taps is None else set(taps)
    unknown = wanted - set(graph.shapes)
    if unknown or pictures.ndim != 4 or pictures.shape[1:] != graph.shapes[graph.input]:
        raise InternalError(
            f"graph {graph.name}: pictures {list(pictures.shape)}, unknown tensors {sorted(unknown)}"
        )
    last_use = {name: index for index, node in enumerate(graph.nodes) for name in _reads(node)}
    source = np.ascontiguousarray(pictures.transpose(1, 0, 2, 3), dtype=np.float32)
    values: dict[str, Floats] = {graph.input: source}
    for index, node in enumerate(graph.nodes):
        if isinstance(node, FloatConv):
            residual = None if node.residual is None else values[node.residual]
            result = _conv(node, values[node.input], residual)
        else:
            result = _pool(node, values[node.input])
        if node.relu:
            np.maximum(result, 0.0, out=result)
        values[node.output] = result
        for name in [n for n in values if last_use.get(n, len(graph.nodes)) <= index and n not in wanted]:
            del values[name]
    return {name: values[name].transpose(1, 0, 2, 3) for name in wanted}


def _reads(node: FloatConv | FloatPool) -> tuple[str, ...]:
    residual = node.residual if isinstance(node, FloatConv) else None
    return (node.input,) if residual is None else (node.input, residual)
