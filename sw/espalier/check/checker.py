"""The check of one network: from its file to a report, whatever is wrong with it."""

from __future__ import annotations

import dataclasses
from pathlib import Path

from espalier.arch.config import HardwareConfig
from espalier.backend.image import MAGIC, LayerInfo, check_hardware, load_image
from espalier.backend.lower import Progress
from espalier.check.layers import most_operators, split_advice
from espalier.check.memory import used_memory
from espalier.check.network import Findings, check_network
from espalier.check.onnx_nodes import onnx_verdicts
from espalier.check.sizing import DEFAULT_BITS, default_densities, size_graph
from espalier.check.verdict import Assumption, CheckReport, NodeVerdict
from espalier.errors import ModelFileError, UnsupportedModelError
from espalier.frontend.onnx_import import Imported, import_onnx
from espalier.ir.float_graph import FloatConv, FloatGraph, FloatPool
from espalier.ir.graph import Conv
from espalier.ir.storage import load_graph
from espalier.models.builtin import builtin_names, load_builtin
from espalier.passes.pipeline import lower

_EXPORT = "export the network again with what is supported"
_COMPILE = "compile the network for this target"


def _silent(message: str, done: int, total: int) -> None:
    """Show nothing."""


def check_model(
    model: str,
    config: HardwareConfig,
    density: float | None = None,
    bits: int = DEFAULT_BITS,
    progress: Progress = _silent,
) -> CheckReport:
    """Check an ONNX file, a compressed model, a program image or a built-in model against a target.

    density, bits: share of the weights other than zero and weight bits that a network in an ONNX file is
    assumed to have once compressed; None: about what `espalier compress` keeps without options. progress:
    called with what is being done, steps done and steps in all.

    Raises:
        ModelFileError: the file is missing, damaged, or no network.

    """
    report = CheckReport(model, "", config.name, config.clock_mhz, config.clock_source)
    if model in builtin_names():
        return _check_compressed(dataclasses.replace(report, source="builtin"), config, progress)
    if model.endswith(".onnx"):
        return _check_onnx(dataclasses.replace(report, source="onnx"), config, density, bits, progress)
    if _is_image(Path(model)):
        return _check_image(dataclasses.replace(report, source="image"), config)
    return _check_compressed(dataclasses.replace(report, source="espalier"), config, progress)


def _is_image(path: Path) -> bool:
    try:
        with path.open("rb") as stream:
            return stream.read(len(MAGIC)) == MAGIC
    except OSError:
        return False  # reading it as a model says why


def _check_compressed(report: CheckReport, config: HardwareConfig, progress: Progress) -> CheckReport:
    graph = load_builtin(report.model) if report.source == "builtin" else load_graph(report.model)
    found = check_network(graph, {}, True, config, None, progress)
    nodes = []
    for node in graph.nodes:
        operator = "Conv" if isinstance(node, Conv) else f"Pool ({node.kind})"
        unit, how = found.layers[node.name]
        if problems := found.problems.get(node.name):
            nodes.append(NodeVerdict(node.name, operator, False, "", "does not run", (), tuple(problems)))
        else:
            cycles = found.cycles.get(node.name)
            nodes.append(NodeVerdict(node.name, operator, True, unit, how, cycles=cycles))
    return _report(report, tuple(nodes), found)


def _check_image(report: CheckReport, config: HardwareConfig) -> CheckReport:
    """Judge a program image, which runs on the hardware that it was compiled for and on no other."""
    image = load_image(report.model)
    metadata, found = image.metadata, Findings()
    nodes = tuple(_image_verdict(layer) for layer in metadata.layers)
    found.memories, found.total = used_memory(metadata), metadata.predicted_cycles
    try:
        check_hardware(image, config, report.model)
    except ModelFileError as error:
        found.network.append(split_advice(str(error), default=_COMPILE))
        found.memories, found.total = [], None
        nodes = tuple(dataclasses.replace(node, cycles=None) for node in nodes)
    return _report(report, nodes, found)


def _image_verdict(layer: LayerInfo) -> NodeVerdict:
    operator = "Conv" if layer.kind == "conv" else f"Pool ({layer.kind})"
    how = f"{layer.operators:,} operators" if layer.kind == "conv" else f"pool of {layer.input}"
    how += f", adds {layer.residual}" if layer.residual else ""
    unit = "conv" if layer.kind == "conv" else "pool"
    return NodeVerdict(layer.name, operator, True, unit, how, cycles=layer.predicted_cycles)


def _check_onnx(
    report: CheckReport, config: HardwareConfig, density: float | None, bits: int, progress: Progress
) -> CheckReport:
    try:
        imported = import_onnx(Path(report.model))
    except UnsupportedModelError as error:
        return dataclasses.replace(report, problems=(split_advice(str(error), default=_EXPORT),))
    found, assumed = _size(imported, config, density, bits, progress)
    own = [split_advice(text, default=_EXPORT) for text in imported.problems]
    found.network = own + found.network
    found.notes = [*imported.graph.metadata["notes"], *found.notes]
    nodes = onnx_verdicts(imported, found.layers, found.problems, found.cycles)
    return _report(dataclasses.replace(report, assumption=assumed), nodes, found)


def _size(
    imported: Imported, config: HardwareConfig, density: float | None, bits: int, progress: Progress
) -> tuple[Findings, Assumption | None]:
    """Check what could be imported; what is not complete is not fused either, and judged layer by layer."""
    graph = imported.graph
    if imported.complete:
        lower(graph)
    nodes = [node for node in graph.nodes if isinstance(node, (FloatConv, FloatPool))]
    if not nodes:
        return Findings(), None
    floating = FloatGraph(graph.name, graph.input, graph.output, nodes, graph.shapes)
    convs = [node for node in nodes if isinstance(node, FloatConv)]
    if density is None:
        densities = default_densities(floating, bits)
    else:
        densities = {node.name: density for node in convs}
    weights = sum(node.weights.size for node in convs)
    kept = sum(densities[node.name] * node.weights.size for node in convs)
    assumption = Assumption(kept / weights, bits, density is not None) if convs else None
    sized, skipped = size_graph(floating, densities, bits, most_operators(config))
    return check_network(sized, skipped, imported.complete, config, assumption, progress), assumption


def _report(report: CheckReport, nodes: tuple[NodeVerdict, ...], found: Findings) -> CheckReport:
    return dataclasses.replace(
        report,
        nodes=nodes,
        problems=tuple(found.network),
        memories=tuple(found.memories),
        cycles=found.total,
        notes=tuple(found.notes),
    )
