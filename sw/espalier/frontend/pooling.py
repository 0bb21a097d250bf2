"""Import of pooling and of means over the map."""

from __future__ import annotations

from espalier.frontend.context import Context, check_all, refuse
from espalier.frontend.source import SourceNode
from espalier.frontend.windows import read_window
from espalier.ir.float_graph import FloatPool


def max_pool(context: Context, node: SourceNode) -> None:
    """MaxPool without indices."""
    value = context.feature_map(node)
    kernel = _kernel(node)
    size = (value.shape[1], value.shape[2])
    check_all(
        lambda: _check_indices(node), lambda: _check_dilation(node), lambda: read_window(node, kernel, size)
    )
    window = read_window(node, kernel, size)
    if any(pad >= kernel[index % 2] for index, pad in enumerate(window.pads)):
        refuse(f"padding {list(window.pads)} is not smaller than the kernel")
    new = FloatPool(
        context.name(node), value.tensor, node.outputs[0], "max", window.kernel, window.stride, window.pads
    )
    context.emit(new, (value.shape[0], window.rows, window.columns))


def _check_indices(node: SourceNode) -> None:
    if any(node.outputs[1:]):
        refuse("its second output, the indices, is used; supported is the maximum alone")


def _check_dilation(node: SourceNode) -> None:
    dilations = [int(size) for size in node.attributes.get("dilations") or ()]
    if any(dilation != 1 for dilation in dilations):
        refuse(f"dilation {'x'.join(map(str, dict.fromkeys(dilations)))}; supported is 1")


def average_pool(context: Context, node: SourceNode) -> None:
    """AveragePool; over the whole map it is a global average."""
    value = context.feature_map(node)
    kernel = _kernel(node)
    size = (value.shape[1], value.shape[2])
    padded = any(node.attributes.get("pads", ())) or "SAME" in node.attributes.get("auto_pad", "")
    if tuple(kernel) == size and not padded:
        _global(context, node, "global", vector=False)
        return
    check_all(lambda: _check_dilation(node), lambda: read_window(node, kernel, size))
    window = read_window(node, kernel, size)
    if window.overhang:
        refuse("ceil_mode lets windows reach beyond the padding; supported are windows inside it")
    if any(window.pads) and not node.attributes.get("count_include_pad", 0):
        refuse("padding does not count in the average; supported is padding with count_include_pad = 1")
    new = FloatPool(
        context.name(node),
        value.tensor,
        node.outputs[0],
        "average",
        window.kernel,
        window.stride,
        window.pads,
    )
    context.emit(new, (value.shape[0], window.rows, window.columns))


def _kernel(node: SourceNode) -> list[int]:
    kernel = node.attributes.get("kernel_shape")
    if not kernel:
        refuse("it has no kernel_shape")
    if len(kernel) != 2:
        refuse(f"it works on {len(kernel)} spatial dimensions; supported are 2")
    return [int(size) for size in kernel]


def global_average_pool(context: Context, node: SourceNode) -> None:
    """GlobalAveragePool."""
    _global(context, node, "global", vector=False)


def global_max_pool(context: Context, node: SourceNode) -> None:
    """GlobalMaxPool: a maximum whose kernel is the whole map."""
    _global(context, node, "max", vector=False)


def reduce_mean(context: Context, node: SourceNode) -> None:
    """ReduceMean over height and width."""
    axes = node.attributes.get("axes")
    if axes is None:
        given = context.constant(node, 1)
        axes = [] if given is None else given.reshape(-1).tolist()
    if {int(axis) % 4 for axis in axes} != {2, 3}:
        refuse(
            f"it averages over axes {sorted(axes) or 'all'}; supported are height and width together (2, 3)"
        )
    _global(context, node, "global", vector=not node.attributes.get("keepdims", 1))


def _global(context: Context, node: SourceNode, kind: str, vector: bool) -> None:
    value = context.feature_map(node)
    channels, height, width = value.shape
    kernel = (1, 1)
    if kind == "max":
        kernel = read_window(node, (height, width), (height, width)).kernel
    new = FloatPool(context.name(node), value.tensor, node.outputs[0], kind, kernel)
    context.emit(new, (channels, 1, 1), vector)
