"""Compressed networks and compiled program images, kept in the cache under a hash of all they depend on."""

from __future__ import annotations

import dataclasses
import hashlib
import json
import pickle
from pathlib import Path

import espalier.arch
import espalier.backend
import espalier.compress
import espalier.estimate
import espalier.frontend
import espalier.ir
import espalier.numerics
import espalier.passes
import espalier.runtime
from espalier.arch.config import HardwareConfig
from espalier.backend.compiler import DEFAULT_OPTIONS, compile_graph
from espalier.backend.image import ProgramImage, load_image
from espalier.backend.options import CompileOptions
from espalier.compress.build import LayerReport
from espalier.compress.from_onnx import compress_onnx, picture_files
from espalier.errors import ModelFileError
from espalier.ir.graph import IntegerGraph
from espalier.ir.storage import load_graph, save_graph
from espalier_sim.build import cache_folder, locked
from espalier_sim.hashing import source_hash
from espalier_sim.progress import Progress, silent

_COMPILER = (espalier.arch, espalier.backend, espalier.estimate, espalier.ir, espalier.passes)
_COMPRESSION = (
    espalier.compress, espalier.frontend, espalier.ir, espalier.numerics, espalier.passes, espalier.runtime
)  # fmt: skip


def compiled(
    graph: IntegerGraph,
    config: HardwareConfig,
    progress: Progress = silent,
    options: CompileOptions = DEFAULT_OPTIONS,
) -> ProgramImage:
    """Compile a graph for `config`, or take the image from the cache.

    Raises:
        CapacityError, UnsupportedModelError: from the compiler.

    """
    # Pickles of equal graphs may differ, which costs a compilation; equal pickles mean equal graphs.
    graph_hash = hashlib.sha256(pickle.dumps(graph)).hexdigest()
    target = json.dumps([config.name, dataclasses.asdict(config), dataclasses.asdict(options)])
    path = cache_folder() / "images" / f"{config.name}-{source_hash(_COMPILER, graph_hash, target)}.img"
    with locked(path):
        if path.is_file():
            try:
                return load_image(path, config)
            except ModelFileError:
                path.unlink()  # damaged: compile again
        image = compile_graph(
            graph,
            config,
            options,
            progress=lambda what, done, total: progress(f"compiler: {what} ({done} of {total})"),
        )
        image.save(path)
    return image


def compressed(path: Path, calibration: Path, progress: Progress = silent) -> IntegerGraph:
    """Compress an ONNX file with the pictures of a folder, or take the result from the cache.

    Raises:
        UserError: from importer and compression.

    """
    digest = hashlib.sha256()
    for file in (path, *picture_files(calibration)):
        digest.update(hashlib.sha256(file.read_bytes()).digest())
    stored = (
        cache_folder() / "models" / f"{source_hash(_COMPRESSION, path.stem, digest.hexdigest())}.espalier"
    )

    def report(name: str, done: int, total: int, layer: LayerReport | None) -> None:
        progress(f"compressing {name} ({done} of {total})")

    with locked(stored):
        if stored.is_file():
            try:
                return load_graph(stored)
            except ModelFileError:
                stored.unlink()  # damaged: compress again
        progress(f"reading {path.name}")
        graph = compress_onnx(path, calibration, progress=report)
        save_graph(graph, stored)
    return graph
