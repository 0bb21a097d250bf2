"""What `sim run` runs: a program image, an input tensor and the tensors that must come out."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path

import numpy as np
from numpy.typing import NDArray

from espalier import numerics
from espalier.arch.config import HardwareConfig
from espalier.arch.feature_layout import pack_tiles
from espalier.backend.compiler import lower_integer_graph
from espalier.backend.emulate import emulate
from espalier.backend.image import MAGIC as IMAGE_MAGIC
from espalier.backend.image import ProgramImage, load_image
from espalier.errors import ModelFileError, UserError
from espalier.ir.graph import IntegerGraph
from espalier.ir.storage import load_graph
from espalier.models.builtin import PICTURE, SUFFIX, builtin_names, load_builtin
from espalier.runtime.preprocess import Preprocessing
from espalier_sim.images import compiled, compressed
from espalier_sim.progress import Progress, silent

Bytes = NDArray[np.uint8]


@dataclass(frozen=True)
class Workload:
    """A compiled network and, unless it came as a finished image, the graph that it was compiled from.

    graph: as the compiler lowered it: its tensors are those that the hardware computes.
    """

    name: str
    image: ProgramImage
    graph: IntegerGraph | None

    def picture(self, path: Path | None) -> Bytes:
        """Read a picture (None: the built-in one) as the input tensor uint8[channels, height, width].

        Raises:
            PictureError: missing or not readable.

        """
        metadata = self.image.metadata
        return Preprocessing.of(metadata.preprocessing, self.image.input).input_tensor(path or PICTURE)

    def input_bytes(self, tensor: Bytes, config: HardwareConfig) -> bytes:
        """Lay out the input tensor as it lies in DDR."""
        return pack_tiles(tensor, config, self.image.input.pad).tobytes()

    def reference(self, tensor: Bytes, config: HardwareConfig) -> Mapping[str, Bytes]:
        """All tensors by name: from the integer model, or for a finished image from its emulation."""
        if self.graph is None:
            return emulate(self.image, config, tensor)
        return numerics.run(self.graph, tensor)


def load_workload(
    model: str, config: HardwareConfig, calibration: Path | None = None, progress: Progress = silent
) -> Workload:
    """Load a built-in model by name, a compressed model or ONNX file, or a compiled image.

    calibration: folder of pictures that activation ranges are taken from; needed for ONNX files.

    Raises:
        UserError: no such model, a damaged or unsupported file, a network that does not fit the target.

    """
    if model in builtin_names():
        return _from_graph(model, load_builtin(model), config, progress)
    path = Path(model)
    if not path.is_file():
        raise ModelFileError(
            f"no model '{model}': give one of {', '.join(builtin_names())}, an .onnx file, a {SUFFIX} file or"
            " a compiled image"
        )
    if path.suffix == ".onnx":
        return _from_graph(path.stem, _compress_onnx(path, calibration, progress), config, progress)
    if _is_image(path):
        return Workload(path.stem, load_image(path, config), None)
    return _from_graph(path.stem, load_graph(path), config, progress)


def _from_graph(name: str, graph: IntegerGraph, config: HardwareConfig, progress: Progress) -> Workload:
    image = compiled(graph, config, progress)
    return Workload(name, image, lower_integer_graph(graph, config))


def _is_image(path: Path) -> bool:
    try:
        with path.open("rb") as stream:
            return stream.read(len(IMAGE_MAGIC)) == IMAGE_MAGIC
    except OSError as error:
        raise ModelFileError(f"cannot read {path}: {error.strerror or error}") from error


def _compress_onnx(path: Path, calibration: Path | None, progress: Progress) -> IntegerGraph:
    if calibration is None:
        raise UserError(
            f"{path} holds real weights: give a folder of typical pictures with --calibration DIR, from which"
            " the ranges of the activations are taken"
        )
    return compressed(path, calibration, progress)
