"""Streams, tables, descriptors and metadata of a mapped network."""

from __future__ import annotations

import dataclasses
from dataclasses import dataclass

import numpy as np

from espalier.arch.config import HardwareConfig
from espalier.arch.program import COMMON_FIELDS
from espalier.backend import descriptors
from espalier.backend.hazards import layer_waits
from espalier.backend.image import ImageMetadata, LayerInfo, MemoryUse, ProgramImage, TensorInfo
from espalier.backend.memory import peak_words
from espalier.backend.options import CompileOptions
from espalier.backend.plan import Layer, Placement
from espalier.backend.sections import build_program
from espalier.backend.select import layer_stream_words, layer_table_entries
from espalier.backend.streams import END_WORD, STREAM_WORD_BYTES, build_streams, header
from espalier.backend.tables import TABLE_WORD_BYTES, conv_table
from espalier.errors import CapacityError
from espalier.estimate.report import Estimate, estimate_program
from espalier.ir.graph import Conv, IntegerGraph, Pool

_MAX_LAYERS = next(field.high for field in COMMON_FIELDS if field.name == "layer")


@dataclass
class _Emission:
    """Memories filled so far, by physical PE and branch."""

    streams: list[bytearray]
    tables: list[bytearray]
    program: bytearray
    operators: list[int]
    nulls: list[int]


def emit(
    graph: IntegerGraph,
    layers: list[Layer],
    placements: dict[str, Placement],
    config: HardwareConfig,
    options: CompileOptions,
) -> ProgramImage:
    """Build the program image.

    Raises:
        CapacityError: more layers or program words than the hardware has.

    """
    if len(layers) > _MAX_LAYERS:
        raise CapacityError(
            f"{len(layers)} layers, the hardware counts {_MAX_LAYERS}; use a shallower network"
        )
    state = _Emission(
        [bytearray() for _ in range(config.pes)], [bytearray() for _ in range(config.branches)], bytearray(),
        [], [],
    )  # fmt: skip
    stored = _stored(graph, placements, config, options)
    waits = layer_waits(graph, placements, options.overlap)
    _load(graph, placements, config, state)
    for layer in layers:
        bases = [len(table) // TABLE_WORD_BYTES for table in state.tables]
        wait = waits[layer.index]
        state.program += descriptors.conv_or_pool(graph, layer, placements, bases, config, wait)
        _fill_memories(layer, config, state)
        if layer.node.output in stored:
            _store(graph, layer.node.output, layer.index, placements, stored, config, state)
    state.program += descriptors.end(config)
    for stream in state.streams:
        stream += END_WORD
    _check_program(state, config)
    program = build_program(
        bytes(state.program),
        [bytes(s) for s in state.streams],
        [bytes(t) for t in state.tables],
        config,
        options.pad,
    )
    prediction = estimate_program(program, config)
    metadata = _metadata(graph, layers, placements, stored, config, options, state, prediction)
    return ProgramImage(config.hash, program, metadata)


def _stored(
    graph: IntegerGraph, placements: dict[str, Placement], config: HardwareConfig, options: CompileOptions
) -> dict[str, tuple[int, int]]:
    """Byte offset in DDR and beats per word of every tensor that is stored; the network's output is first."""
    names = [graph.output]
    if options.store_all:
        names += [node.output for node in graph.nodes if node.output != graph.output]
    result, offset = {}, 0
    for name in names:
        tensor = graph.tensors[name]
        lanes = 1 if tensor.height == tensor.width == 1 else config.lanes_per_pe
        beats = -(-lanes // config.axi_bytes)
        result[name] = offset, beats
        offset += descriptors.tile_count(placements[name]) * tensor.channels * beats * config.axi_bytes
    return result


def _load(
    graph: IntegerGraph, placements: dict[str, Placement], config: HardwareConfig, state: _Emission
) -> None:
    place, channels = placements[graph.input], graph.tensors[graph.input].channels
    state.program += descriptors.load(place, channels, config)


def _store(
    graph: IntegerGraph,
    name: str,
    layer: int,
    placements: dict[str, Placement],
    stored: dict[str, tuple[int, int]],
    config: HardwareConfig,
    state: _Emission,
) -> None:
    (offset, beats), place, channels = stored[name], placements[name], graph.tensors[name].channels
    state.program += descriptors.store(place, channels, layer, offset, beats, config)


def _fill_memories(layer: Layer, config: HardwareConfig, state: _Emission) -> None:
    """Streams and tables of a layer."""
    operators = nulls = 0
    mapping = layer.mapping
    if mapping is not None:
        assert layer.pes is not None, "placed convolutions only"
        loops = {id(plan): build_streams(plan, mapping.block_words) for plan in mapping.plans}
        for branch in range(config.branches):
            role = mapping.role(branch)
            for pe in range(config.branch_pes(branch)):
                memory = state.streams[config.first_pe(branch) + pe]
                if role is None:
                    memory += header(0, 0, 0, 0, 0)
                    continue
                group, member = role
                own = int(layer.pes[branch, pe])
                stream = loops[id(group.plan)][member][own]
                memory += header(
                    len(stream.words) // STREAM_WORD_BYTES,
                    int(group.plan.deal.filters[member, own]),
                    group.tiles * mapping.passes,
                    len(mapping.words),
                    mapping.block_words,
                )
                memory += stream.words
                operators += group.tiles * stream.operators
                nulls += group.tiles * stream.nulls
            state.tables[branch] += conv_table(layer, branch)
    state.operators.append(operators)
    state.nulls.append(nulls)


def _check_program(state: _Emission, config: HardwareConfig) -> None:
    words = len(state.program) // descriptors.PROGRAM_WORD_BYTES
    if words > config.program_depth_words:
        raise CapacityError(
            f"program memory: the network needs {words} words, the target '{config.name}' has"
            f" {config.program_depth_words} ({words - config.program_depth_words} too many);"
            " use a shallower network"
        )


def _metadata(
    graph: IntegerGraph,
    layers: list[Layer],
    placements: dict[str, Placement],
    stored: dict[str, tuple[int, int]],
    config: HardwareConfig,
    options: CompileOptions,
    state: _Emission,
    prediction: Estimate,
) -> ImageMetadata:
    memory = [
        MemoryUse("feature", peak_words(placements), config.feature_depth_words),
        MemoryUse("stream", max(map(len, state.streams)) // STREAM_WORD_BYTES, config.stream_depth_words),
        MemoryUse("table", max(map(len, state.tables)) // TABLE_WORD_BYTES, config.table_depth_words),
        MemoryUse(
            "program", len(state.program) // descriptors.PROGRAM_WORD_BYTES, config.program_depth_words
        ),
    ]
    preprocessing = {key: value for key, value in graph.metadata.items() if key != "labels"}
    return ImageMetadata(
        network=graph.name,
        target=config.name,
        input=graph.input,
        output=graph.output,
        layers=[_layer_info(graph, layer, state, prediction) for layer in layers],
        tensors={name: _tensor_info(graph, name, placements, stored, config) for name in placements},
        predicted_cycles=prediction.cycles,
        memory=memory,
        reordered=options.reorder,
        padded=options.pad,
        labels=list(graph.metadata.get("labels") or []),
        preprocessing=preprocessing,
        hardware=dataclasses.asdict(config),
    )


def _tensor_info(
    graph: IntegerGraph,
    name: str,
    placements: dict[str, Placement],
    stored: dict[str, tuple[int, int]],
    config: HardwareConfig,
) -> TensorInfo:
    tensor, place = graph.tensors[name], placements[name]
    offset, beats = (0, config.word_beats) if name == graph.input else stored.get(name, (-1, 0))
    return TensorInfo(
        name, tensor.channels, tensor.height, tensor.width, float(tensor.scale), int(tensor.zero_point),
        place.base, place.pitch, place.tiles_y, place.tiles_x, place.pad, offset, beats * config.axi_bytes,
    )  # fmt: skip


def _layer_info(graph: IntegerGraph, layer: Layer, state: _Emission, prediction: Estimate) -> LayerInfo:
    node, mapping = layer.node, layer.mapping
    target = graph.tensors[node.output]
    pixels = target.height * target.width
    dense = effective = bits = 0
    if isinstance(node, Conv):
        dense = node.dense_macs or node.weights.size * pixels
        effective = int(np.count_nonzero(node.weights)) * pixels
        bits = node.weight_bits
    groups = [len(group.branches) for group in mapping.groups] if mapping is not None else [1]
    return LayerInfo(
        index=layer.index,
        name=node.name,
        kind=node.kind if isinstance(node, Pool) else "conv",
        input=node.input,
        output=node.output,
        residual=node.residual.tensor if isinstance(node, Conv) and node.residual is not None else "",
        weight_bits=bits,
        operators=state.operators[layer.index],
        null_operators=state.nulls[layer.index],
        dense_macs=int(dense),
        effective_macs=effective,
        predicted_cycles=prediction.layers[layer.index].cycles,
        tile_groups=len(groups),
        filter_groups=max(groups),
        passes=mapping.passes if mapping is not None else 1,
        block_words=mapping.block_words if mapping is not None else 8,
        stream_words=int(layer_stream_words(layer).max()) if mapping is not None else 0,
        table_entries=int(layer_table_entries(layer).max()) if mapping is not None else 0,
    )
