"""Float graphs of ResNets with basic blocks from PyTorch state dictionaries, batch normalisation folded."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt

from espalier.errors import ModelFileError, ToolNotFoundError
from espalier.ir.float_graph import FloatConv, FloatGraph, FloatPool
from espalier.ir.geometry import node_output_shape

_EPSILON = 1e-5  # of PyTorch's batch normalisation

State = Mapping[str, npt.NDArray[np.float32]]


def load_state(path: Path) -> dict[str, npt.NDArray[np.float32]]:
    """Read a PyTorch checkpoint as float32 arrays.

    Raises:
        ToolNotFoundError: PyTorch is not installed.
        ModelFileError: the file is missing or no state dictionary.

    """
    try:
        import torch
    except ImportError as error:
        raise ToolNotFoundError(
            "reading PyTorch files needs PyTorch: pip install 'espalier-accel[train]'"
        ) from error
    try:
        content: Any = torch.load(path, map_location="cpu", weights_only=True)
        state = content.get("state_dict", content)
        return {name.removeprefix("module."): value.float().numpy() for name, value in state.items()}
    except Exception as error:  # torch raises many kinds; all mean the same here
        raise ModelFileError(f"cannot read PyTorch state dictionary {path}: {error}") from error


class _Builder:
    """Appends nodes, keeping track of shapes."""

    def __init__(self, name: str, state: State, size: int) -> None:
        self.state = state
        self.graph = FloatGraph(name, "input", "", [], {"input": (3, size, size)})

    def _append(self, node: FloatConv | FloatPool) -> str:
        self.graph.nodes.append(node)
        self.graph.shapes[node.output] = node_output_shape(node, self.graph.shapes[node.input])
        self.graph.output = node.output
        return node.output

    def conv(
        self,
        name: str,
        source: str,
        weights: str,
        norm: str,
        stride: int,
        relu: bool,
        residual: str | None = None,
    ) -> str:
        """Append a convolution with its batch normalisation folded in; "same" padding."""
        state = self.state
        kernel = state[f"{weights}.weight"]
        gain = state[f"{norm}.weight"] / np.sqrt(state[f"{norm}.running_var"] + _EPSILON)
        bias = state[f"{norm}.bias"] - state[f"{norm}.running_mean"] * gain
        scaled = (kernel * gain[:, None, None, None]).astype(np.float32)
        pads = (kernel.shape[2] // 2,) * 4
        return self._append(
            FloatConv(name, source, name, scaled, bias.astype(np.float32), stride, pads, 1, relu, residual)
        )

    def block(self, prefix: str, source: str, stride: int) -> str:
        """Append a basic block."""
        middle = self.conv(f"{prefix}.conv1", source, f"{prefix}.conv1", f"{prefix}.bn1", stride, relu=True)
        shortcut, filters = source, len(self.state[f"{prefix}.conv2.weight"])
        if f"{prefix}.downsample.0.weight" in self.state:
            shortcut = self.conv(
                f"{prefix}.downsample",
                source,
                f"{prefix}.downsample.0",
                f"{prefix}.downsample.1",
                stride,
                relu=False,
            )
        elif self.graph.shapes[source][0] != filters:
            shortcut = self.widening(f"{prefix}.shortcut", source, filters, stride)
        return self.conv(
            f"{prefix}.conv2", middle, f"{prefix}.conv2", f"{prefix}.bn2", 1, relu=True, residual=shortcut
        )

    def stages(self, source: str, stages: int, blocks: int) -> str:
        """Append all blocks; every stage but the first begins with stride 2."""
        for stage in range(1, stages + 1):
            for index in range(blocks):
                stride = 2 if stage > 1 and index == 0 else 1
                source = self.block(f"layer{stage}.{index}", source, stride)
        return source

    def widening(self, name: str, source: str, filters: int, stride: int) -> str:
        """Append a shortcut without parameters: channels padded with zeros on both sides."""
        channels = self.graph.shapes[source][0]
        weights = np.zeros((filters, channels, 1, 1), np.float32)
        weights[(filters - channels) // 2 + np.arange(channels), np.arange(channels)] = 1
        bias = np.zeros(filters, np.float32)
        return self._append(FloatConv(name, source, name, weights, bias, stride))

    def pool(self, name: str, source: str, kind: str, kernel: int = 1, stride: int = 1, pad: int = 0) -> str:
        """Append a pooling node."""
        return self._append(FloatPool(name, source, name, kind, (kernel, kernel), stride, (pad,) * 4))

    def classifier(self, name: str, source: str) -> str:
        """Append the fully connected layer."""
        weights = self.state[f"{name}.weight"][:, :, None, None].astype(np.float32)
        return self._append(FloatConv(name, source, name, weights, self.state[f"{name}.bias"]))


def resnet18(state: State, size: int = 224) -> FloatGraph:
    """ResNet-18 for pictures of `size` pixels, from a state dictionary with torchvision's names.

    Raises:
        ModelFileError: a tensor is missing.

    """
    builder = _Builder("resnet18", state, size)
    try:
        source = builder.conv("conv1", "input", "conv1", "bn1", 2, relu=True)
        source = builder.pool("maxpool", source, "max", 3, 2, 1)
        source = builder.stages(source, stages=4, blocks=2)
        source = builder.pool("avgpool", source, "global")
        builder.classifier("fc", source)
    except KeyError as error:
        raise ModelFileError(f"no ResNet-18 with torchvision's names: tensor {error} is missing") from error
    return builder.graph


def resnet20(state: State, size: int = 32) -> FloatGraph:
    """ResNet-20 for pictures of `size` pixels, in the CIFAR-10 layout with shortcuts without parameters.

    The shortcuts (every second pixel, channels padded with zeros on both sides) become 1x1 convolutions.

    Raises:
        ModelFileError: a tensor is missing.

    """
    builder = _Builder("resnet20", state, size)
    try:
        source = builder.conv("conv1", "input", "conv1", "bn1", 1, relu=True)
        source = builder.stages(source, stages=3, blocks=3)
        source = builder.pool("avgpool", source, "global")
        builder.classifier("linear", source)
    except KeyError as error:
        raise ModelFileError(f"no ResNet-20 with the expected names: tensor {error} is missing") from error
    return builder.graph
