"""Streams, tables, descriptors and metadata of a mapped network."""

from __future__ import annotations

import dataclasses
from dataclasses import dataclass

import numpy as np

from espalier.arch.config import HardwareConfig
from espalier.arch.program import COMMON_FIELDS, Opcode, descriptor_words
from espalier.backend import descriptors
from espalier.backend.chain import ChainedStreams, chain_streams
from espalier.backend.hazards import layer_start, layer_waits
from espalier.backend.image import ImageMetadata, LayerInfo, MemoryUse, ProgramImage, TensorInfo
from espalier.backend.mapping import tile_grid
from espalier.backend.memory import peak_words
from espalier.backend.options import CompileOptions
from espalier.backend.plan import Layer, Placement
from espalier.backend.sections import BEAT_BYTES, build_program, padded
from espalier.backend.select import layer_stream_words, layer_table_entries
from espalier.backend.streams import (
    RESTS,
    STREAM_WORD_BYTES,
    WIDE_BLOCK,
    LayerStream,
    build_streams,
    layer_stream,
    plain_stream,
)
from espalier.backend.strip_emission import StripEmission
from espalier.backend.strips import NO_STRIPS, Home, StripPlan
from espalier.backend.tables import TABLE_WORD_BYTES, conv_table
from espalier.errors import CapacityError
from espalier.estimate.report import Estimate, estimate_program
from espalier.ir.graph import Conv, IntegerGraph, Pool

_MAX_LAYERS = next(field.high for field in COMMON_FIELDS if field.name == "layer")


@dataclass
class _Emission:
    """Memories filled so far, by physical PE and branch."""

    streams: list[list[LayerStream]]
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
    plan: StripPlan = NO_STRIPS,
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
        [[] for _ in range(config.pes)], [bytearray() for _ in range(config.branches)], bytearray(),
        [], [],
    )  # fmt: skip
    stored = _stored(graph, config, options)
    waits = layer_waits(graph, placements, options.overlap, plan, stored)
    strips = StripEmission(graph, layers, placements, plan, config)
    if plan.home(graph.input) == Home.CHIP:
        _load(graph, placements, config, state)
    for layer in layers:
        bases = [len(table) // TABLE_WORD_BYTES for table in state.tables]
        segment = plan.members.get(layer.index)
        if segment is None:
            start = layer_start(graph, layer.index, waits[layer.index])
            state.program += descriptors.conv_or_pool(graph, layer, placements, bases, config, start)
        elif layer.index == segment.nodes[0]:
            state.program += strips.segment(segment, bases)
        sets = [strips.tiles(layer, group) for group in layer.mapping.groups] if layer.mapping else []
        _fill_memories(layer, sets, config, state)
        if layer.node.output in stored:
            _store(graph, layer.node.output, layer.index, placements, stored, config, state)
    state.program += descriptors.end(config)
    residences = [layer.residence for layer in layers if layer.mapping is not None]
    if config.streaming:
        chained = chain_streams(state.streams, residences, config, options.pad)
    else:
        chained = ChainedStreams(
            [plain_stream((layer.header, layer.loop) for layer in stream) for stream in state.streams]
        )
    program = _program(state, chained, config, options.pad)
    _check_program(state, config)
    prediction = estimate_program(program, config)
    resident = max(map(len, chained.resident)) // STREAM_WORD_BYTES
    metadata = _metadata(graph, layers, placements, stored, config, options, state, prediction, resident)
    metadata = dataclasses.replace(
        metadata,
        scratch_bytes=strips.scratch_bytes,
        streamed_bytes=sum(map(len, chained.batches)),
    )
    return ProgramImage(config.hash, program, metadata)


def _program(state: _Emission, chained: ChainedStreams, config: HardwareConfig, whole_bursts: bool) -> bytes:
    """All sections of the LOAD, then the batches; the STREAM descriptor goes behind the first LOAD."""
    tables = [bytes(table) for table in state.tables]
    batches = chained.batches
    if batches:
        at = descriptor_words(config) * BEAT_BYTES
        state.program[at:at] = descriptors.stream(0, 0, config)
        start = len(build_program(bytes(state.program), chained.resident, tables, config, whole_bursts))
        start += -start % (config.burst_beats * BEAT_BYTES)
        place = descriptors.stream(start, len(batches[0]) // BEAT_BYTES, config)
        state.program[at : at + len(place)] = place
    sections = build_program(bytes(state.program), chained.resident, tables, config, whole_bursts)
    return padded(sections, config, True) + b"".join(batches) if batches else sections


def _stored(
    graph: IntegerGraph, config: HardwareConfig, options: CompileOptions
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
        tiles_y, tiles_x = tile_grid(tensor, config.tile_size)
        offset += tiles_y * tiles_x * tensor.channels * beats * config.axi_bytes
    return result


def _load(
    graph: IntegerGraph, placements: dict[str, Placement], config: HardwareConfig, state: _Emission
) -> None:
    place, channels = placements[graph.input], graph.tensors[graph.input].channels
    transfer = descriptors.Transfer(place, channels, range(place.tiles_y), 0, config.word_beats)
    state.program += transfer.encode(Opcode.LOAD, config, "input")


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
    transfer = descriptors.Transfer(place, channels, range(place.tiles_y), offset, beats, number=layer)
    state.program += transfer.encode(Opcode.STORE, config, "output")


def _fill_memories(layer: Layer, tiles: list[list[int]], config: HardwareConfig, state: _Emission) -> None:
    """Streams and tables of a layer; tiles: of every group in every strip."""
    operators = nulls = 0
    mapping = layer.mapping
    if mapping is not None:
        assert layer.pes is not None, "placed convolutions only"
        loops = {id(plan): build_streams(plan, mapping.block_words) for plan in mapping.plans}
        for branch in range(config.branches):
            role = mapping.role(branch)
            for pe in range(config.branch_pes(branch)):
                memory = state.streams[config.first_pe(branch) + pe]
                own_tiles = [] if role is None else tiles[mapping.groups.index(role[0])]
                count = sum(own_tiles)
                if role is None or not count:  # few tiles a strip may leave a group nothing
                    memory.append(RESTS)
                    continue
                group, member = role
                own = int(layer.pes[branch, pe])
                stream = loops[id(group.plan)][member][own]
                wide = mapping.block_words == WIDE_BLOCK
                memory.append(layer_stream(stream.words, group.plan, (member, own), own_tiles, wide))
                operators += count * stream.operators
                nulls += count * stream.nulls
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
    resident_words: int,
) -> ImageMetadata:
    memory = [
        MemoryUse("feature", peak_words(placements), config.feature_depth_words),
        MemoryUse("stream", resident_words, config.stream_depth_words),
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
        tensors={
            name: _tensor_info(graph, name, _written_at(name, placements), stored, config)
            for name in graph.tensors
        },
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
    place: Placement,
    stored: dict[str, tuple[int, int]],
    config: HardwareConfig,
) -> TensorInfo:
    tensor = graph.tensors[name]
    offset, beats = (0, config.word_beats) if name == graph.input else stored.get(name, (-1, 0))
    return TensorInfo(
        name, tensor.channels, tensor.height, tensor.width, float(tensor.scale), int(tensor.zero_point),
        place.base, place.pitch, place.tiles_y, place.tiles_x, place.pad, offset, beats * config.axi_bytes,
        place.ring,
    )  # fmt: skip


def _written_at(name: str, placements: dict[str, Placement]) -> Placement:
    """Place of a tensor when it is written: in the first of its segments, if it is not always there."""
    segments = [(int(key.split("@")[-1]), key) for key in placements if key.rpartition("@")[0] == name]
    return placements[name] if name in placements else placements[min(segments)[1]]


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
