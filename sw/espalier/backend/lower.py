"""Nodes of the integer graph as layers: window patterns, parts, candidates for the mapping."""

from __future__ import annotations

from collections.abc import Callable

from espalier.arch.config import HardwareConfig
from espalier.arch.program import TABLE_FIELDS
from espalier.backend.digits import build_parts
from espalier.backend.geometry import global_geometry, kernel_geometry, pool_geometry
from espalier.backend.mapping import best_of_every_split, find_mappings, tile_grid, worth_considering
from espalier.backend.options import CompileOptions
from espalier.backend.plan import Layer
from espalier.errors import CapacityError, UnsupportedModelError
from espalier.ir.graph import Conv, IntegerGraph, Node, Pool, Tensor

Progress = Callable[[str, int, int], None]

_MAX_OUT_CHANNELS = next(field.high for field in TABLE_FIELDS if field.name == "out_channel") + 1


def lower_graph(
    graph: IntegerGraph, config: HardwareConfig, options: CompileOptions, progress: Progress | None = None
) -> list[Layer]:
    """One layer per node. Convolutions get their candidates."""
    layers = []
    for index, node in enumerate(graph.nodes):
        if progress is not None:
            progress(f"mapping {node.name}", index, len(graph.nodes))
        layer = lower_node(graph, index, node, config)
        if isinstance(node, Conv):
            target = graph.tensors[node.output]
            layer.parts = build_parts(node, layer.geometry, config.max_weight_sum)
            found = find_mappings(layer, target, config, options.reorder)
            layer.candidates = worth_considering(found) if options.reorder else found
            layer.splits = best_of_every_split(found) if options.refine else []
        layers.append(layer)
    return layers


def waits_for_load(graph: IntegerGraph, index: int) -> bool:
    """Whether a node runs while its input is still being loaded."""
    node = graph.nodes[index]
    residual = node.residual.tensor if isinstance(node, Conv) and node.residual is not None else None
    return index == 0 and node.input == graph.input and residual != graph.input


def lower_node(graph: IntegerGraph, index: int, node: Node, config: HardwareConfig) -> Layer:
    """Find the window patterns of a node; a convolution has no parts and no candidates yet.

    Raises:
        CapacityError: more patterns than the hardware has, or tiles too small for the kernel.

    """
    where = f"layer {node.name}"
    if isinstance(node, Conv):
        used = (node.weights != 0).any(axis=(0, 1))
        geometry = kernel_geometry(used, node.stride, node.pads[:2], node.dilation, config.tile_size, where)
    elif node.kind == "global":
        geometry = global_geometry(*tile_grid(graph.tensors[node.input], config.tile_size), where)
    else:
        assert node.kind == "max", "averages over a window are convolutions by now"
        geometry = pool_geometry(node.kernel, node.stride, node.pads[:2], config.tile_size, where)
    return Layer(index, node, geometry)


def check_supported(graph: IntegerGraph) -> None:
    """Raise UnsupportedModelError with all layers that cannot run, CapacityError for too wide ones."""
    problems = []
    for node in graph.nodes:
        if node.stride not in (1, 2):
            problems.append(f"{node.name}: stride {node.stride}, the hardware has 1 and 2")
    if problems:
        raise UnsupportedModelError(f"cannot run {len(problems)} layers: {'; '.join(problems)}")
    for node in graph.nodes:
        channels = graph.tensors[node.output].channels
        if isinstance(node, Conv) and channels > _MAX_OUT_CHANNELS:
            raise CapacityError(
                f"layer {node.name}: {channels} filters, the hardware counts {_MAX_OUT_CHANNELS}"
                f" ({channels - _MAX_OUT_CHANNELS} too many); use a narrower layer"
            )


def outside_sum(node: Pool, source: Tensor, pad: int, tile_size: int) -> int:
    """Sum of the lanes of edge tiles that lie outside the map, which a global sum takes in."""
    if node.kind != "global":
        return 0
    tiles_y, tiles_x = tile_grid(source, tile_size)
    return (tiles_y * tiles_x * tile_size**2 - source.height * source.width) * pad
