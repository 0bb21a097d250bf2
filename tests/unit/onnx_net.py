"""Small ONNX networks for the tests of the import."""

from __future__ import annotations

import numpy as np
import onnx
from onnx import TensorProto, helper, numpy_helper


class Net:
    """A small ONNX network under construction; `last` is the name of the newest tensor."""

    def __init__(self, shape=(1, 3, 9, 9), opset=17, seed=0):
        self.shape, self.opset = shape, opset
        self.rng = np.random.default_rng(seed)
        self.nodes, self.constants, self.last = [], [], "x"

    def const(self, array, dtype=np.float32):
        name = f"k{len(self.constants)}"
        self.constants.append(numpy_helper.from_array(np.asarray(array, dtype), name))
        return name

    def random(self, *shape):
        return self.const(self.rng.normal(size=shape) * 0.5)

    def add(self, op, *inputs, first=None, outputs=1, **attributes):
        index = len(self.nodes)
        names = [f"t{index}"] + [f"t{index}_{i}" for i in range(1, outputs)]
        self.nodes.append(
            helper.make_node(op, [first or self.last, *inputs], names, name=f"n{index}", **attributes)
        )
        self.last = names[0]
        return self.last

    def conv(self, channels, filters, kernel=(3, 3), first=None, bias=True, **attributes):
        inputs = [self.random(filters, channels, *kernel)] + ([self.random(filters)] if bias else [])
        return self.add("Conv", *inputs, first=first, **attributes)

    def norm(self, channels, **attributes):
        variance = self.const(self.rng.uniform(0.5, 2, channels))
        parameters = [self.random(channels), self.random(channels), self.random(channels), variance]
        return self.add("BatchNormalization", *parameters, **attributes)

    def model(self, outputs=None):
        source = helper.make_tensor_value_info("x", TensorProto.FLOAT, self.shape)
        targets = [helper.make_tensor_value_info(n, TensorProto.FLOAT, None) for n in outputs or [self.last]]
        graph = helper.make_graph(self.nodes, "net", [source], targets, self.constants)
        model = helper.make_model(graph, opset_imports=[helper.make_opsetid("", self.opset)])
        model.ir_version = 8
        return model

    def save(self, path, **arguments):
        onnx.save(self.model(**arguments), path)
        return path
