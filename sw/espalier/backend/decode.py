"""Program images read back: sections, descriptors, patterns, operators and table entries as values."""

from __future__ import annotations

import dataclasses
from collections.abc import Iterator
from dataclasses import dataclass

import numpy as np
import numpy.typing as npt

from espalier.arch.config import HardwareConfig
from espalier.arch.fields import unpack
from espalier.arch.operators import HEADER_FIELDS, OPERATOR_BITS, OPERATOR_FIELDS
from espalier.arch.program import (
    BRANCH_FIELDS,
    PATTERN_BITS,
    PATTERN_FIELDS,
    PATTERNS_PER_WORD,
    SECTION_FIELDS,
    TABLE_FIELDS,
    Opcode,
    SectionKind,
    descriptor_words,
    layer_fields,
)
from espalier.backend.sections import BEAT_BYTES, WORD_BYTES
from espalier.backend.unchain import Batch, Segment, read_batches, read_chain, strip_segments
from espalier.errors import ModelFileError

IntArray = npt.NDArray[np.int64]
Bytes = npt.NDArray[np.uint8]


@dataclass(frozen=True)
class Memories:
    """On-chip memories after the program load.

    program: bytes; streams: uint8[words, 9] by PE over all branches; tables: uint8[words, 9] by branch.
    With `streaming` the streams are what the PEs read until END, as hardware without it would hold them;
    segments: where what a CONV descriptor reads lies, by PE and descriptor, empty where the PE rests.
    batches: from DDR.
    """

    program: bytes
    streams: list[Bytes]
    tables: list[Bytes]
    segments: list[list[list[Segment]]] = dataclasses.field(default_factory=list)
    batches: list[Batch] = dataclasses.field(default_factory=list)


@dataclass(frozen=True)
class Descriptor:
    """A descriptor: common fields, fields of every branch without prefix, patterns."""

    fields: dict[str, int]
    branches: list[dict[str, int]]
    patterns: list[dict[str, int]]

    @property
    def opcode(self) -> Opcode:
        """Kind of descriptor."""
        return Opcode(self.fields["opcode"])


@dataclass(frozen=True)
class OperatorStream:
    """One layer of a PE's stream: its header, then int64 arrays, one element per operator of the loop."""

    header: dict[str, int]
    weight: IntArray
    slot: IntArray
    tap: IntArray
    end_of_run: IntArray
    skip: IntArray

    @property
    def filters(self) -> int:
        """Accumulators of a set."""
        return self.header["filters"]

    @property
    def run(self) -> IntArray:
        """Run of every operator, runs that are left out counted: int64[operators + 1], the last: all runs."""
        after: IntArray = np.cumsum(self.end_of_run + self.skip)
        return np.concatenate(([0], after))


def load_sections(program: bytes, config: HardwareConfig) -> Memories:
    """Fill the memories as the accelerator's loader does.

    Raises:
        ModelFileError: unknown, incomplete or too large section.

    """
    sizes = {
        SectionKind.PROGRAM: (1, config.program_depth_words),
        SectionKind.STREAM: (config.pes, config.stream_depth_words),
        SectionKind.TABLE: (config.branches, config.table_depth_words),
    }
    memories = {
        kind: [np.zeros((depth, WORD_BYTES[kind]), np.uint8) for _ in range(count)]
        for kind, (count, depth) in sizes.items()
    }
    position = 0
    while True:
        head = unpack(SECTION_FIELDS, int.from_bytes(program[position : position + BEAT_BYTES], "little"))
        position += BEAT_BYTES
        if position > len(program):
            raise ModelFileError("program image: no END section")
        if head["kind"] == SectionKind.END:
            break
        if head["kind"] not in list(sizes) or head["index"] >= sizes[SectionKind(head["kind"])][0]:
            raise ModelFileError(f"program image: unknown section {head['kind']}, index {head['index']}")
        target = memories[SectionKind(head["kind"])][head["index"]]
        count = head["words"] * target.shape[1]
        if head["address"] + head["words"] > len(target) or position + count > len(program):
            raise ModelFileError(f"program image: section of {head['words']} words does not fit")
        data = np.frombuffer(program, np.uint8, count, position).reshape(-1, target.shape[1])
        target[head["address"] : head["address"] + head["words"]] = data
        position += -(-count // BEAT_BYTES) * BEAT_BYTES
    result = Memories(
        memories[SectionKind.PROGRAM][0].tobytes(), memories[SectionKind.STREAM], memories[SectionKind.TABLE]
    )
    return _follow_chains(result, program, config) if config.streaming else result


def _follow_chains(memories: Memories, program: bytes, config: HardwareConfig) -> Memories:
    """Replace the contents of stream memories by what PEs read from them and from batches."""
    tiles: list[list[list[int]]] = [[] for _ in range(config.branches)]  # by convolution and strip
    batches: list[Batch] = []
    latest = -1  # strips of a layer share what the streams hold for it
    for step in descriptors_of(memories, config):
        if step.opcode == Opcode.STREAM:
            batches += read_batches(program, step.fields["dram_offset"], step.fields["dram_words"], config)
        if step.opcode == Opcode.CONV:
            for own, branch in zip(tiles, step.branches, strict=True):
                if step.fields["layer"] != latest:
                    own.append([])
                own[-1].append(branch["tiles"])
            latest = step.fields["layer"]
    branch_of = [b for b in range(config.branches) for _ in range(config.branch_pes(b))]
    chains = [
        read_chain(memory, batches, pe, [sum(strips) for strips in tiles[branch]])
        for pe, (memory, branch) in enumerate(zip(memories.streams, branch_of, strict=True))
    ]
    segments = [
        [
            strip
            for own, strips in zip(chain.segments, tiles[branch], strict=True)
            for strip in strip_segments(own, strips)
        ]
        for chain, branch in zip(chains, branch_of, strict=True)
    ]
    _check_strips(segments)
    return dataclasses.replace(
        memories, streams=[chain.plain for chain in chains], segments=segments, batches=batches
    )


def _check_strips(segments: list[list[list[Segment]]]) -> None:
    """Check that all PEs need the same batches for a CONV: none may need one that another cannot leave."""
    for strip in zip(*segments, strict=True):
        needs = {tuple(own.batch for own in pe) for pe in strip if pe}
        if len(needs) > 1:
            raise ModelFileError(f"PEs need different batches for a strip: {sorted(needs, key=str)}")


def descriptors_of(memories: Memories, config: HardwareConfig) -> Iterator[Descriptor]:
    """All descriptors up to and without END."""
    return (step for step in descriptors_to_end(memories, config) if step.opcode != Opcode.END)


def descriptors_to_end(memories: Memories, config: HardwareConfig) -> Iterator[Descriptor]:
    """All descriptors, END the last one."""
    fields, size = layer_fields(config), descriptor_words(config) * BEAT_BYTES
    position = 0
    while True:
        values = unpack(fields, int.from_bytes(memories.program[position : position + size], "little"))
        position += size
        words = -(-values["pattern_count"] // PATTERNS_PER_WORD)
        packed = memories.program[position : position + words * BEAT_BYTES]
        position += words * BEAT_BYTES
        step = PATTERN_BITS // 8
        patterns = [
            unpack(PATTERN_FIELDS, int.from_bytes(packed[i * step : (i + 1) * step], "little"))
            for i in range(values["pattern_count"])
        ]
        branches = [
            {field.name: values[f"b{index}_{field.name}"] for field in BRANCH_FIELDS}
            for index in range(config.branches)
        ]
        yield Descriptor(values, branches, patterns)
        if values["opcode"] == Opcode.END:
            return


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


def read_stream(words: Bytes, position: int) -> tuple[OperatorStream, int]:
    """Read a layer of a stream; also returns where the next one starts."""
    if position >= len(words):
        raise ModelFileError(f"operator stream: no end in {len(words)} words")
    head = unpack(HEADER_FIELDS, int.from_bytes(words[position].tobytes(), "little"))
    start, stop = position + 1, position + 1 + head["loop_words"]
    if stop > len(words):
        raise ModelFileError(f"operator stream: {stop} words, the memory has {len(words)}")
    triples = words[start:stop].reshape(-1, 3).astype(np.uint32)  # two operators are three bytes
    pairs = triples[:, 0] | triples[:, 1] << 8 | triples[:, 2] << 16
    code = (
        np.stack([pairs & (1 << OPERATOR_BITS) - 1, pairs >> OPERATOR_BITS], axis=1)
        .reshape(-1)
        .astype(np.int64)
    )
    values, offset = {}, 0
    for field in OPERATOR_FIELDS:
        raw = code >> offset & (1 << field.bits) - 1
        values[field.name] = (
            raw - ((raw > field.high).astype(np.int64) << field.bits) if field.signed else raw
        )
        offset += field.bits
    return OperatorStream(head, *(values[field.name] for field in OPERATOR_FIELDS)), stop


def read_table(words: Bytes, base: int, entries: int) -> list[dict[str, int]]:
    """Table entries of a layer."""
    return [
        unpack(TABLE_FIELDS, int.from_bytes(words[index].tobytes(), "little"))
        for index in range(base, base + entries)
    ]
