"""Layouts that several blocks share: layer parameters, tile addresses, windows, events.

Ready/valid streams are `amaranth.lib.stream.Signature`; "pulse" means high for one cycle.
"""

from __future__ import annotations

from amaranth.hdl import signed, unsigned
from amaranth.lib import data, stream, wiring
from amaranth.lib.wiring import In, Out

from espalier.arch.config import HardwareConfig
from espalier.arch.fields import Field
from espalier.arch.operators import STREAM_WORD_BITS
from espalier.arch.program import (
    BATCH_COUNT_BITS,
    BRANCH_FIELDS,
    COMMON_FIELDS,
    PATTERN_FIELDS,
    TABLE_FIELDS,
    TABLE_WORD_BITS,
)


def struct(fields: tuple[Field, ...]) -> data.StructLayout:
    """Amaranth layout of a field list, same bit order as `espalier.arch.fields.pack`."""
    return data.StructLayout({f.name: signed(f.bits) if f.signed else unsigned(f.bits) for f in fields})


LAYER = struct(COMMON_FIELDS)
BRANCH_LAYER = struct(BRANCH_FIELDS)
PATTERN = struct(PATTERN_FIELDS)
TABLE_ENTRY = struct(TABLE_FIELDS)

# Where a tile lies: geometry of its tensor (ring: see `program.ring_words`), tile coordinates (may lie
# outside the map), channel.
TILE_ADDRESS = data.StructLayout(
    {
        "base": unsigned(13),
        "pitch": unsigned(7),
        "ring": unsigned(3),
        "channels": unsigned(13),
        "tile_y": signed(10),
        "tile_x": signed(10),
        "channel": unsigned(13),
    }
)

# A request for a window around a centre tile; tiles outside tiles_y x tiles_x read as `pad`. A window is read
# once for all in `group_mask` (one bit a branch, then the pool unit), when all of them ask with that mask.
WINDOW_REQUEST = data.StructLayout(
    {
        "group_mask": unsigned(9),
        "centre": TILE_ADDRESS,
        "tiles_y": unsigned(8),
        "tiles_x": unsigned(8),
        "pad": unsigned(8),
        "row_offset": signed(4),
        "stride": unsigned(2),
    }
)

# Events of one cycle, summed over the PEs of a branch where they belong to PEs (see registers.COUNTERS).
EVENTS = data.StructLayout(
    {
        "operators": unsigned(6),
        "null_operators": unsigned(6),
        "ring_empty": unsigned(6),
        "accumulators_full": unsigned(6),
        "ring_full": unsigned(1),
        "window_wait": unsigned(1),
        "output_wait": unsigned(1),
    }
)


def tile_bits(config: HardwareConfig) -> int:
    """Bits of a tile word."""
    return config.lanes_per_pe * 8


def word_bits(config: HardwareConfig) -> int:
    """Bits of a window word: byte row * T + column."""
    return config.word_rows * config.tile_size * 8


def window_bits(config: HardwareConfig) -> int:
    """Bits of a window: byte row * window_columns + column."""
    return config.word_rows * config.window_columns * 8


# What a tile word says of the layer that writes it. `final_tile`: it belongs to the last tile of its writer;
# `last`: it is the writer's last word of the layer.
WRITE_MARKS = data.StructLayout(
    {"layer": unsigned(8), "ordered": unsigned(1), "final_tile": unsigned(1), "last": unsigned(1)}
)

NO_LAYER = 255  # of the words of a LOAD

# A tile word that has just been written into the feature memory.
WRITTEN = data.StructLayout({"tile_y": 8, "tile_x": 8, "channel": 13, "marks": WRITE_MARKS})

# How far a writer (a branch, the pool unit, or LOAD) has come with `layer`. `written`: at least one word is
# in the memory, the latest being that of tile_y, tile_x and channel; `complete`: all of them are.
PROGRESS = data.StructLayout(
    {
        "layer": unsigned(8),
        "complete": unsigned(1),
        "written": unsigned(1),
        "ordered": unsigned(1),
        "final_tile": unsigned(1),
        "tile_y": unsigned(8),
        "tile_x": unsigned(8),
        "channel": unsigned(13),
    }
)


def writers(config: HardwareConfig) -> int:
    """Writers of the feature memory: the branches, then the pool unit, then LOAD."""
    return config.branches + 2


def tile_write_layout(config: HardwareConfig) -> data.StructLayout:
    """Layout of a tile word on its way into the feature memory."""
    return data.StructLayout(
        {"address": TILE_ADDRESS, "marks": WRITE_MARKS, "data": unsigned(tile_bits(config))}
    )


def write_trace(config: HardwareConfig) -> data.StructLayout:
    """Layout of what a simulator sees of a write into the feature memory."""
    return data.StructLayout(
        {"valid": 1, "layer": 8, "bank": 4, "address": 13, "data": unsigned(tile_bits(config))}
    )


BURST_COUNT_BITS = 28  # beats of one DMA command


def dma_command(config: HardwareConfig) -> data.StructLayout:
    """One DMA command: byte address (a multiple of the beat size) and beats (at least one)."""
    return data.StructLayout({"address": config.axi_address_bits, "beats": BURST_COUNT_BITS})


def dma_beat(config: HardwareConfig) -> data.StructLayout:
    """One DMA beat; `last` marks the last beat of its command."""
    return data.StructLayout({"data": config.axi_data_bits, "last": 1})


def memory_write(address_bits: int, data_bits: int) -> wiring.Signature:
    """Write port of a memory that is filled at load time; never stalls."""
    return wiring.Signature(
        {"enable": Out(1), "address": Out(address_bits), "data": Out(data_bits)},
    )


PATTERN_ADDRESS_BITS = 7  # two banks of MAX_PATTERNS: patterns of a layer are written while another runs


def stage_ports() -> dict[str, wiring.Member]:
    """Ports of everything that takes layers from the sequencer.

    offer: pulse; `layer`, `branch` and `bank` (of the pattern memories) are valid from then until nobody has
    `pending` set any more. pending: level, from the cycle after `offer` until the layer is taken; a
    layer of another kind is never pending. restart: pulse at the start of an inference, nothing is at work.
    idle: level, nothing is pending or at work.
    """
    return {
        "offer": In(1),
        "layer": In(LAYER),
        "branch": In(BRANCH_LAYER),
        "bank": In(1),
        "pattern_write": In(memory_write(PATTERN_ADDRESS_BITS, PATTERN.size)),
        "restart": In(1),
        "pending": Out(1),
        "idle": Out(1),
    }


def batch_ports(config: HardwareConfig) -> dict[str, wiring.Member]:
    """Ports by which PEs and loader count batches of streams, modulo 1 << BATCH_COUNT_BITS.

    loaded: since the restart. required: batches that the loader wants to be left, space: all PEs have left
    them; a few cycles later. None without `streaming`.
    """
    if not config.streaming:
        return {}
    return {"loaded": In(BATCH_COUNT_BITS), "required": In(BATCH_COUNT_BITS), "space": Out(1)}


def branch_signature(config: HardwareConfig, pes: int) -> dict[str, wiring.Member]:
    """Ports of a branch of `pes` PEs, beside `stage_ports`.

    windows_past: level, the window walker has asked for all windows of the layers before the offered one.
    outputs_wait: level, the output stage has written all layers before the offered one, which is pending
    there. outputs_take: pulse, only while `outputs_wait` is high: it takes the offered layer.
    window, residual: requests; responses come back in order, later, and are never refused, so a
    branch asks only for what it has room for. progress: of all writers. See `batch_ports` for the others.
    """
    return {
        **stage_ports(),
        **batch_ports(config),
        "windows_past": Out(1),
        "outputs_wait": Out(1),
        "outputs_take": In(1),
        "progress": In(PROGRESS).array(writers(config)),
        "stream_write": In(memory_write(14, STREAM_WORD_BITS)),
        "stream_write_pe": In(5),
        "table_write": In(memory_write(14, TABLE_WORD_BITS)),
        "window_request": Out(stream.Signature(WINDOW_REQUEST)),
        "window_valid": In(1),
        "window_data": In(window_bits(config)),
        "residual_request": Out(stream.Signature(TILE_ADDRESS)),
        "residual_valid": In(1),
        "residual_data": In(tile_bits(config)),
        "write": Out(stream.Signature(tile_write_layout(config))),
        "events": Out(EVENTS),
    }


def pool_signature(config: HardwareConfig) -> dict[str, wiring.Member]:
    """Ports of the pool unit, beside `stage_ports`; see `branch_signature`.

    taken: pulse, it takes the offered layer.
    """
    return {
        **stage_ports(),
        "taken": Out(1),
        "progress": In(PROGRESS).array(writers(config)),
        "window_request": Out(stream.Signature(WINDOW_REQUEST)),
        "window_valid": In(1),
        "window_data": In(window_bits(config)),
        "write": Out(stream.Signature(tile_write_layout(config))),
    }


def drain_bits(config: HardwareConfig) -> int:
    """Bits of one drained accumulator word."""
    return config.pairs * config.pair_bits


def pe_signature(config: HardwareConfig) -> dict[str, wiring.Member]:
    """Ports of a PE.

    restart: pulse, read the stream from its beginning: header, loop, next header, until a header says `end`.
    ring_write/commit: a window word for the ring; `commit` comes with the last word of a block.
    release: pulse, the oldest block has been read for the last time; release_wide: it had 16 words, not 8.
    set_done: pulse, all accumulators of the oldest unfinished set hold their final sums.
    drain_request: pulse, read the oldest undrained accumulator (of a finished set) and free it; not again
    before drain_valid, which comes one cycle later at the earliest, with `drain_data`; at all other times
    `drain_data` is zero, so that a branch can OR its PEs together. See `batch_ports` for the others.
    """
    ring_bits = (config.ring_words - 1).bit_length()
    return {
        **batch_ports(config),
        "restart": In(1),
        "stream_write": In(memory_write(14, STREAM_WORD_BITS)),
        "ring_write": In(memory_write(ring_bits, word_bits(config))),
        "commit": In(1),
        "release": Out(1),
        "release_wide": Out(1),
        "set_done": Out(1),
        "drain_request": In(1),
        "drain_valid": Out(1),
        "drain_data": Out(drain_bits(config)),
        "operator_issued": Out(1),
        "null_issued": Out(1),
        "ring_empty": Out(1),
        "accumulators_full": Out(1),
    }
