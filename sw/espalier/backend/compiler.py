"""The compiler: integer graph to program image.

Passes in order: on the graph `space_to_depth`, `lower_average` and `lower_padding`, with `check_graph`; then
`lower_graph` (patterns, digits, parts, candidate mappings), `select_mappings` (fit the memories),
`plan_strips` (feature memory, and what lives in DDR) and `emit` (streams, tables, descriptors, sections).
"""

from __future__ import annotations

from espalier.arch.config import HardwareConfig
from espalier.backend.emit import emit
from espalier.backend.image import ProgramImage
from espalier.backend.lower import Progress, check_supported, lower_graph
from espalier.backend.options import CompileOptions
from espalier.backend.refine import refine
from espalier.backend.residence import input_cycles
from espalier.backend.select import select_mappings
from espalier.backend.strip_plan import plan_strips, stream_strips
from espalier.ir.check import check_graph
from espalier.ir.graph import IntegerGraph
from espalier.passes.lower_average import lower_average
from espalier.passes.lower_padding import lower_padding
from espalier.passes.space_to_depth import space_to_depth

DEFAULT_OPTIONS = CompileOptions()


def lower_integer_graph(graph: IntegerGraph, config: HardwareConfig) -> IntegerGraph:
    """Make the graph that the hardware computes: input rearranged, averages as convolutions, copies."""
    graph = space_to_depth(graph)
    check_supported(graph)
    check_graph(graph)
    graph = lower_average(graph)
    graph = lower_padding(graph, config.tile_size)
    check_graph(graph)
    return graph


def compile_graph(
    graph: IntegerGraph,
    config: HardwareConfig,
    options: CompileOptions = DEFAULT_OPTIONS,
    progress: Progress | None = None,
) -> ProgramImage:
    """Compile a network for one hardware configuration.

    progress: called with what is being done, steps done and steps in all.

    Raises:
        CapacityError: the network does not fit a memory of the target.
        UnsupportedModelError: layers that the hardware cannot run.
        InternalError: the graph is inconsistent.

    """
    lowered = lower_integer_graph(graph, config)
    layers = lower_graph(lowered, config, options, progress)
    select_mappings(layers, config, input_cycles(lowered, config))
    if options.refine and options.reorder:
        lowered, layers = refine(lowered, layers, config, options, progress)
    plan, placements = plan_strips(lowered, layers, config, options)
    stream_strips(lowered, layers, config, plan)
    return emit(lowered, layers, placements, config, options, plan)
