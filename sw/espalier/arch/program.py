"""Program format: layer descriptors, window patterns, requantisation table entries, DDR sections.

The sequencer reads 128-bit program words. A descriptor is the fields of `layer_fields(config)` packed
least significant bit first into `descriptor_words(config)` words, followed by
`ceil(pattern_count / 4)` words of window patterns (32 bits each).
"""

from __future__ import annotations

from enum import IntEnum

from espalier.arch.config import HardwareConfig
from espalier.arch.fields import Field, total_bits

PROGRAM_WORD_BITS = 128
PATTERN_BITS = 32
PATTERNS_PER_WORD = PROGRAM_WORD_BITS // PATTERN_BITS
MAX_PATTERNS = 64
TABLE_WORD_BITS = 72


class Opcode(IntEnum):
    """Kinds of descriptor."""

    END = 0
    LOAD = 1
    CONV = 2
    POOL = 3
    STORE = 4
    STREAM = 5  # with `streaming` only


class Follows(IntEnum):
    """Writers of a layer's input that may still be at work when the layer starts."""

    NOTHING = 0
    BRANCHES = 1
    POOL = 2
    LOAD = 3


class SectionKind(IntEnum):
    """Destinations of a DDR section of the program image."""

    PROGRAM = 0
    STREAM = 1
    TABLE = 2
    END = 15


# Right shifts after the multiplier, chosen by two bits: a 4:1 multiplexer a bit in the output stage.
# The result has FRACTION_BITS fraction bits, removed with rounding after the residual is added.
MULTIPLIER_BITS = 17
MULTIPLIER_SHIFTS = (5, 11, 17, 23)
RESIDUAL_MULTIPLIER_BITS = 16
RESIDUAL_SHIFTS = (4, 8, 12, 16)
FRACTION_BITS = 8
FIXED_POINT_BITS = 20  # both addends saturate to this many signed bits
ACCUMULATOR_BITS = 27  # of parts and bias together: the wide port of a DSP48E2

COMMON_FIELDS = (
    Field("opcode", 4, "Opcode"),
    Field(
        "layer",
        8,
        "index of the layer, for status and counters; LOAD: any number, not that of the LOAD before",
    ),
    Field("barrier", 1, "starts when everything before has ended"),
    Field("more", 1, "CONV, POOL: a strip of the layer, not the last one; its end is not counted"),
    Field("wait_store", 1, "LOAD, CONV, POOL: starts when the STORE before has ended"),
    Field("during_load", 1, "may start while a LOAD is running: it neither reads nor overwrites its tensor"),
    Field("follows", 2, "Follows: whose words the windows wait for"),
    Field(
        "follows_layer", 8, "index of the layer that writes the input; for a LOAD the number in its `layer`"
    ),
    Field("wait_pool", 1, "CONV: words are written only when the pool unit has ended its layers"),
    Field("ordered", 1, "every branch writes the channels of a tile in ascending order"),
    Field("residual", 1, "add the residual tensor"),
    Field("reduce", 1, "POOL: global average; otherwise maximum"),
    Field("stride", 2, "1 or 2"),
    Field("pattern_count", 7, "window patterns per channel"),
    Field("passes", 6, "filter groups that run over the same windows one after the other"),
    Field("blocks", 13, "blocks of window words per pass"),
    Field("block_words", 5, "window words of a block: 8 or 16"),
    Field("in_base", 13, "input tensor: first word in every bank"),
    Field("in_tiles_y", 8, "input tensor: tile rows"),
    Field("in_tiles_x", 8, "input tensor: tile columns"),
    Field("in_channels", 13, "input tensor: channels"),
    Field("in_pitch", 7, "input tensor: at least ceil(tile columns / 3)"),
    Field("in_ring", 3, "input tensor: its ring, see ring_words"),
    Field("in_pad", 8, "value of pixels outside the map"),
    Field("out_base", 13, "output tensor: first word in every bank"),
    Field("out_tiles_y", 8, "output tensor: tile rows"),
    Field("out_tiles_x", 8, "output tensor: tile columns"),
    Field("out_channels", 13, "output tensor: channels"),
    Field("out_pitch", 7, "output tensor: at least ceil(tile columns / 3)"),
    Field("out_ring", 3, "output tensor: its ring, see ring_words"),
    Field("out_pad", 8, "written to the lanes of an edge tile that lie outside the map"),
    Field("out_zero", 8, "zero point of the output"),
    Field("out_rows_last", 4, "valid rows of the last tile row"),
    Field("out_columns_last", 4, "valid columns of the last tile column"),
    Field("residual_base", 13, "residual tensor, of the output's shape: first word in every bank"),
    Field("residual_pitch", 7, "residual tensor: words of a row of tiles / channels"),
    Field("residual_ring", 3, "residual tensor: its ring, see ring_words"),
    Field("pool_multiplier", MULTIPLIER_BITS, "POOL with reduce: scale of the sum"),
    Field("pool_shift", 2, "POOL with reduce: index into MULTIPLIER_SHIFTS"),
    Field("pool_bias", ACCUMULATOR_BITS, "POOL with reduce: added to the sum", signed=True),
    Field("residual_zero", 8, "zero point of the residual"),
    Field("residual_multiplier", RESIDUAL_MULTIPLIER_BITS, "scale of the residual"),
    Field("residual_shift", 2, "index into RESIDUAL_SHIFTS"),
    Field("scratch", 1, "LOAD, STORE: from or to the scratch buffer, not the input or output"),
    Field(
        "dram_offset",
        32,
        "byte offset to an address register: of LOAD and STORE to input, output or scratch, of STREAM to the"
        " program",
    ),
    Field("store_beats", 3, "STORE: AXI beats written per tile word"),
    Field("dram_words", 25, "LOAD, STORE: tile words of all tile rows that are moved; STREAM: beats"),
)

BRANCH_FIELDS = (
    Field("tile_y0", 8, "first tile, row"),
    Field("tile_x0", 8, "first tile, column"),
    Field("tiles", 13, "tiles of this branch; 0: the branch rests"),
    Field("run", 8, "tiles taken one after the other, at least 1"),
    Field("jump_y", 8, "from the last tile of a run to the first of the next, rows"),
    Field("jump_x", 8, "the same, columns (less than out_tiles_x)"),
    Field("channels", 13, "input channels walked"),
    Field("table_base", 14, "first entry of the requantisation table"),
    Field("table_entries", 14, "entries of all passes together"),
    Field("group_mask", 9, "branches that ask for the same windows, one bit each, own bit included"),
)

PATTERN_FIELDS = (
    Field("tile_dy", 4, "centre tile = stride * output tile + this", signed=True),
    Field("tile_dx", 4, "the same for columns", signed=True),
    Field("row_offset", 4, "first row of the window, from the first row of the centre tile", signed=True),
    Field("column_offset", 4, "first column of the word, likewise", signed=True),
    Field("taps", 4, "POOL: vertical taps of a new window that take part, one bit each; 0: a column step"),
    Field("fetch", 1, "the word comes from a new window (otherwise from the one before)"),
    Field("reserved", PATTERN_BITS - 21, "zero"),
)

TABLE_FIELDS = (
    Field("multiplier", MULTIPLIER_BITS, "scale of the accumulator"),
    Field("shift", 2, "index into MULTIPLIER_SHIFTS"),
    Field("bias", ACCUMULATOR_BITS, "added to the sum of all parts; in every entry of a filter", signed=True),
    Field("out_channel", 12, "channel of the output tensor"),
    Field("pe", 5, "PE whose next accumulator this entry drains"),
    Field("first", 1, "first part of a filter: start a new sum"),
    Field("last", 1, "last part: requantise and write; without it the sum stays or is dropped"),
    Field("high_digit", 1, "the part counts sixteenfold"),
    Field("end_of_pass", 1, "last entry of a pass"),
    Field("reserved", TABLE_WORD_BITS - 67, "zero"),
)

# A DDR section: this header (one 128-bit beat), then `words` destination words. PROGRAM words are one
# beat each; STREAM and TABLE words are nine bytes each, back to back, the end padded to a whole beat.
# An END section has no words. With `streaming` it ends a batch as well: `words` are the beats of the batch
# that lies behind this one, 0 if there is none, and `index` how many batches all PEs must have left by then.
SECTION_FIELDS = (
    Field("kind", 8, "SectionKind"),
    Field("index", 16, "STREAM: PE counted over all branches; TABLE: branch; END: batches left"),
    Field("address", 32, "first word written"),
    Field("words", 32, "words that follow; END: beats of the next batch"),
    Field("reserved", PROGRAM_WORD_BITS - 88, "zero"),
)

# Batches are counted modulo 16, and no batch is read before all but so many of those before it were left.
BATCH_COUNT_BITS = 4
MOST_BATCHES_AHEAD = (1 << BATCH_COUNT_BITS - 1) - 1

# The descriptor of a POOL layer describes the pool unit's walk in the fields of this branch, and those of
# LOAD and STORE the first tile row that is moved (`tile_y0`); the last one is the tensor's last one.
POOL_BRANCH = 0

SMALLEST_RING = 64  # words in every bank
RING_CODES = 8


def ring_words(code: int) -> int:
    """Words of a ring by its code in a descriptor; 0: the tensor is no ring.

    The words of a ring are those of an aligned block in every bank: the low bits of a tile's word
    (`espalier.arch.feature_layout`) say which one, the high bits are those of the tensor's base.
    """
    return SMALLEST_RING << (code - 1) if code else 0


def ring_code(words: int) -> int:
    """Inverse of `ring_words`."""
    return next(code for code in range(RING_CODES) if ring_words(code) == words)


def layer_fields(config: HardwareConfig) -> tuple[Field, ...]:
    """All fields of a descriptor; those of branch b carry the prefix `b<b>_`."""
    branch = tuple(
        Field(f"b{index}_{field.name}", field.bits, field.doc, field.signed)
        for index in range(config.branches)
        for field in BRANCH_FIELDS
    )
    return COMMON_FIELDS + branch


def descriptor_words(config: HardwareConfig) -> int:
    """128-bit program words of one descriptor, window patterns not counted."""
    return -(-total_bits(layer_fields(config)) // PROGRAM_WORD_BITS)
