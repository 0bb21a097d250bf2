"""Execution of a program image from its bytes alone: the oracle between compiler, numerics and RTL.

Everything is decoded from the image - descriptors, patterns, operators, table entries - and every rule that
the hardware relies on is checked on the way. Tensor names alone come from the metadata.
"""

from __future__ import annotations

from typing import NoReturn

import numpy as np
import numpy.typing as npt

from espalier.arch.config import HardwareConfig
from espalier.arch.feature_layout import BANKS, pack_tiles, tile_pixels, tile_positions
from espalier.arch.operators import (
    DIGIT_BITS,
)
from espalier.arch.program import (
    FIXED_POINT_BITS,
    FRACTION_BITS,
    MULTIPLIER_SHIFTS,
    POOL_BRANCH,
    RESIDUAL_SHIFTS,
    Opcode,
    ring_words,
)
from espalier.backend.decode import (
    Descriptor,
    Memories,
    OperatorStream,
    descriptors_of,
    load_sections,
    read_stream,
    read_table,
)
from espalier.backend.emulate_pe import pe_sums
from espalier.backend.emulate_pool import pool_tiles
from espalier.backend.emulate_rows import first_row, residual_fields, rows_read, rows_written, tiles_of
from espalier.backend.emulate_windows import window_words
from espalier.backend.image import ProgramImage, check_hardware
from espalier.backend.overlap_check import OverlapCheck
from espalier.backend.streams import WIDE_BLOCK
from espalier.errors import InternalError

Bytes = npt.NDArray[np.uint8]
IntArray = npt.NDArray[np.int64]


def emulate(image: ProgramImage, config: HardwareConfig, picture: Bytes) -> dict[str, Bytes]:
    """Run a picture uint8[channels, height, width] of the image's input; all tensors by name.

    Raises:
        ModelFileError: the image is for other hardware or its sections are damaged.
        InternalError: the program breaks a rule of the hardware.

    """
    check_hardware(image, config, "in memory")
    machine = Emulator(load_sections(image.program, config), config)
    machine.ddr = {
        "input": pack_tiles(picture, config, image.input.pad),
        "output": np.zeros(image.output_bytes, np.uint8),
        "scratch": np.zeros(image.scratch_bytes, np.uint8),
    }
    outputs = {layer.index: layer.output for layer in image.metadata.layers}
    strips: dict[str, list[Bytes]] = {}
    for step in descriptors_of(machine.memories, config):
        machine.step(step)
        if step.opcode in (Opcode.CONV, Opcode.POOL):
            strip = machine.read_tensor(step.fields, "out", rows_written(step))
            strips.setdefault(outputs[step.fields["layer"]], []).append(strip)
    machine.finish()
    result = {image.metadata.input: picture}
    for name, found in strips.items():
        info = image.metadata.tensors[name]
        result[name] = np.concatenate(found, axis=1)[:, : info.height, : info.width]
    for name, info in image.metadata.tensors.items():
        if info.dram_offset < 0 or name == image.metadata.input:
            continue
        if not np.array_equal(info.stored(machine.ddr["output"], config.tile_size), result[name]):
            raise InternalError(f"tensor {name}: DDR and feature memory differ")
    return result


class Emulator:
    """Feature memory, stream pointers and the execution of single descriptors."""

    def __init__(self, memories: Memories, config: HardwareConfig) -> None:
        self.memories, self.config = memories, config
        self.feature = np.zeros((BANKS, config.feature_depth_words, config.lanes_per_pe), np.uint8)
        self.pointers = [0] * config.pes
        self.overlap = OverlapCheck(config)
        self.ddr: dict[str, Bytes] = {}  # buffers by name: input, output, scratch
        self.where = ""
        self._streams: dict[int, OperatorStream] = {}  # of the convolution at work, by PE
        self._sets = [0] * config.pes  # that its streams have left
        self._strips: dict[Opcode, tuple[int, int]] = {}  # layer at work, rows done of it

    def step(self, step: Descriptor) -> None:
        """Execute one descriptor."""
        self.where = f"{step.opcode.name} of layer {step.fields['layer']}"
        action = {
            Opcode.LOAD: self._load,
            Opcode.STORE: self._store,
            Opcode.CONV: self._conv,
            Opcode.POOL: self._pool,
        }
        if step.opcode == Opcode.STREAM:
            return  # the memories hold what it brings
        if step.opcode in (Opcode.CONV, Opcode.POOL):
            self._check_strip(step)
            self._check_overlap(step)
        action[step.opcode](step)

    def finish(self) -> None:
        """Check that all streams end here."""
        self.where = "end of the program"
        if self._strips:
            self._fail(f"layers {[layer for layer, _ in self._strips.values()]} lack strips")
        for index, pointer in enumerate(self.pointers):
            stream, _ = read_stream(self.memories.streams[index], pointer)
            if not stream.header["end"]:
                self._fail(f"the stream of PE {index} goes on")

    def _check_strip(self, step: Descriptor) -> None:
        """Check that the strips of a layer follow each other from its first tile row to the last."""
        fields, rows = step.fields, rows_written(step)
        layer, done = self._strips.pop(step.opcode, (fields["layer"], 0))
        if layer != fields["layer"] or rows.start != done:
            self._fail(f"tile rows {rows.start} to {rows.stop - 1}, expected row {done} of layer {layer}")
        if (rows.stop < fields["out_tiles_y"]) != bool(fields["more"]):
            self._fail(f"more = {fields['more']} after tile row {rows.stop - 1}")
        if fields["more"]:
            self._strips[step.opcode] = layer, rows.stop

    def _check_overlap(self, step: Descriptor) -> None:
        fields, rows = step.fields, rows_written(step)
        residual = self._addresses(residual_fields(fields), "residual", rows) if fields["residual"] else None
        source = self._addresses(fields, "in", rows_read(step, rows, self.config.tile_size))
        self._complain(self.overlap.layer(fields, source, residual, self._addresses(fields, "out", rows)))

    def read_tensor(self, fields: dict[str, int], prefix: str, rows: slice = slice(None)) -> Bytes:
        """All lanes of tile rows of a tensor as pixels uint8[channels, rows * T, tiles_x * T]."""
        bank, word = self._addresses(fields, prefix, rows)
        size = self.config.tile_size
        return tile_pixels(self.feature[bank, word], bank.shape[0] * size, bank.shape[1] * size)

    def _addresses(
        self, fields: dict[str, int], prefix: str, rows: slice = slice(None)
    ) -> tuple[IntArray, IntArray]:
        """Bank and word of every tile word of some tile rows: int64[rows, tiles_x, channels] each."""
        base, pitch, channels = (fields[f"{prefix}_{name}"] for name in ("base", "pitch", "channels"))
        shape = fields[f"{prefix}_tiles_y"], fields[f"{prefix}_tiles_x"]
        ring = ring_words(fields[f"{prefix}_ring"])
        if ring and not self.config.feature_rings:
            self._fail("the hardware has no rings")
        bank, word = tile_positions(base, pitch, channels, *shape, ring)
        bank, word = bank[rows], word[rows]
        depths = np.array([self.config.bank_depth(number) for number in range(BANKS)])
        if (word >= depths[bank]).any():
            self._fail(f"word {word.max()} of the feature memory")
        return bank, word

    def _load(self, step: Descriptor) -> None:
        fields = step.fields
        bank, word = self._addresses(fields, "out", slice(first_row(step), None))
        step_bytes = self.config.word_beats * self.config.axi_bytes
        where = self._range(fields, "input", bank.size * step_bytes)
        self._complain(self.overlap.load(fields, (bank, word), where))
        data = self.ddr[where[0]][where[1] : where[2]].reshape(*bank.shape, step_bytes)
        self.feature[bank, word] = data[..., : self.config.lanes_per_pe]

    def _store(self, step: Descriptor) -> None:
        fields = step.fields
        bank, word = self._addresses(fields, "in", slice(first_row(step), None))
        step_bytes = fields["store_beats"] * self.config.axi_bytes
        where = self._range(fields, "output", bank.size * step_bytes)
        self._complain(self.overlap.store(fields, (bank, word), where))
        data = np.zeros((*bank.shape, step_bytes), np.uint8)
        lanes = min(step_bytes, self.config.lanes_per_pe)
        data[..., :lanes] = self.feature[bank, word][..., :lanes]
        self.ddr[where[0]][where[1] : where[2]] = data.reshape(-1)

    def _range(self, fields: dict[str, int], name: str, count: int) -> tuple[str, int, int]:
        """Buffer, first byte and the one behind the last of a transfer of `count` bytes."""
        name, start = "scratch" if fields["scratch"] else name, fields["dram_offset"]
        if start + count > len(self.ddr[name]):
            self._fail(f"{count} bytes from {start} on, the {name} buffer has {len(self.ddr[name])}")
        return name, start, start + count

    def _complain(self, problem: str) -> None:
        if problem:
            self._fail(problem)

    def _conv(self, step: Descriptor) -> None:
        fields = step.fields
        words = window_words(step, self.read_tensor(fields, "in"), self.config.tile_size, self._fail)
        written = np.zeros((fields["out_channels"], fields["out_tiles_y"], fields["out_tiles_x"]), np.int64)
        for index, branch in enumerate(step.branches):
            first = self.config.first_pe(index)
            count = self.config.branch_pes(index)
            streams = [self._next_stream(first + pe, step, branch) for pe in range(count)]
            if not branch["tiles"]:
                continue
            tiles = tiles_of(fields, branch)
            if not (np.diff(tiles) > 0).all():
                self._fail("tiles are not in raster order")
            sums = np.stack(
                [pe_sums(step, branch, stream, words, tiles, self.config, self._fail) for stream in streams]
            )
            entries = read_table(self.memories.tables[index], branch["table_base"], branch["table_entries"])
            self._check_order(step, entries)
            self._drain(step, entries, [stream.filters for stream in streams], sums, tiles, written)
        if (written[:, rows_written(step)] != 1).any():
            self._fail("some output words are written never or twice")

    def _next_stream(self, index: int, step: Descriptor, branch: dict[str, int]) -> OperatorStream:
        """Read a PE's next layer with its first strip, and compare its header with the descriptors."""
        fields = step.fields
        if rows_written(step).start == 0:
            read = read_stream(self.memories.streams[index], self.pointers[index])
            self._streams[index], self.pointers[index] = read
            self._sets[index] = read[0].header["sets"]
        stream = self._streams[index]
        self._sets[index] -= branch["tiles"] * fields["passes"]
        if self._sets[index] < 0 or (self._sets[index] and not fields["more"]):
            self._fail(f"header of PE {index}: {self._sets[index]} sets are left")
        expected = {"end": 0}
        if stream.header["sets"]:
            wide = int(fields["block_words"] == WIDE_BLOCK)
            expected |= {"blocks": fields["blocks"], "wide_blocks": wide}
        else:
            expected |= {"loop_words": 0}
        for name, value in expected.items():
            if stream.header[name] != value:
                self._fail(f"header of PE {index}: {name} is {stream.header[name]}, expected {value}")
        return stream

    def _check_order(self, step: Descriptor, entries: list[dict[str, int]]) -> None:
        """Channels ascend, over all passes if the layer says so, and its last word ends the layer."""
        if not entries[-1]["last"]:
            self._fail("the last table entry writes nothing")
        latest = -1
        for entry in entries:
            if entry["last"]:
                if entry["out_channel"] <= latest:
                    self._fail(f"channel {entry['out_channel']} comes after {latest}")
                latest = entry["out_channel"]
            if entry["end_of_pass"] and not step.fields["ordered"]:
                latest = -1

    def _drain(
        self,
        step: Descriptor,
        entries: list[dict[str, int]],
        filters: list[int],
        sums: IntArray,
        tiles: IntArray,
        written: IntArray,
    ) -> None:
        """Walk the table for all tiles at once; sums: int64[PEs, passes, accumulators, tiles, T*T]."""
        which, total = 0, np.zeros(sums.shape[3:], np.int64)
        taken = [0] * len(filters)
        for entry in entries:
            pe = entry["pe"]
            value = sums[pe, which, taken[pe]] << (DIGIT_BITS * entry["high_digit"])
            taken[pe] += 1
            total = value if entry["first"] else total + value
            if entry["last"]:
                self._requantise(step, entry, total, tiles)
                written[
                    entry["out_channel"],
                    tiles // step.fields["out_tiles_x"],
                    tiles % step.fields["out_tiles_x"],
                ] += 1
            if entry["end_of_pass"]:
                if taken != filters:
                    self._fail(f"pass {which} drains {taken} accumulators of {filters}")
                which, taken = which + 1, [0] * len(filters)
        if which != step.fields["passes"]:
            self._fail(f"the table has {which} passes")

    def _requantise(self, step: Descriptor, entry: dict[str, int], total: IntArray, tiles: IntArray) -> None:
        """Requantise int64[tiles, T*T] and write the words of one channel."""
        fields, channel = step.fields, entry["out_channel"]
        scaled = _scale(total, entry)
        if fields["residual"]:
            bank, word = self._addresses(residual_fields(fields), "residual")
            at = (tiles // fields["out_tiles_x"], tiles % fields["out_tiles_x"], channel)
            pixels = self.feature[bank[at], word[at]].astype(np.int64) - fields["residual_zero"]
            scaled = scaled + _saturate(
                pixels * fields["residual_multiplier"] >> RESIDUAL_SHIFTS[fields["residual_shift"]]
            )
        self._write(fields, _to_bytes(scaled, fields["out_zero"])[None], channel, tiles)

    def _write(self, fields: dict[str, int], values: Bytes, channel: int, tiles: IntArray) -> None:
        """Write words uint8[channels, tiles, T*T] from a channel on."""
        bank, word = self._addresses(fields, "out")
        values[:, ~self._inside(fields, tiles)] = fields["out_pad"]
        channels = np.arange(channel, channel + len(values))[:, None]
        at = tiles // fields["out_tiles_x"], tiles % fields["out_tiles_x"], channels
        self.feature[bank[at], word[at]] = values

    def _inside(self, fields: dict[str, int], tiles: IntArray) -> npt.NDArray[np.bool_]:
        """Lanes that lie inside the map: bool[tiles, T*T]."""
        lane = np.arange(self.config.lanes_per_pe)
        tile_y, tile_x = np.divmod(tiles, fields["out_tiles_x"])
        rows = np.where(tile_y == fields["out_tiles_y"] - 1, fields["out_rows_last"], self.config.tile_size)
        columns = np.where(
            tile_x == fields["out_tiles_x"] - 1, fields["out_columns_last"], self.config.tile_size
        )
        row, column = np.divmod(lane, self.config.tile_size)
        return (row < rows[:, None]) & (column < columns[:, None])

    def _pool(self, step: Descriptor) -> None:
        fields, branch = step.fields, step.branches[POOL_BRANCH]
        tiles = tiles_of(fields, branch)
        if not (np.diff(tiles) == 1).all():
            self._fail("the pool unit does not walk all tiles")
        if branch["channels"] != fields["in_channels"] or branch["group_mask"] != 1 << self.config.branches:
            self._fail("the pool unit does not walk all channels by itself")
        # In place, every tile must find those that it needs still there.
        in_place = fields["in_base"] == fields["out_base"]
        for turn in np.split(tiles, len(tiles)) if in_place else [tiles]:
            values = pool_tiles(step, self.read_tensor(fields, "in"), turn, self.config.tile_size, self._fail)
            if fields["reduce"]:
                entry = {name: fields[f"pool_{name}"] for name in ("multiplier", "shift", "bias")}
                stored = _to_bytes(_scale(values, entry), fields["out_zero"])
            else:
                stored = values.astype(np.uint8)
            self._write(fields, stored, 0, turn)

    def _fail(self, what: str) -> NoReturn:
        raise InternalError(f"{self.where}: {what}")


def _scale(total: IntArray, entry: dict[str, int]) -> IntArray:
    return _saturate((total + entry["bias"]) * entry["multiplier"] >> MULTIPLIER_SHIFTS[entry["shift"]])


def _to_bytes(scaled: IntArray, zero_point: int) -> Bytes:
    rounded = (scaled + (1 << FRACTION_BITS - 1) >> FRACTION_BITS) + zero_point
    result: Bytes = np.clip(rounded, 0, 255).astype(np.uint8)
    return result


def _saturate(values: IntArray) -> IntArray:
    limit = 1 << FIXED_POINT_BITS - 1
    return np.clip(values, -limit, limit - 1)
