"""What a program makes the accelerator do: its descriptors, streams and tables as numbers of cycles."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
import numpy.typing as npt

from espalier.arch.config import HardwareConfig
from espalier.arch.fields import Field, unpack
from espalier.arch.operators import HEADER_FIELDS, OPERATOR_BITS, OPERATOR_FIELDS, OPERATORS_PER_WORD
from espalier.arch.program import TABLE_FIELDS, Opcode
from espalier.backend.decode import Memories, descriptors_to_end, load_sections, tile_walk
from espalier.backend.unchain import Segment
from espalier.errors import InternalError

IntArray = npt.NDArray[np.int64]
Bytes = npt.NDArray[np.uint8]


@dataclass(frozen=True)
class BranchWork:
    """What one branch does in one convolution.

    tile_y, tile_x: int64[tiles] in order. operators: int64[passes, blocks, PEs], cycles of every block
    with its nulls; nulls: int64[PEs] of them per tile. filters: int64[PEs], accumulators of a set.
    reads: of every PE, a byte for every operator of the loop, 1 if it is the first of a run and reads its
    accumulator if that is not a set's first; a single filter's sum never leaves its lanes.
    cuts: where each further batch of streams begins: block of the layer, and operators of that block
    that come before, by PE.
    pe, channel: int64[entries] and last: bool[entries] of the table; passes: slice of every pass in it.
    """

    fields: dict[str, int]
    tile_y: IntArray
    tile_x: IntArray
    operators: IntArray
    nulls: IntArray
    filters: IntArray
    reads: list[bytes]
    pe: IntArray
    channel: IntArray
    last: npt.NDArray[np.bool_]
    passes: list[slice]
    cuts: list[tuple[int, list[int]]]


@dataclass(frozen=True)
class LayerWork:
    """A descriptor; `branches`: for a CONV one each, None for those that rest. batches: with its streams.

    keeps: it does not leave its last batch, as that is a loop that further strips of the layer walk.
    """

    opcode: Opcode
    fields: dict[str, int]
    branch_fields: list[dict[str, int]]
    patterns: list[dict[str, int]]
    branches: list[BranchWork | None]
    batches: range = range(0)
    keeps: bool = False


def read_program(program: bytes, config: HardwareConfig) -> list[LayerWork]:
    """Decode a program image; all descriptors up to END, which is the last one.

    Raises:
        InternalError: streams or tables do not fit their descriptors.

    """
    return read_memories(load_sections(program, config), config)


def read_memories(memories: Memories, config: HardwareConfig) -> list[LayerWork]:
    """Decode the memories of a program; see `read_program`."""
    readers = [_Stream(words) for words in memories.streams]
    layers: list[LayerWork] = []
    latest = -1  # the layer of the convolution before: its strips share what the streams hold for it
    convolutions = -1
    for step in descriptors_to_end(memories, config):
        work: list[BranchWork | None] = []
        batches, keeps = range(0), False
        if step.opcode == Opcode.CONV:
            if step.fields["layer"] != latest:
                latest = step.fields["layer"]
                for reader in readers:
                    reader.next_layer()
            convolutions += 1
            segments = [own[convolutions] for own in memories.segments] or [[]] * config.pes
            brought = [own.batch for pe in segments for own in pe if own.batch is not None]
            if brought:
                batches = range(min(brought), max(brought) + 1)
            for branch, values in enumerate(step.branches):
                first = config.first_pe(branch)
                pes = slice(first, first + config.branch_pes(branch))
                table = memories.tables[branch]
                work.append(_branch_work(step.fields, values, readers[pes], table, segments[pes]))
            keeps = bool(step.fields["more"]) and not all(own.once for pe in segments for own in pe)
        layers.append(LayerWork(step.opcode, step.fields, step.branches, step.patterns, work, batches, keeps))
    return layers


# Header, int64 lengths of all runs, null operators and run starts of a layer's loop.
_Loop = tuple[dict[str, int], IntArray, int, bytes]


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
        self.layer: _Loop = {}, np.zeros(0, np.int64), 0, b""

    def next_layer(self) -> None:
        """Read the next layer's loop into `layer`."""
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
        self.layer = head, lengths, int(self.null[start:stop].sum()), np.roll(own, 1).tobytes()


def _branch_work(
    fields: dict[str, int],
    values: dict[str, int],
    streams: list[_Stream],
    table: Bytes,
    segments: list[list[Segment]],
) -> BranchWork | None:
    loops = [stream.layer for stream in streams]
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
        [starts if head["filters"] != 1 else bytes(len(starts)) for head, _, _, starts in loops],
        columns["pe"],
        columns["out_channel"],
        columns["last"].astype(np.bool_),
        [slice(start, int(stop)) for start, stop in zip(starts, ends, strict=True)],
        _cuts(operators, len(tile_y), segments),
    )


def _cuts(operators: IntArray, tiles: int, segments: list[list[Segment]]) -> list[tuple[int, list[int]]]:
    """Blocks in which segments but the first begin, and the operators of these blocks before that."""
    sizes = np.array([[segment.words for segment in own] for own in segments], np.int64)
    if sizes.size == 0 or sizes.shape[1] == 1:
        return []
    starts = sizes[:, :-1].cumsum(axis=1) * OPERATORS_PER_WORD  # [PEs, segments - 1]
    per_block = np.tile(operators.reshape(-1, operators.shape[2]), (tiles, 1))
    ends = per_block.cumsum(axis=0)
    cuts = []
    for start in starts.T:
        block = int(min((np.searchsorted(ends[:, pe], s, "right") for pe, s in enumerate(start))))
        block = min(block, len(ends) - 1)
        before = start - (ends[block] - per_block[block])
        cuts.append((block, np.clip(before, 0, per_block[block]).tolist()))
    return cuts


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
