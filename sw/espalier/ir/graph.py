"""The integer graph: what the compiler takes in, what `numerics` executes, what the RTL must equal.

Every tensor is uint8 with one scale and one zero point: real = scale * (stored - zero_point). Two kinds
of node exist, convolution and pooling; everything else a network may hold is lowered to them.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Any

import numpy as np
import numpy.typing as npt

Pads = tuple[int, int, int, int]  # top, left, bottom, right


@dataclass(frozen=True)
class Tensor:
    """A feature map of one picture, uint8[channels, height, width]."""

    name: str
    channels: int
    height: int
    width: int
    scale: float
    zero_point: int


@dataclass(frozen=True)
class Requantisation:
    """Accumulator to output, per output channel (see `numerics.requantise`).

    multiplier: int64[K], 0..2**17-1; shift: int64[K], index into MULTIPLIER_SHIFTS;
    bias: int64[K], added to the accumulator; it holds the correction for the input's zero point.
    """

    multiplier: npt.NDArray[np.int64]
    shift: npt.NDArray[np.int64]
    bias: npt.NDArray[np.int64]


@dataclass(frozen=True)
class Residual:
    """A tensor of the output's shape that is added before saturation."""

    tensor: str
    multiplier: int
    shift: int  # index into RESIDUAL_SHIFTS


@dataclass(frozen=True)
class Conv:
    """Convolution, fully connected layers included (kernel = whole map).

    weights: int8[K, C, kernel_y, kernel_x] with values of `weight_bits` bits (5-8 bits: -119..119).
    """

    name: str
    input: str
    output: str
    weights: npt.NDArray[np.int8]
    requantisation: Requantisation
    stride: int = 1
    pads: Pads = (0, 0, 0, 0)
    dilation: int = 1
    residual: Residual | None = None
    weight_bits: int = 4
    # Multiply-accumulates of the layer as the user wrote it, before space-to-depth, zeros included.
    dense_macs: int = 0


@dataclass(frozen=True)
class Pool:
    """Pooling; `kind` is "max", "average" or "global" (average over the whole map, 1x1 output)."""

    name: str
    input: str
    output: str
    kind: str
    requantisation: Requantisation  # arrays of one element, the same for all channels
    kernel: tuple[int, int] = (1, 1)
    stride: int = 1
    pads: Pads = (0, 0, 0, 0)


Node = Conv | Pool


@dataclass
class IntegerGraph:
    """Nodes in execution order. `tensors` holds every tensor by name, input and output included."""

    name: str
    input: str
    output: str
    nodes: list[Node]
    tensors: dict[str, Tensor]
    # How a picture becomes the input tensor and how scores get names: mean, std (per channel),
    # picture_size (height, width), space_to_depth (factor the picture was rearranged by, 1: none), labels.
    metadata: dict[str, Any] = field(default_factory=dict)
