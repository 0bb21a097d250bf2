"""Layer descriptors: program words of LOAD, CONV, POOL, STORE and END."""

from __future__ import annotations

import numpy as np

from espalier.arch.config import HardwareConfig
from espalier.arch.fields import Field, pack
from espalier.arch.program import (
    PATTERN_BITS,
    PATTERN_FIELDS,
    PATTERNS_PER_WORD,
    PROGRAM_WORD_BITS,
    Opcode,
    descriptor_words,
    layer_fields,
)
from espalier.backend.geometry import Pattern
from espalier.backend.plan import Layer, Placement
from espalier.errors import CapacityError
from espalier.ir.graph import Conv, IntegerGraph
from espalier.passes.lower_padding import reader_pad

PROGRAM_WORD_BYTES = PROGRAM_WORD_BITS // 8


def conv_or_pool(
    graph: IntegerGraph,
    layer: Layer,
    placements: dict[str, Placement],
    table_bases: list[int],
    config: HardwareConfig,
    wait_load: bool,
) -> bytes:
    """Descriptor and patterns of a layer; table_bases: first table entry in every branch."""
    node = layer.node
    target = graph.tensors[node.output]
    values = {
        "layer": layer.index,
        "wait_load": int(wait_load),
        "stride": layer.geometry.stride,
        "pattern_count": len(layer.geometry.patterns),
        "out_zero": target.zero_point,
        **tensor_fields("in", placements[node.input], graph.tensors[node.input].channels),
        "in_pad": reader_pad(graph, node),  # not the tensor's own: max-pooling may see 0 where it holds more
        **tensor_fields("out", placements[node.output], target.channels),
        "out_rows_last": target.height - (placements[node.output].tiles_y - 1) * config.tile_size,
        "out_columns_last": target.width - (placements[node.output].tiles_x - 1) * config.tile_size,
    }
    if isinstance(node, Conv):
        values |= _conv_fields(graph, layer, node, placements)
        groups, members = _mapping_split(layer)
    else:
        values |= {
            "opcode": Opcode.POOL,
            "average": int(node.kind != "max"),
            "reduce": int(node.kind == "global"),
        }
        values |= {"passes": 1, "block_words": 8}
        groups, members = layer.pool_split
    tiles_x, tiles = placements[node.output].tiles_x, tile_count(placements[node.output])
    values |= {"step_y": groups // tiles_x, "step_x": groups % tiles_x}
    for branch in range(groups * members):
        values |= _branch_fields(layer, branch, groups, members, tiles, tiles_x, target.channels)
        values[f"b{branch}_table_base"] = table_bases[branch]
    return encode(values, layer.geometry.patterns, config, f"layer {node.name}")


def load(placement: Placement, channels: int, config: HardwareConfig) -> bytes:
    """Descriptor that reads the input tensor from DDR; geometry of the tensor as input and as output."""
    values = {"opcode": Opcode.LOAD, "dram_words": tile_count(placement) * channels}
    return encode({**values, **_both(placement, channels)}, (), config, "input")


def store(
    placement: Placement, channels: int, layer: int, offset: int, beats: int, config: HardwareConfig
) -> bytes:
    """Descriptor that writes a tensor to DDR; `offset` in bytes, `beats` of every tile word."""
    values = {"opcode": Opcode.STORE, "layer": layer, "dram_offset": offset, "store_beats": beats}
    values["dram_words"] = tile_count(placement) * channels
    return encode({**values, **_both(placement, channels)}, (), config, "output")


def end(config: HardwareConfig) -> bytes:
    """Descriptor that ends the program."""
    return encode({"opcode": Opcode.END}, (), config, "end")


def tile_count(placement: Placement) -> int:
    """Tiles of one channel."""
    return placement.tiles_y * placement.tiles_x


def branch_tiles(tiles: int, groups: int, group: int) -> int:
    """Tiles that one of several tile groups takes."""
    return len(range(group, tiles, groups))


def channel_share(channels: int, members: int, member: int) -> tuple[int, int]:
    """First channel and number of channels of one member of a pooling group."""
    share = np.array_split(np.arange(channels), members)[member]
    return int(share[0]), len(share)


def tensor_fields(prefix: str, placement: Placement, channels: int) -> dict[str, int]:
    """Geometry of a tensor as descriptor fields `in_*` or `out_*`."""
    return {
        f"{prefix}_base": placement.base,
        f"{prefix}_tiles_y": placement.tiles_y,
        f"{prefix}_tiles_x": placement.tiles_x,
        f"{prefix}_channels": channels,
        f"{prefix}_pitch": placement.pitch,
        f"{prefix}_pad": placement.pad,
    }


def encode(
    values: dict[str, int], patterns: tuple[Pattern, ...], config: HardwareConfig, where: str
) -> bytes:
    """Pack a descriptor and its patterns into program words.

    Raises:
        CapacityError: a dimension of the layer does not fit its field.

    """
    fields = layer_fields(config)
    _check_ranges(fields, values, where)
    words = [pack(fields, values).to_bytes(descriptor_words(config) * PROGRAM_WORD_BYTES, "little")]
    for start in range(0, len(patterns), PATTERNS_PER_WORD):
        bits = 0
        for position, pattern in enumerate(patterns[start : start + PATTERNS_PER_WORD]):
            fields_of = {name: int(value) for name, value in vars(pattern).items()}
            bits |= pack(PATTERN_FIELDS, fields_of) << position * PATTERN_BITS
        words.append(bits.to_bytes(PROGRAM_WORD_BYTES, "little"))
    return b"".join(words)


def _conv_fields(
    graph: IntegerGraph, layer: Layer, node: Conv, placements: dict[str, Placement]
) -> dict[str, int]:
    assert layer.mapping is not None, "mapped layers only"
    values: dict[str, int] = {
        "opcode": Opcode.CONV,
        "passes": layer.mapping.passes,
        "blocks": len(layer.mapping.words),
        "block_words": layer.mapping.block_words,
    }
    if node.residual is not None:
        values |= {
            "residual": 1,
            "residual_base": placements[node.residual.tensor].base,
            "residual_zero": graph.tensors[node.residual.tensor].zero_point,
            "residual_multiplier": node.residual.multiplier,
            "residual_shift": node.residual.shift,
        }
    return values


def _mapping_split(layer: Layer) -> tuple[int, int]:
    assert layer.mapping is not None, "mapped layers only"
    return layer.mapping.tile_groups, layer.mapping.filter_groups


def _branch_fields(
    layer: Layer, branch: int, groups: int, members: int, tiles: int, tiles_x: int, channels: int
) -> dict[str, int]:
    group, member = divmod(branch, members)
    values = {
        "tile_y0": group // tiles_x,
        "tile_x0": group % tiles_x,
        "tiles": branch_tiles(tiles, groups, group),
    }
    if layer.mapping is not None and layer.parts is not None:
        values["channels"] = layer.parts.words // len(layer.geometry.patterns)
        values["table_entries"] = int(layer.mapping.table_entries[member])
        values["group_mask"] = ((1 << members) - 1) << group * members
    else:
        values["channel0"], values["channels"] = channel_share(channels, members, member)
        values["table_entries"] = 1
        values["group_mask"] = 1 << branch
    return {f"b{branch}_{name}": value for name, value in values.items()}


def _both(placement: Placement, channels: int) -> dict[str, int]:
    return {**tensor_fields("in", placement, channels), **tensor_fields("out", placement, channels)}


def _check_ranges(fields: tuple[Field, ...], values: dict[str, int], where: str) -> None:
    for field in fields:
        value = int(values.get(field.name, 0))
        if not field.low <= value <= field.high:
            raise CapacityError(
                f"{where}: {field.name} = {value} ({field.doc}), the hardware has {field.low}..{field.high};"
                " use a smaller network"
            )
