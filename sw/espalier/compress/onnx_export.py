"""Write PyTorch ResNet checkpoints as ONNX files, to bring them in like any other network.

python -m espalier.compress.onnx_export resnet20 CHECKPOINT OUT.onnx
"""

from __future__ import annotations

import argparse
import sys
from pathlib import Path
from typing import Any

import onnx
from onnx import TensorProto, helper, numpy_helper

from espalier.compress.pytorch_resnet import load_state, resnet18, resnet20
from espalier.errors import UserError
from espalier.ir.float_graph import FloatConv, FloatGraph, FloatNode

OPSET = 17
NETWORKS = {"resnet18": resnet18, "resnet20": resnet20}

_POOLS = {"max": "MaxPool", "average": "AveragePool", "global": "GlobalAveragePool"}


def _window(node: FloatNode, kernel: tuple[int, int]) -> dict[str, Any]:
    return {"kernel_shape": list(kernel), "strides": [node.stride] * 2, "pads": list(node.pads)}


def to_onnx(graph: FloatGraph) -> onnx.ModelProto:
    """Make an ONNX model: Conv, pooling, Add and Relu nodes, scores flattened to [1, classes]."""
    nodes: list[Any] = []
    constants: list[Any] = []

    def emit(kind: str, inputs: list[str], output: str, **attributes: Any) -> str:
        nodes.append(helper.make_node(kind, inputs, [output], name=output, **attributes))
        return output

    for node in graph.nodes:
        if isinstance(node, FloatConv):
            parameters = {f"{node.name}.weight": node.weights, f"{node.name}.bias": node.bias}
            constants += [numpy_helper.from_array(value, name) for name, value in parameters.items()]
            kernel = (node.weights.shape[2], node.weights.shape[3])
            last = f"{node.name}.conv" if node.relu or node.residual else node.output
            inputs = [node.input, *parameters]
            emit("Conv", inputs, last, dilations=[node.dilation] * 2, **_window(node, kernel))
            if node.residual:
                last = emit("Add", [last, node.residual], f"{node.name}.add" if node.relu else node.output)
        else:
            last = f"{node.name}.pool" if node.relu else node.output
            attributes = {} if node.kind == "global" else _window(node, node.kernel)
            if node.kind == "average":
                attributes["count_include_pad"] = 1
            emit(_POOLS[node.kind], [node.input], last, **attributes)
        if node.relu:
            emit("Relu", [last], node.output)
    emit("Flatten", [graph.output], "scores")
    source = helper.make_tensor_value_info(graph.input, TensorProto.FLOAT, [1, *graph.shapes[graph.input]])
    scores = [1, int(graph.shapes[graph.output][0])]
    target = helper.make_tensor_value_info("scores", TensorProto.FLOAT, scores)
    proto = helper.make_graph(nodes, graph.name, [source], [target], constants)
    model = helper.make_model(proto, opset_imports=[helper.make_opsetid("", OPSET)], ir_version=8)
    onnx.checker.check_model(model)
    return model


def main() -> None:
    """Command line."""
    parser = argparse.ArgumentParser(description="Write a PyTorch ResNet checkpoint as ONNX.")
    parser.add_argument("network", choices=sorted(NETWORKS))
    parser.add_argument("checkpoint", type=Path)
    parser.add_argument("out", type=Path)
    arguments = parser.parse_args()
    try:
        graph = NETWORKS[arguments.network](load_state(arguments.checkpoint))
    except UserError as error:
        sys.exit(f"error: {error}")
    onnx.save(to_onnx(graph), arguments.out)


if __name__ == "__main__":
    main()
