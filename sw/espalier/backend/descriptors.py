"""Layer descriptors: program words of LOAD, CONV, POOL, STORE and END."""

from __future__ import annotations

from dataclasses import dataclass, replace

from espalier.arch.config import HardwareConfig
from espalier.arch.fields import Field, pack
from espalier.arch.program import (
    PATTERN_BITS,
    PATTERN_FIELDS,
    PATTERNS_PER_WORD,
    POOL_BRANCH,
    PROGRAM_WORD_BITS,
    Opcode,
    descriptor_words,
    layer_fields,
    ring_code,
)
from espalier.backend.geometry import Pattern
from espalier.backend.hazards import Start
from espalier.backend.lower import outside_sum
from espalier.backend.plan import Layer, Placement
from espalier.errors import CapacityError
from espalier.ir.graph import Conv, IntegerGraph, Pool
from espalier.passes.lower_padding import reader_pad

PROGRAM_WORD_BYTES = PROGRAM_WORD_BITS // 8


def conv_or_pool(
    graph: IntegerGraph,
    layer: Layer,
    placements: dict[str, Placement],
    table_bases: list[int],
    config: HardwareConfig,
    start: Start,
    rows: range | None = None,
) -> bytes:
    """Descriptor and patterns of a layer; table_bases: first table entry in every branch.

    rows: tile rows of a strip; None: all of them.
    """
    node = layer.node
    target, place = graph.tensors[node.output], placements[node.output]
    rows = range(place.tiles_y) if rows is None else rows
    values = {
        "layer": layer.index,
        **{name: int(value) for name, value in vars(start).items()},
        "stride": layer.geometry.stride,
        "pattern_count": len(layer.geometry.patterns),
        "out_zero": target.zero_point,
        **tensor_fields("in", placements[node.input], graph.tensors[node.input].channels),
        "in_pad": reader_pad(graph, node),  # not the tensor's own: max-pooling may see 0 where it holds more
        **tensor_fields("out", place, target.channels),
        "out_rows_last": target.height - (place.tiles_y - 1) * config.tile_size,
        "out_columns_last": target.width - (place.tiles_x - 1) * config.tile_size,
    }
    if isinstance(node, Conv):
        values |= _conv_fields(graph, layer, node, placements, table_bases, rows)
    else:
        values |= _pool_fields(graph, node, placements, config, rows)
    return encode(values, layer.geometry.patterns, config, f"layer {node.name}")


@dataclass(frozen=True)
class Transfer:
    """What a LOAD or STORE moves.

    rows: tile rows. offset: of the tensor in DDR, in bytes; beats: of every tile word. scratch: it lies in
    the scratch buffer. number: of a LOAD, see `follows_layer`; of a STORE, the layer. barrier, wait_store:
    what it waits for.
    """

    placement: Placement
    channels: int
    rows: range
    offset: int
    beats: int
    scratch: bool = False
    number: int = 0
    barrier: bool = True
    wait_store: bool = False

    def encode(self, opcode: Opcode, config: HardwareConfig, where: str) -> bytes:
        """Encode the descriptor; geometry of the tensor as input and as output."""
        place, row = self.placement, self.placement.tiles_x * self.channels
        upper = replace(place, tiles_y=self.rows.stop)
        values = {
            "opcode": opcode,
            "layer": self.number,
            "barrier": int(self.barrier),
            "wait_store": int(self.wait_store),
            "scratch": int(self.scratch),
            "dram_offset": self.offset + self.rows.start * row * self.beats * config.axi_bytes,
            "store_beats": self.beats,
            "dram_words": len(self.rows) * row,
            f"b{POOL_BRANCH}_tile_y0": self.rows.start,
            **tensor_fields("in", upper, self.channels),
            **tensor_fields("out", upper, self.channels),
        }
        return encode(values, (), config, where)


def stream(offset: int, beats: int, config: HardwareConfig) -> bytes:
    """Descriptor that starts streaming; the first batch lies at byte `offset` of the program image."""
    values = {"opcode": Opcode.STREAM, "dram_offset": offset, "dram_words": beats}
    return encode(values, (), config, "streams")


def end(config: HardwareConfig) -> bytes:
    """Descriptor that ends the program."""
    return encode({"opcode": Opcode.END}, (), config, "end")


def tile_count(placement: Placement) -> int:
    """Tiles of one channel."""
    return placement.tiles_y * placement.tiles_x


def tensor_fields(prefix: str, placement: Placement, channels: int) -> dict[str, int]:
    """Geometry of a tensor as descriptor fields `in_*` or `out_*`."""
    return {
        f"{prefix}_base": placement.base,
        f"{prefix}_tiles_y": placement.tiles_y,
        f"{prefix}_tiles_x": placement.tiles_x,
        f"{prefix}_channels": channels,
        f"{prefix}_pitch": placement.pitch,
        f"{prefix}_ring": ring_code(placement.ring),
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
    graph: IntegerGraph,
    layer: Layer,
    node: Conv,
    placements: dict[str, Placement],
    table_bases: list[int],
    rows: range,
) -> dict[str, int]:
    mapping = layer.mapping
    assert mapping is not None, "mapped layers only"
    values: dict[str, int] = {
        "opcode": Opcode.CONV,
        "passes": mapping.passes,
        "blocks": len(mapping.words),
        "block_words": mapping.block_words,
        "ordered": int(mapping.passes == 1),  # filters of a pass are in order, passes are not
    }
    if node.residual is not None:
        values |= {
            "residual": 1,
            "residual_base": placements[node.residual.tensor].base,
            "residual_pitch": placements[node.residual.tensor].pitch,
            "residual_ring": ring_code(placements[node.residual.tensor].ring),
            "residual_zero": graph.tensors[node.residual.tensor].zero_point,
            "residual_multiplier": node.residual.multiplier,
            "residual_shift": node.residual.shift,
        }
    tiles_x = placements[node.output].tiles_x
    for group in mapping.groups:
        tiles = group.tiles_of(len(rows) * tiles_x)
        if not tiles:
            continue  # its branches rest
        for member, branch in enumerate(group.branches):
            fields = {
                **_walk(rows.start * tiles_x + group.first, tiles, group.run, group.period, tiles_x),
                "channels": graph.tensors[node.input].channels,
                "table_base": table_bases[branch],
                "table_entries": int(group.plan.table_entries[member]),
                "group_mask": sum(1 << other for other in group.branches),
            }
            values |= {f"b{branch}_{name}": value for name, value in fields.items()}
    return values


def _pool_fields(
    graph: IntegerGraph, node: Pool, placements: dict[str, Placement], config: HardwareConfig, rows: range
) -> dict[str, int]:
    values: dict[str, int] = {"opcode": Opcode.POOL, "passes": 1, "block_words": 8, "ordered": 1}
    if node.kind == "global":
        source = graph.tensors[node.input]
        outside = outside_sum(node, source, placements[node.input].pad, config.tile_size)
        values |= {
            "reduce": 1,
            "pool_multiplier": int(node.requantisation.multiplier[0]),
            "pool_shift": int(node.requantisation.shift[0]),
            "pool_bias": int(node.requantisation.bias[0]) - outside,
        }
    place = placements[node.output]
    fields = {
        **_walk(rows.start * place.tiles_x, len(rows) * place.tiles_x, 1, 1, place.tiles_x),
        "channels": graph.tensors[node.output].channels,
        "group_mask": 1 << config.branches,
    }
    return values | {f"b{POOL_BRANCH}_{name}": value for name, value in fields.items()}


def _walk(first: int, tiles: int, run: int, period: int, tiles_x: int) -> dict[str, int]:
    """Fields of a walk over `run` tiles of every `period` in raster order, from tile `first` on."""
    jump = period - run + 1
    return {
        "tile_y0": first // tiles_x,
        "tile_x0": first % tiles_x,
        "tiles": tiles,
        "run": run,
        "jump_y": jump // tiles_x,
        "jump_x": jump % tiles_x,
    }


def _check_ranges(fields: tuple[Field, ...], values: dict[str, int], where: str) -> None:
    for field in fields:
        value = int(values.get(field.name, 0))
        if not field.low <= value <= field.high:
            raise CapacityError(
                f"{where}: {field.name} = {value} ({field.doc}), the hardware has {field.low}..{field.high};"
                " use a smaller network"
            )
