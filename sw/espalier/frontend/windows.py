"""Kernel, stride, padding and dilation of ONNX operators, brought to what the accelerator knows."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from espalier.arch.operators import WORD_TAPS
from espalier.arch.program import MAX_PATTERNS
from espalier.frontend.context import check_all, refuse
from espalier.frontend.source import SourceNode
from espalier.ir.geometry import output_size
from espalier.ir.graph import Pads

LARGEST_KERNEL = 7


@dataclass(frozen=True)
class Window:
    """Geometry of a convolution or pooling; `rows` and `columns` of the output."""

    kernel: tuple[int, int]
    stride: int
    pads: Pads
    dilation: int
    rows: int
    columns: int
    overhang: bool  # ceil_mode lets the last windows reach beyond the padding that the network asks for


@dataclass(frozen=True)
class _Axis:
    size: int
    kernel: int
    stride: int
    before: int
    after: int
    dilation: int
    output: int
    overhang: bool


def read_window(node: SourceNode, kernel: Sequence[int], size: tuple[int, int]) -> Window:
    """Geometry of `node` on a map of `size` (height, width); refuses what the accelerator cannot do."""
    if len(kernel) != 2:
        refuse(f"it works on {len(kernel)} spatial dimensions; supported are 2")
    strides = _pair(node, "strides")
    dilations = _pair(node, "dilations")
    pads = _pads(node, kernel, strides, dilations, size)
    axes = [_axis(node, size[i], kernel[i], strides[i], pads[i], pads[i + 2], dilations[i]) for i in range(2)]
    check_all(
        lambda: _check_dilations(dilations),
        lambda: check_kernel(kernel, size),
        lambda: _check_reach(kernel, axes, size),
        lambda: _common_stride(axes),
    )
    stride = _common_stride(axes)
    return Window(
        (kernel[0], kernel[1]),
        stride,
        (axes[0].before, axes[1].before, _after(axes[0], stride), _after(axes[1], stride)),
        dilations[0],
        axes[0].output,
        axes[1].output,
        any(axis.overhang for axis in axes),
    )


def _check_dilations(dilations: tuple[int, int]) -> None:
    if dilations[0] != dilations[1]:
        refuse(f"dilation {_by(dilations)}; both axes must have the same")


def _check_reach(kernel: Sequence[int], axes: list[_Axis], size: tuple[int, int]) -> None:
    for axis in axes:
        if axis.output < 1:
            refuse(f"kernel {_by(kernel)} with dilation {axis.dilation} exceeds the map {_by(size)}")


def check_kernel(kernel: Sequence[int], size: tuple[int, int]) -> None:
    """Refuse kernels that are too large; one that covers the whole map may be as large as patterns allow."""
    patterns = kernel[1] * -(-kernel[0] // WORD_TAPS)
    if max(kernel) > LARGEST_KERNEL and (tuple(kernel) != size or patterns > MAX_PATTERNS):
        refuse(
            f"kernel {_by(kernel)}; supported are up to {LARGEST_KERNEL}x{LARGEST_KERNEL}, over the whole map"
            " up to 16x16"
        )


def _by(values: Sequence[int]) -> str:
    return "x".join(map(str, values))


def _pair(node: SourceNode, name: str) -> tuple[int, int]:
    values = node.attributes.get(name) or (1, 1)
    if len(values) != 2 or min(values) < 1:
        refuse(f"{name} {list(values)}; supported are two positive numbers")
    return int(values[0]), int(values[1])


def _pads(
    node: SourceNode,
    kernel: Sequence[int],
    strides: tuple[int, int],
    dilations: tuple[int, int],
    size: tuple[int, int],
) -> tuple[int, int, int, int]:
    """Return padding top, left, bottom, right, `auto_pad` resolved."""
    mode = node.attributes.get("auto_pad", "NOTSET")
    if mode in ("SAME_UPPER", "SAME_LOWER"):
        before, after = [], []
        for i in range(2):
            reach = dilations[i] * (kernel[i] - 1) + 1
            total = max(0, (-(-size[i] // strides[i]) - 1) * strides[i] + reach - size[i])
            small, large = total // 2, total - total // 2
            before.append(small if mode == "SAME_UPPER" else large)
            after.append(large if mode == "SAME_UPPER" else small)
        return before[0], before[1], after[0], after[1]
    if mode == "VALID":
        return 0, 0, 0, 0
    if mode != "NOTSET":
        refuse(f"auto_pad {mode} is unknown")
    pads = node.attributes.get("pads") or (0, 0, 0, 0)
    if len(pads) != 4 or min(pads) < 0:
        refuse(f"padding {list(pads)}; supported are four numbers that are not negative")
    return int(pads[0]), int(pads[1]), int(pads[2]), int(pads[3])


def _axis(
    node: SourceNode, size: int, kernel: int, stride: int, before: int, after: int, dilation: int
) -> _Axis:
    """Resolve ceil_mode along one axis: the padding at the end grows to hold the last window."""
    output = output_size(size, kernel, stride, before, after, dilation)
    overhang = False
    if node.attributes.get("ceil_mode", 0) and node.attributes.get("auto_pad", "NOTSET") == "NOTSET":
        reach = dilation * (kernel - 1) + 1
        larger = -(-(size + before + after - reach) // stride) + 1
        # A window that would start in the padding at the end is left out.
        if larger > output and (larger - 1) * stride < size + before:
            after += (larger - 1) * stride + reach - (size + before + after)
            output, overhang = larger, True
    return _Axis(size, kernel, stride, before, after, dilation, output, overhang)


def _common_stride(axes: list[_Axis]) -> int:
    """Find the stride of both axes; that of an axis with a single output position means nothing."""
    for stride in (1, 2):
        if all(axis.stride == stride or (axis.output == 1 and _fits(axis, stride)) for axis in axes):
            return stride
    return refuse(f"stride {_by([axis.stride for axis in axes])}; supported are 1x1 and 2x2")


def _after(axis: _Axis, stride: int) -> int:
    """Return the padding at the end that the windows really reach."""
    used = (axis.output - 1) * stride + axis.dilation * (axis.kernel - 1) + 1
    return max(0, used - axis.size - axis.before)


def _fits(axis: _Axis, stride: int) -> bool:
    after = _after(axis, stride)
    return output_size(axis.size, axis.kernel, stride, axis.before, after, axis.dilation) == 1
