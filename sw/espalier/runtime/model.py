"""A compiled network as the driver uses it."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path

import numpy as np
import numpy.typing as npt

from espalier.arch.config import HardwareConfig, config_from_mapping, load_config
from espalier.backend.image import MAGIC, ProgramImage, check_hardware, load_image
from espalier.errors import ConfigError, ModelFileError
from espalier.ir.graph import IntegerGraph
from espalier.runtime.device import Access

Bytes = npt.NDArray[np.uint8]
Reference = Callable[[Bytes], Bytes]


@dataclass(frozen=True)
class BufferSpec:
    """A buffer of a program. register: NAME of NAME_ADDRESS; per_picture: one for each picture at work."""

    register: str
    count: int
    access: Access
    per_picture: bool


@dataclass(frozen=True)
class Model:
    """A program image with what it was compiled for, and the graph that it comes from if that is known."""

    image: ProgramImage
    config: HardwareConfig
    graph: IntegerGraph | None = None

    @property
    def name(self) -> str:
        """Name of the network."""
        return self.image.metadata.network

    def buffers(self) -> tuple[BufferSpec, ...]:
        """All buffers of DDR that the accelerator uses, in bytes."""
        program = -(-len(self.image.program) // self.config.axi_bytes) * self.config.axi_bytes
        scratch = self.image.scratch_bytes
        return (
            BufferSpec("PROGRAM", program, "read", per_picture=False),
            *([BufferSpec("SCRATCH", scratch, "both", per_picture=False)] if scratch else []),
            BufferSpec("INPUT", self.image.input_bytes, "read", per_picture=True),
            BufferSpec("OUTPUT", self.image.output_bytes, "write", per_picture=True),
        )

    def reference(self) -> Reference:
        """Make the integer model: uint8[channels, height, width] of the input to that of the output."""
        if self.graph is None:
            return self._emulation
        from espalier.backend.compiler import lower_integer_graph
        from espalier.numerics import Executor

        executor = Executor(lower_integer_graph(self.graph, self.config))
        return lambda tensor: next(executor.outputs(tensor[None]))[0]

    def _emulation(self, tensor: Bytes) -> Bytes:
        """Decode the image and execute that: slow, for images that come without their graph."""
        from espalier.backend.emulate import emulate

        return emulate(self.image, self.config, tensor)[self.image.metadata.output]


def load_model(source: Model | ProgramImage | IntegerGraph | str | Path, target: str | None = None) -> Model:
    """Make a model of an image, an image file, a compressed network, its file, or the name of a built-in one.

    target: preset or YAML file to compile compressed networks for; images say themselves what they are for.

    Raises:
        ModelFileError: the file is missing or damaged, or was compiled for another target.
        UserError: the network does not fit the target.

    """
    if isinstance(source, Model):
        return source
    if isinstance(source, ProgramImage):
        return _of_image(source, target, f"'{source.metadata.network}'")
    if isinstance(source, IntegerGraph):
        return _compiled(source, target)
    from espalier.models.builtin import builtin_names, load_builtin

    if str(source) in builtin_names():
        return _compiled(load_builtin(str(source)), target)
    path = Path(source)
    if not path.is_file():
        raise ModelFileError(
            f"no model '{source}': give a compiled image (`espalier compile`), an .espalier file, or one of"
            f" {', '.join(builtin_names())}"
        )
    with path.open("rb") as stream:
        is_image = stream.read(len(MAGIC)) == MAGIC
    if is_image or path.suffix != ".espalier":
        return _of_image(load_image(path), target, str(path))
    from espalier.ir.storage import load_graph

    return _compiled(load_graph(path), target)


def _of_image(image: ProgramImage, target: str | None, where: str) -> Model:
    """Find the configuration: in the image, or in older ones by the target's name."""
    metadata = image.metadata
    if target is not None:
        config = load_config(target)
    elif metadata.hardware:
        config = config_from_mapping(metadata.hardware, f"of image {where}")
    else:
        try:
            config = load_config(metadata.target)
        except ConfigError as error:
            raise ModelFileError(
                f"image {where} does not say what it was compiled for: give `target`"
            ) from error
    check_hardware(image, config, where)
    return Model(image, config)


def _compiled(graph: IntegerGraph, target: str | None) -> Model:
    from espalier.backend.compiler import compile_graph

    if target is None:
        raise ModelFileError(
            f"network '{graph.name}' is not compiled: give `target`, or an image made by `espalier compile`"
        )
    config = load_config(target)
    return Model(compile_graph(graph, config), config, graph)
