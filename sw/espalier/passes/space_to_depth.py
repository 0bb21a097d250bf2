"""Space-to-depth of the first convolution: phases of the picture become channels.

A convolution of stride 2 over three channels with a 7x7 kernel would walk few words with many operators each
and need two windows for every one it uses. Rearranged, it is a 4x4 convolution of stride 1 over twelve
channels.
"""

from __future__ import annotations

import dataclasses

import numpy as np
import numpy.typing as npt

from espalier.ir.graph import Conv, IntegerGraph, Tensor
from espalier.passes.lower_padding import tensors_read

FACTOR = 2
FEW_CHANNELS = 4  # up to which a 3x3 kernel of stride 2 is worth rearranging


def space_to_depth(graph: IntegerGraph) -> IntegerGraph:
    """Rearrange the graph's input if its only reader is a convolution that gains from it.

    The input (C, H, W) becomes (4 C, ceil(H / 2), ceil(W / 2)), channel order phase_y, phase_x, c; a row or
    column that an odd size lacks holds the zero point. `metadata["space_to_depth"]` tells the host.
    """
    readers = [index for index, node in enumerate(graph.nodes) if graph.input in tensors_read(node)]
    node = graph.nodes[readers[0]] if len(readers) == 1 else None
    if not isinstance(node, Conv) or not _worthwhile(node):
        return graph
    source = graph.tensors[graph.input]
    packed = dataclasses.replace(
        source,
        channels=source.channels * FACTOR**2,
        height=-(-source.height // FACTOR),
        width=-(-source.width // FACTOR),
    )
    target = graph.tensors[node.output]
    nodes = list(graph.nodes)
    nodes[readers[0]] = _rearrange(node, packed, target)
    metadata = dict(graph.metadata)
    metadata["space_to_depth"] = FACTOR * int(metadata.get("space_to_depth") or 1)
    return dataclasses.replace(
        graph, nodes=nodes, tensors={**graph.tensors, graph.input: packed}, metadata=metadata
    )


def rearrange_picture(picture: npt.NDArray[np.uint8], factor: int, pad: int) -> npt.NDArray[np.uint8]:
    """Pixels [C, H, W] as [factor**2 * C, ceil(H / factor), ceil(W / factor)], filled up with `pad`."""
    channels, height, width = picture.shape
    rows, columns = -(-height // factor), -(-width // factor)
    whole = np.full((channels, rows * factor, columns * factor), pad, picture.dtype)
    whole[:, :height, :width] = picture
    phases = whole.reshape(channels, rows, factor, columns, factor).transpose(2, 4, 0, 1, 3)
    return np.ascontiguousarray(phases).reshape(factor**2 * channels, rows, columns)


def _worthwhile(node: Conv) -> bool:
    kernel = max(node.weights.shape[2:])
    few = node.weights.shape[1] <= FEW_CHANNELS and kernel > 1
    return node.residual is None and node.stride % FACTOR == 0 and (kernel > 3 or few)


def _rearrange(node: Conv, packed: Tensor, target: Tensor) -> Conv:
    """Make the same convolution over the rearranged input."""
    filters, channels, height, width = node.weights.shape
    rows = np.arange(height) * node.dilation - node.pads[0]
    columns = np.arange(width) * node.dilation - node.pads[1]
    (tap_y, phase_y), (tap_x, phase_x) = np.divmod(rows, FACTOR), np.divmod(columns, FACTOR)
    top, left = int(tap_y.min()), int(tap_x.min())
    stride = node.stride // FACTOR
    height_needed = (target.height - 1) * stride + int(tap_y.max()) + 1
    width_needed = (target.width - 1) * stride + int(tap_x.max()) + 1
    # The far pads only count, nothing reads them; zero taps stand for rows that the convolution never
    # reaches.
    bottom, right = max(0, height_needed - packed.height), max(0, width_needed - packed.width)
    kernel = (
        int(tap_y.max()) - top + 1 + max(0, packed.height - height_needed),
        int(tap_x.max()) - left + 1 + max(0, packed.width - width_needed),
    )
    weights = np.zeros((filters, FACTOR, FACTOR, channels, *kernel), node.weights.dtype)
    for ky in range(height):
        for kx in range(width):
            weights[:, phase_y[ky], phase_x[kx], :, tap_y[ky] - top, tap_x[kx] - left] = node.weights[
                :, :, ky, kx
            ]
    return dataclasses.replace(
        node,
        weights=weights.reshape(filters, FACTOR**2 * channels, *kernel),
        stride=stride,
        dilation=1,
        dense_macs=node.dense_macs or node.weights.size * target.height * target.width,
        pads=(-top, -left, bottom, right),
    )
