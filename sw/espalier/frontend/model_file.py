"""Reading of ONNX files: everything that can be wrong with the file itself is found here."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt
import onnx
from onnx import numpy_helper
from onnx.external_data_helper import load_external_data_for_tensor

from espalier.errors import ModelFileError, UnsupportedModelError

OPSETS = (7, 25)
DEFAULT_DOMAINS = ("", "ai.onnx")


def read_model(path: Path) -> onnx.ModelProto:
    """Read an ONNX file with the weights it keeps in other files.

    Raises:
        ModelFileError: missing, truncated or damaged file, or not ONNX at all.
        UnsupportedModelError: a version of the operator set that Espalier does not know.

    """
    try:
        content = path.read_bytes()
    except OSError as error:
        raise ModelFileError(f"cannot read network {path}: {error.strerror}") from error
    try:
        model = onnx.ModelProto.FromString(content)
    except Exception as error:  # protobuf's parsers raise classes of their own
        raise ModelFileError(f"{path} is no ONNX file, or it is truncated or damaged ({error})") from error
    if not model.ir_version or not model.graph.node or not model.opset_import:
        raise ModelFileError(f"{path} is no ONNX file: it holds no network")
    if not all(isinstance(text, str) for text in _texts(model)):
        raise ModelFileError(f"{path} is damaged: a name in it is not UTF-8 text")
    if model.functions:
        model = _inline(model, path)
    version = opset(model)
    if not OPSETS[0] <= version <= OPSETS[1]:
        raise UnsupportedModelError(
            f"network {path} uses opset {version}; supported are {OPSETS[0]} to {OPSETS[1]}:"
            " convert it with onnx.version_converter, or export it again"
        )
    _load_external_data(model, path)
    return model


def _texts(model: onnx.ModelProto) -> Iterator[object]:
    """Yield the names in a model; protobuf delivers what is no valid text as bytes."""
    graph = model.graph
    yield graph.name
    yield from (item.domain for item in model.opset_import)
    for value in (*graph.input, *graph.output):
        yield value.name
        yield from (dimension.dim_param for dimension in value.type.tensor_type.shape.dim)
    for tensor in _tensors(graph):
        yield tensor.name
        yield from (text for entry in tensor.external_data for text in (entry.key, entry.value))
    for node in graph.node:
        yield from (node.name, node.op_type, node.domain, *node.input, *node.output)
        yield from (item.name for item in node.attribute)


def _inline(model: onnx.ModelProto, path: Path) -> onnx.ModelProto:
    from onnx import inliner

    try:
        return inliner.inline_local_functions(model)
    except Exception as error:  # a broken function may raise anything
        raise ModelFileError(f"network {path}: its local functions cannot be expanded ({error})") from error


def opset(model: onnx.ModelProto) -> int:
    """Version of the standard operator set; 0 if the network names none."""
    return max((item.version for item in model.opset_import if item.domain in DEFAULT_DOMAINS), default=0)


def _load_external_data(model: onnx.ModelProto, path: Path) -> None:
    for tensor in _tensors(model.graph):
        if tensor.data_location != onnx.TensorProto.EXTERNAL:
            continue
        location = next((item.value for item in tensor.external_data if item.key == "location"), "")
        if not (path.parent / location).is_file():
            raise ModelFileError(
                f"network {path} keeps its weights in '{location}', which is missing: put that file into the"
                f" same folder (first needed for {tensor.name})"
            )
        try:
            load_external_data_for_tensor(tensor, str(path.parent))
        except Exception as error:  # wrong offsets, unsafe paths and the like, in classes of their own
            raise ModelFileError(
                f"network {path}: the weights {tensor.name} cannot be read from '{location}' ({error})"
            ) from error
        tensor.data_location = onnx.TensorProto.DEFAULT
        del tensor.external_data[:]


def _tensors(graph: onnx.GraphProto) -> list[onnx.TensorProto]:
    tensors = list(graph.initializer)
    for node in graph.node:
        tensors += [item.t for item in node.attribute if item.type == onnx.AttributeProto.TENSOR]
    return tensors


def to_array(tensor: onnx.TensorProto, name: str) -> npt.NDArray[Any]:
    """Content of an ONNX tensor.

    Raises:
        ModelFileError: its bytes do not fill its shape, or it holds NaN or infinity; `name` says which.

    """
    try:
        array: npt.NDArray[Any] = np.asarray(numpy_helper.to_array(tensor))
    except Exception as error:  # ValueError, TypeError and whatever the helper meets in damaged tensors
        raise ModelFileError(f"initialiser {name} is damaged: {error}") from error
    if np.issubdtype(array.dtype, np.floating) and not np.isfinite(array).all():
        bad = int(array.size - np.isfinite(array).sum())
        raise ModelFileError(
            f"initialiser {name} holds NaN or infinity in {bad} of {array.size} places:"
            " the network is damaged, or its training diverged"
        )
    return array


def inferred_shapes(model: onnx.ModelProto) -> dict[str, tuple[int, ...]]:
    """Shapes of the tensors as ONNX infers them, 0 where a size is open; empty if it cannot."""
    try:
        graph = onnx.shape_inference.infer_shapes(model).graph
    except Exception:  # classes of its own; the shapes are only wanted to say more
        return {}
    return {
        value.name: tuple(d.dim_value for d in value.type.tensor_type.shape.dim)
        for value in graph.value_info
        if value.type.tensor_type.HasField("shape")
    }
