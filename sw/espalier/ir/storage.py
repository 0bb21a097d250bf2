"""Integer graphs as files: one zip of a JSON description and NumPy arrays, each with its checksum."""

from __future__ import annotations

import io
import json
import os
import tempfile
import zipfile
import zlib
from dataclasses import asdict
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt

from espalier.errors import EspalierError, InternalError, ModelFileError
from espalier.ir.check import check_graph
from espalier.ir.graph import Conv, IntegerGraph, Node, Pool, Requantisation, Residual, Tensor

FORMAT = "espalier-integer-graph"
FORMAT_VERSION = 1
DESCRIPTION = "graph.json"
# Every member carries the same date, so that equal graphs make equal files.
_DATE = (1980, 1, 1, 0, 0, 0)
_LARGEST_MEMBER = 1 << 30


def save_graph(graph: IntegerGraph, path: str | Path) -> None:
    """Write a graph to a file. An existing file is replaced in one step, or not at all.

    Raises:
        InternalError: the graph is inconsistent, or its metadata are not plain values.
        ModelFileError: the file cannot be written.

    """
    check_graph(graph)
    content, target = _encode(graph), Path(path)
    try:
        handle, temporary = tempfile.mkstemp(prefix=f".{target.name}.", dir=target.parent)
    except OSError as error:
        raise ModelFileError(f"cannot write model {target}: {error.strerror}") from error
    try:
        with os.fdopen(handle, "wb") as stream:
            stream.write(content)
        # mkstemp files are private; give the file the permissions any other new file would have.
        mask = os.umask(0)
        os.umask(mask)
        Path(temporary).chmod(0o666 & ~mask)
        Path(temporary).replace(target)
    except OSError as error:
        raise ModelFileError(f"cannot write model {target}: {error.strerror}") from error
    finally:
        Path(temporary).unlink(missing_ok=True)


def load_graph(path: str | Path) -> IntegerGraph:
    """Read a graph from a file.

    Raises:
        ModelFileError: the file is missing, not a model, damaged, or of another format version.

    """
    source = Path(path)
    try:
        content = source.read_bytes()
    except OSError as error:
        raise ModelFileError(f"cannot read model {source}: {error.strerror}") from error
    try:
        graph = _decode(content, source)
        check_graph(graph)
    except ModelFileError:
        raise
    except (
        zipfile.BadZipFile,
        zlib.error,
        EOFError,
        OSError,
        NotImplementedError,
        RuntimeError,
        KeyError,
        IndexError,
        TypeError,
        ValueError,
        AttributeError,
        EspalierError,
    ) as error:
        raise ModelFileError(
            f"model {source} is damaged or no Espalier model ({error}); compress the network again"
        ) from error
    return graph


def _encode(graph: IntegerGraph) -> bytes:
    arrays: list[npt.NDArray[Any]] = []

    def put(array: npt.NDArray[Any]) -> int:
        arrays.append(array)
        return len(arrays) - 1

    def node_values(node: Node) -> dict[str, Any]:
        values = {name: value for name, value in vars(node).items() if name != "requantisation"}
        q = node.requantisation
        values["requantisation"] = put(
            np.stack([q.multiplier, q.shift, q.bias]).astype(np.int32)  # all fit: at most 27 bits
        )
        if isinstance(node, Conv):
            values["weights"] = put(node.weights)
            values["residual"] = None if node.residual is None else asdict(node.residual)
        return {"kind": type(node).__name__, "values": values}

    description = {
        "format": FORMAT,
        "version": FORMAT_VERSION,
        "name": graph.name,
        "input": graph.input,
        "output": graph.output,
        "nodes": [node_values(node) for node in graph.nodes],
        "tensors": [asdict(tensor) for tensor in graph.tensors.values()],
        "metadata": graph.metadata,
    }
    buffer = io.BytesIO()
    with zipfile.ZipFile(buffer, "w") as archive:

        def write(name: str, content: bytes) -> None:
            member = zipfile.ZipInfo(name, _DATE)
            archive.writestr(member, content, zipfile.ZIP_DEFLATED, 6)

        try:
            text = json.dumps(description, default=_plain)
        except (TypeError, ValueError) as error:
            raise InternalError(f"graph {graph.name}: metadata: {error}") from error
        write(DESCRIPTION, text.encode())
        for index, array in enumerate(arrays):
            member = io.BytesIO()
            np.save(member, np.ascontiguousarray(array), allow_pickle=False)
            write(f"{index}.npy", member.getvalue())
    return buffer.getvalue()


def _plain(value: Any) -> Any:
    """Plain Python value of what JSON does not know: NumPy scalars and arrays."""
    if isinstance(value, (np.generic, np.ndarray)):
        return value.tolist()
    raise TypeError(f"{type(value).__name__} cannot be stored")


def _decode(content: bytes, source: Path) -> IntegerGraph:
    with zipfile.ZipFile(io.BytesIO(content)) as archive:
        if sum(member.file_size for member in archive.infolist()) > _LARGEST_MEMBER:
            raise ValueError("it unpacks to more than 1 GiB")
        description = json.loads(archive.read(DESCRIPTION))
        if description["format"] != FORMAT:
            raise ValueError(f"format {description['format']}")
        if description["version"] != FORMAT_VERSION:
            raise ModelFileError(
                f"model {source} has format version {description['version']}, this Espalier reads version"
                f" {FORMAT_VERSION}: compress the network again, or use the matching Espalier"
            )

        def get(index: int) -> npt.NDArray[Any]:
            array: npt.NDArray[Any] = np.load(io.BytesIO(archive.read(f"{index}.npy")), allow_pickle=False)
            return array

        nodes = [_node(item["kind"], item["values"], get) for item in description["nodes"]]
    tensors = {values["name"]: Tensor(**values) for values in description["tensors"]}
    return IntegerGraph(
        description["name"],
        description["input"],
        description["output"],
        nodes,
        tensors,
        description["metadata"],
    )


def _node(kind: str, values: dict[str, Any], get: Any) -> Node:
    multiplier, shift, bias = get(values["requantisation"]).astype(np.int64)
    values["requantisation"] = Requantisation(multiplier, shift, bias)
    values["pads"] = tuple(values["pads"])
    if kind == "Pool":
        values["kernel"] = tuple(values["kernel"])
        return Pool(**values)
    if kind != "Conv":
        raise ValueError(f"node of kind {kind}")
    values["weights"] = get(values["weights"])
    if values["residual"] is not None:
        values["residual"] = Residual(**values["residual"])
    return Conv(**values)
