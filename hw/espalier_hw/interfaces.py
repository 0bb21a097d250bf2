"""Layouts that several blocks share: layer parameters, tile addresses, windows, events.

Ready/valid streams are `amaranth.lib.stream.Signature`; "pulse" means high for one cycle.
"""

from __future__ import annotations

from amaranth.hdl import signed, unsigned
from amaranth.lib import data, stream, wiring
from amaranth.lib.wiring import In, Out

from espalier.arch.config import HardwareConfig
from espalier.arch.fields import Field
from espalier.arch.operators import PACKED_FIELD_BITS, STREAM_WORD_BITS
from espalier.arch.program import (
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

# Where a tile lies: geometry of its tensor, tile coordinates (may lie outside the map), channel.
TILE_ADDRESS = data.StructLayout(
    {
        "base": unsigned(13),
        "pitch": unsigned(7),
        "channels": unsigned(13),
        "tile_y": signed(10),
        "tile_x": signed(10),
        "channel": unsigned(13),
    }
)

# A request for a window around a centre tile; tiles outside tiles_y x tiles_x read as `pad`.
WINDOW_REQUEST = data.StructLayout(
    {
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


def tile_write_layout(config: HardwareConfig) -> data.StructLayout:
    """Layout of a tile word on its way into the feature memory."""
    return data.StructLayout({"address": TILE_ADDRESS, "data": unsigned(tile_bits(config))})


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


def branch_signature(config: HardwareConfig) -> dict[str, wiring.Member]:
    """Ports of a branch.

    start: pulse; `layer`, `branch` and the patterns are valid from then until `done`. PEs read their next
    header with every CONV, whether the branch has tiles or rests.
    restart: pulse at the start of an inference, no layer running: stream pointers go to zero.
    done: level, high while no layer runs and all its words have been accepted by `write`.
    window, residual: requests; responses come back in order, later, and are never refused, so a
    branch asks only for what it has room for.
    rows_ready: tile rows of the running LOAD that have arrived (255: no LOAD running).
    """
    return {
        "start": In(1),
        "restart": In(1),
        "layer": In(LAYER),
        "branch": In(BRANCH_LAYER),
        "pattern_write": In(memory_write(6, PATTERN.size)),
        "stream_write": In(memory_write(14, STREAM_WORD_BITS)),
        "stream_write_pe": In(5),
        "table_write": In(memory_write(14, TABLE_WORD_BITS)),
        "rows_ready": In(8),
        "done": Out(1),
        "window_request": Out(stream.Signature(WINDOW_REQUEST)),
        "window_valid": In(1),
        "window_data": In(window_bits(config)),
        "residual_request": Out(stream.Signature(TILE_ADDRESS)),
        "residual_valid": In(1),
        "residual_data": In(tile_bits(config)),
        "write": Out(stream.Signature(tile_write_layout(config))),
        "events": Out(EVENTS),
    }


PAIR_BITS = 2 * PACKED_FIELD_BITS  # the sums of a lane pair, see `lanes.unpack_pair_value`


def drain_bits(config: HardwareConfig) -> int:
    """Bits of one drained accumulator word."""
    return config.pairs * PAIR_BITS


def pe_signature(config: HardwareConfig) -> dict[str, wiring.Member]:
    """Ports of a PE.

    restart: pulse, stream pointer to zero. start: pulse; begin the next layer of the stream; `sets`
    (tiles * passes, 0: read the header and rest), `blocks` and `passes` are valid from then on.
    ring_write/commit: a window word for the ring; `commit` comes with the last word of a block.
    release: pulse, the oldest block has been read for the last time.
    set_done: pulse, all accumulators of the oldest unfinished set hold their final sums.
    drain_request: pulse, read the oldest undrained accumulator (of a finished set) and free it; not again
    before drain_valid, which comes one cycle later at the earliest, with `drain_data`; at all other times
    `drain_data` is zero, so that a branch can OR its PEs together.
    """
    ring_bits = (config.ring_words - 1).bit_length()
    return {
        "restart": In(1),
        "start": In(1),
        "sets": In(19),
        "blocks": In(13),
        "passes": In(6),
        "block_words": In(5),
        "stream_write": In(memory_write(14, STREAM_WORD_BITS)),
        "ring_write": In(memory_write(ring_bits, word_bits(config))),
        "commit": In(1),
        "release": Out(1),
        "set_done": Out(1),
        "drain_request": In(1),
        "drain_valid": Out(1),
        "drain_data": Out(drain_bits(config)),
        "operator_issued": Out(1),
        "null_issued": Out(1),
        "ring_empty": Out(1),
        "accumulators_full": Out(1),
    }
