"""Sizes of feature maps: the one place that knows how kernel, stride, padding and dilation combine."""

from __future__ import annotations

from espalier.ir.float_graph import FloatConv, FloatNode
from espalier.ir.graph import Conv, Node, Pads


def output_size(size: int, kernel: int, stride: int, before: int, after: int, dilation: int = 1) -> int:
    """Output pixels along one axis; zero or negative if the kernel does not fit the padded input."""
    return (size + before + after - dilation * (kernel - 1) - 1) // stride + 1


def output_map(
    size: tuple[int, int], kernel: tuple[int, int], stride: int, pads: Pads, dilation: int = 1
) -> tuple[int, int]:
    """(height, width) of the output of a window operation on a map of `size` (height, width)."""
    top, left, bottom, right = pads
    return (
        output_size(size[0], kernel[0], stride, top, bottom, dilation),
        output_size(size[1], kernel[1], stride, left, right, dilation),
    )


def node_output_shape(node: Node | FloatNode, shape: tuple[int, int, int]) -> tuple[int, int, int]:
    """(channels, height, width) that `node` makes of an input of `shape`."""
    channels, height, width = shape
    if isinstance(node, (Conv, FloatConv)):
        filters, _, kernel_y, kernel_x = node.weights.shape
        rows, columns = output_map(
            (height, width), (kernel_y, kernel_x), node.stride, node.pads, node.dilation
        )
        return filters, rows, columns
    if node.kind == "global":
        return channels, 1, 1
    rows, columns = output_map((height, width), node.kernel, node.stride, node.pads)
    return channels, rows, columns
