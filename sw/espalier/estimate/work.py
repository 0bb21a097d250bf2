"""What a program makes the accelerator do: its descriptors, streams and tables as numbers of cycles."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass

import numpy as np
import numpy.typing as npt

from espalier.arch.config import HardwareConfig
from espalier.arch.fields import Field, unpack
from espalier.arch.operators import HEADER_FIELDS, OPERATOR_BITS, OPERATOR_FIELDS, OPERATORS_PER_WORD
from espalier.arch.program import (
    BRANCH_FIELDS,
    COMMON_FIELDS,
    PATTERN_BITS,
    PATTERN_FIELDS,
    PATTERNS_PER_WORD,
    PROGRAM_WORD_BITS,
    SECTION_FIELDS,
    TABLE_FIELDS,
    TABLE_WORD_BITS,
    Opcode,
    SectionKind,
    descriptor_words,
    layer_fields,
)
from espalier.errors import InternalError

IntArray = npt.NDArray[np.int64]
Bytes = npt.NDArray[np.uint8]

_BEAT = PROGRAM_WORD_BITS // 8
_TABLE_BYTES = TABLE_WORD_BITS // 8


@dataclass(frozen=True)
class BranchWork:
    """What one branch does in one convolution.

    tile_y, tile_x: int64[tiles] in order. operators: int64[passes, blocks, PEs], cycles of every block
    with its nulls; nulls: int64[PEs] of them per tile. filters: int64[PEs], accumulators of a set.
    run_starts: of every PE, a byte for every operator of the loop, 1 if it is the first of a run.
    pe, channel: int64[entries] and last: bool[entries] of the table; passes: slice of every pass in it.
    """

    fields: dict[str, int]
    tile_y: IntArray
    tile_x: IntArray
    operators: IntArray
    nulls: IntArray
    filters: IntArray
    run_starts: list[bytes]
    pe: IntArray
    channel: IntArray
    last: npt.NDArray[np.bool_]
    passes: list[slice]


@dataclass(frozen=True)
class LayerWork:
    """A descriptor; `branches`: for a CONV one each, None for those that rest."""

    opcode: Opcode
    fields: dict[str, int]
    branch_fields: list[dict[str, int]]
    patterns: list[dict[str, int]]
    branches: list[BranchWork | None]


def read_program(program: bytes, config: HardwareConfig) -> list[LayerWork]:
    """Decode the DDR sections of a program image; all descriptors up to END, which is the last one.

    Raises:
        InternalError: streams or tables do not fit their descriptors.

    """
    content, streams, tables = _sections(program, config)
    readers = [_Stream(words) for words in streams]
    layers = []
    for fields, branches, patterns in _descriptors(content, config):
        opcode = Opcode(fields["opcode"])
        work: list[BranchWork | None] = []
        if opcode == Opcode.CONV:
            for branch, values in enumerate(branches):
                first = config.first_pe(branch)
                own = readers[first : first + config.branch_pes(branch)]
                work.append(_branch_work(fields, values, own, tables[branch]))
        layers.append(LayerWork(opcode, fields, branches, patterns, work))
    return layers


def tile_walk(fields: dict[str, int], out_tiles_x: int) -> tuple[IntArray, IntArray]:
    """Rows and columns of a branch's tiles in its order: int64[tiles] each."""
    y, x, rows, columns = fields["tile_y0"], fields["tile_x0"], [], []
    for index in range(fields["tiles"]):
        rows.append(y)
        columns.append(x)
        jump = (index + 1) % fields["run"] == 0
        y, x = (y + fields["jump_y"], x + fields["jump_x"]) if jump else (y, x + 1)
        if x >= out_tiles_x:
            y, x = y + 1, x - out_tiles_x
    return np.array(rows, np.int64), np.array(columns, np.int64)


def _sections(program: bytes, config: HardwareConfig) -> tuple[bytes, list[Bytes], list[Bytes]]:
    """Content of program memory, streams uint8[words, 9] by PE and tables uint8[words, 9] by branch."""
    content = b""
    empty = np.zeros((0, _TABLE_BYTES), np.uint8)
    streams, tables = [empty] * config.pes, [empty] * config.branches
    position = 0
    while True:
        head = unpack(SECTION_FIELDS, int.from_bytes(program[position : position + _BEAT], "little"))
        position += _BEAT
        kind = SectionKind(head["kind"])
        if kind == SectionKind.END:
            return content, streams, tables
        if head["address"]:
            raise InternalError("program sections begin at word 0")
        size = head["words"] * (_BEAT if kind == SectionKind.PROGRAM else _TABLE_BYTES)
        if kind == SectionKind.PROGRAM:
            content = program[position : position + size]
        else:
            target = streams if kind == SectionKind.STREAM else tables
            data = np.frombuffer(program, np.uint8, size, position)
            target[head["index"]] = data.reshape(-1, _TABLE_BYTES)
        position += -(-size // _BEAT) * _BEAT


def _descriptors(
    content: bytes, config: HardwareConfig
) -> Iterator[tuple[dict[str, int], list[dict[str, int]], list[dict[str, int]]]]:
    fields, size = layer_fields(config), descriptor_words(config) * _BEAT
    position, step = 0, PATTERN_BITS // 8
    while True:
        values = unpack(fields, int.from_bytes(content[position : position + size], "little"))
        position += size
        count = values["pattern_count"]
        patterns = [
            unpack(PATTERN_FIELDS, int.from_bytes(content[at : at + step], "little"))
            for at in range(position, position + count * step, step)
        ]
        position += -(-count // PATTERNS_PER_WORD) * _BEAT
        common = {field.name: values[field.name] for field in COMMON_FIELDS}
        branches = [
            {field.name: values[f"b{index}_{field.name}"] for field in BRANCH_FIELDS}
            for index in range(config.branches)
        ]
        yield common, branches, patterns
        if values["opcode"] == Opcode.END:
            return


class _Stream:
    """A PE's operator memory, read layer by layer."""

    def __init__(self, words: Bytes) -> None:
        triples = words.reshape(-1, 3).astype(np.int64)  # two operators are three bytes
        pairs = triples[:, 0] | triples[:, 1] << 8 | triples[:, 2] << 16
        mask = (1 << OPERATOR_BITS) - 1
        code = np.stack([pairs & mask, pairs >> OPERATOR_BITS], axis=1).reshape(-1)
        offsets = dict(zip((f.name for f in OPERATOR_FIELDS), _offsets(OPERATOR_FIELDS), strict=True))
        self.words = words
        self.run_end = (code >> offsets["end_of_run"] & 1).astype(np.bool_)
        self.skip = code >> offsets["skip"] & 1
        self.null = (code & ((1 << OPERATOR_FIELDS[0].bits) - 1)) == 0
        self.position = 0

    def layer(self) -> tuple[dict[str, int], IntArray, int, bytes]:
        """Header, int64 lengths of all runs, null operators and run starts of the next layer's loop."""
        head = unpack(HEADER_FIELDS, int.from_bytes(self.words[self.position].tobytes(), "little"))
        start = (self.position + 1) * OPERATORS_PER_WORD
        stop = start + head["loop_words"] * OPERATORS_PER_WORD
        self.position = stop // OPERATORS_PER_WORD
        own = self.run_end[start:stop]
        ends = np.flatnonzero(own)
        # Runs that are left out have no operators.
        number = np.cumsum(1 + self.skip[start:stop][ends])
        lengths = np.zeros(number[-1] if len(number) else 0, np.int64)
        lengths[number - 1 - self.skip[start:stop][ends]] = np.diff(ends, prepend=-1)
        return head, lengths, int(self.null[start:stop].sum()), np.roll(own, 1).tobytes()


def _branch_work(
    fields: dict[str, int], values: dict[str, int], streams: list[_Stream], table: Bytes
) -> BranchWork | None:
    loops = [stream.layer() for stream in streams]
    if values["tiles"] == 0:
        return None
    passes, blocks = fields["passes"], fields["blocks"]
    operators = np.zeros((passes, blocks, len(loops)), np.int64)
    for pe, (head, lengths, _, _) in enumerate(loops):
        shape = (passes, blocks, head["filters"])
        if len(lengths) != passes * blocks * head["filters"]:
            raise InternalError(f"stream of PE {pe} has {len(lengths)} runs, not {shape}")
        operators[:, :, pe] = lengths.reshape(shape).sum(axis=2)
    tile_y, tile_x = tile_walk(values, fields["out_tiles_x"])
    columns = _table_columns(table[values["table_base"] :][: values["table_entries"]])
    ends = np.flatnonzero(columns["end_of_pass"]) + 1
    starts = [0, *ends[:-1].tolist()]
    return BranchWork(
        values,
        tile_y,
        tile_x,
        operators,
        np.array([nulls for _, _, nulls, _ in loops], np.int64),
        np.array([head["filters"] for head, _, _, _ in loops], np.int64),
        [starts for _, _, _, starts in loops],
        columns["pe"],
        columns["out_channel"],
        columns["last"].astype(np.bool_),
        [slice(start, int(stop)) for start, stop in zip(starts, ends, strict=True)],
    )


def _offsets(fields: tuple[Field, ...]) -> list[int]:
    widths = [field.bits for field in fields]
    return [sum(widths[:index]) for index in range(len(widths))]


def _table_columns(words: Bytes) -> dict[str, IntArray]:
    """Unpack the fields of table entries that matter to the timing: int64[entries] each."""
    low = np.ascontiguousarray(words[:, :8]).view("<u8").reshape(-1)
    high = words[:, 8].astype(np.uint64)
    result = {}
    for field, offset in zip(TABLE_FIELDS, _offsets(TABLE_FIELDS), strict=True):
        if field.name in ("pe", "out_channel", "last", "end_of_pass"):
            bits = low >> np.uint64(offset) if offset < 64 else high >> np.uint64(offset - 64)
            result[field.name] = (bits & np.uint64(field.high)).astype(np.int64)
    return result
