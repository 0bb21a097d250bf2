"""The float graph: a network after import, batch normalisation folded and fused, before quantisation.

Its nodes are in one-to-one correspondence with those of the integer graph that quantisation makes of it.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Any

import numpy as np
import numpy.typing as npt

from espalier.ir.graph import Pads

Shape = tuple[int, int, int]  # channels, height, width


@dataclass
class FloatConv:
    """Convolution (a fully connected layer is one whose kernel is the whole map).

    out = activation(conv(input) + bias + residual); weights float32[K, C, kernel_y, kernel_x], bias
    float32[K].
    """

    name: str
    input: str
    output: str
    weights: npt.NDArray[np.float32]
    bias: npt.NDArray[np.float32]
    stride: int = 1
    pads: Pads = (0, 0, 0, 0)
    dilation: int = 1
    relu: bool = False
    residual: str | None = None


@dataclass
class FloatPool:
    """Pooling; `kind` is "max", "average" (padding counts as zero and in the divisor) or "global".

    A maximum has no activation: the node before it has, with the same result.
    """

    name: str
    input: str
    output: str
    kind: str
    kernel: tuple[int, int] = (1, 1)
    stride: int = 1
    pads: Pads = (0, 0, 0, 0)
    relu: bool = False


FloatNode = FloatConv | FloatPool


@dataclass
class FloatGraph:
    """Nodes in execution order; `shapes` gives (channels, height, width) of every tensor by name."""

    name: str
    input: str
    output: str
    nodes: list[FloatNode]
    shapes: dict[str, Shape]
    metadata: dict[str, Any] = field(default_factory=dict)
