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
from espalier.arch.operators import ACCUMULATOR_DISTANCE, DIGIT_BITS, PACKED_FIELD_BITS, WORD_TAPS
from espalier.arch.program import (
    FIXED_POINT_BITS,
    FRACTION_BITS,
    MULTIPLIER_SHIFTS,
    RESIDUAL_SHIFTS,
    Opcode,
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
from espalier.backend.image import ProgramImage, check_hardware
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
    machine.ddr_input = pack_tiles(picture, config, image.input.pad)
    machine.ddr_output = np.zeros(image.output_bytes, np.uint8)
    outputs = {layer.index: layer.output for layer in image.metadata.layers}
    result = {image.metadata.input: picture}
    for step in descriptors_of(machine.memories, config):
        machine.step(step)
        if step.opcode in (Opcode.CONV, Opcode.POOL):
            info = image.metadata.tensors[outputs[step.fields["layer"]]]
            result[info.name] = machine.read_tensor(step.fields, "out")[:, : info.height, : info.width]
    for name, info in image.metadata.tensors.items():
        if info.dram_offset < 0 or name == image.metadata.input:
            continue
        if not np.array_equal(info.stored(machine.ddr_output, config.tile_size), result[name]):
            raise InternalError(f"tensor {name}: DDR and feature memory differ")
    return result


class Emulator:
    """Feature memory, stream pointers and the execution of single descriptors."""

    def __init__(self, memories: Memories, config: HardwareConfig) -> None:
        self.memories, self.config = memories, config
        self.feature = np.zeros((BANKS, config.feature_depth_words, config.lanes_per_pe), np.uint8)
        self.pointers = [0] * config.pes
        self.ddr_input: Bytes = np.zeros(0, np.uint8)
        self.ddr_output: Bytes = np.zeros(0, np.uint8)
        self.where = ""

    def step(self, step: Descriptor) -> None:
        """Execute one descriptor."""
        self.where = f"{step.opcode.name} of layer {step.fields['layer']}"
        action = {
            Opcode.LOAD: self._load,
            Opcode.STORE: self._store,
            Opcode.CONV: self._conv,
            Opcode.POOL: self._pool,
        }
        action[step.opcode](step)

    def read_tensor(self, fields: dict[str, int], prefix: str) -> Bytes:
        """All lanes of a tensor as pixels uint8[channels, tiles_y * T, tiles_x * T]."""
        bank, word = self._addresses(fields, prefix)
        size = self.config.tile_size
        return tile_pixels(self.feature[bank, word], bank.shape[0] * size, bank.shape[1] * size)

    def _addresses(self, fields: dict[str, int], prefix: str) -> tuple[IntArray, IntArray]:
        """Bank and word of every tile word of a tensor: int64[tiles_y, tiles_x, channels] each."""
        base, pitch, channels = (fields[f"{prefix}_{name}"] for name in ("base", "pitch", "channels"))
        shape = fields[f"{prefix}_tiles_y"], fields[f"{prefix}_tiles_x"]
        bank, word = tile_positions(base, pitch, channels, *shape)
        if word.max() >= self.config.feature_depth_words:
            self._fail(f"word {word.max()} of the feature memory")
        return bank, word

    def _load(self, step: Descriptor) -> None:
        bank, word = self._addresses(step.fields, "out")
        step_bytes = self.config.word_beats * self.config.axi_bytes
        start = step.fields["dram_offset"]
        data = self.ddr_input[start : start + bank.size * step_bytes].reshape(*bank.shape, step_bytes)
        self.feature[bank, word] = data[..., : self.config.lanes_per_pe]

    def _store(self, step: Descriptor) -> None:
        bank, word = self._addresses(step.fields, "in")
        step_bytes = step.fields["store_beats"] * self.config.axi_bytes
        data = np.zeros((*bank.shape, step_bytes), np.uint8)
        lanes = min(step_bytes, self.config.lanes_per_pe)
        data[..., :lanes] = self.feature[bank, word][..., :lanes]
        start = step.fields["dram_offset"]
        self.ddr_output[start : start + data.size] = data.reshape(-1)

    def _conv(self, step: Descriptor) -> None:
        fields = step.fields
        words = _window_words(self, step)
        written = np.zeros((fields["out_channels"], fields["out_tiles_y"], fields["out_tiles_x"]), np.int64)
        for index, branch in enumerate(step.branches):
            tiles = _tiles_of(fields, branch)
            streams = [self._next_stream(index, pe) for pe in range(self.config.pes_per_branch)]
            if not branch["tiles"]:
                continue
            sums = np.stack([self._pe_sums(step, branch, stream, words, tiles) for stream in streams])
            entries = read_table(self.memories.tables[index], branch["table_base"], branch["table_entries"])
            self._drain(step, entries, [stream.filters for stream in streams], sums, tiles, written)
        if (written != 1).any():
            self._fail("some output words are written never or twice")

    def _next_stream(self, branch: int, pe: int) -> OperatorStream:
        index = branch * self.config.pes_per_branch + pe
        stream, self.pointers[index] = read_stream(self.memories.streams[index], self.pointers[index])
        return stream

    def _pe_sums(
        self,
        step: Descriptor,
        branch: dict[str, int],
        stream: OperatorStream,
        words: list[list[Bytes]],
        tiles: IntArray,
    ) -> IntArray:
        """Accumulators of a PE: int64[passes, accumulators, tiles, T*T]."""
        fields, config = step.fields, self.config
        passes, blocks, patterns = fields["passes"], fields["blocks"], fields["pattern_count"]
        run = np.cumsum(stream.end_of_run) - stream.end_of_run
        if stream.filters < 1 or run[-1] + 1 != passes * blocks * stream.filters or not stream.end_of_run[-1]:
            self._fail(f"a PE has {run[-1] + 1} runs, expected {passes * blocks * stream.filters}")
        self._check_distance(stream, passes, blocks)
        which, block, slot = np.unravel_index(run, (passes, blocks, stream.filters))
        word = block * fields["block_words"] + stream.slot
        real = stream.weight != 0
        if (word[real] >= branch["channels"] * patterns).any() or (
            stream.slot >= fields["block_words"]
        ).any():
            self._fail("an operator names a word beyond its block")
        channel, pattern = np.divmod(word, patterns)
        sums = np.zeros((config.accumulators * passes, len(tiles), config.lanes_per_pe))
        for index in range(patterns):
            for tap in np.unique(stream.tap[real & (pattern == index)]):
                chosen = np.flatnonzero(real & (pattern == index) & (stream.tap == tap))
                matrix = np.zeros((len(sums), branch["channels"]))
                np.add.at(
                    matrix,
                    ((which * config.accumulators + slot)[chosen], channel[chosen]),
                    stream.weight[chosen],
                )
                pixels = words[index][tap][branch["channel0"] :][: branch["channels"], tiles]
                flat = pixels.reshape(branch["channels"], -1).astype(np.float64)
                sums += (matrix @ flat).reshape(sums.shape)
        if sums.max(initial=0) >= 1 << PACKED_FIELD_BITS - 1 or sums.min(initial=0) < -(
            1 << PACKED_FIELD_BITS - 1
        ):
            self._fail("a partial sum overflows")
        return sums.astype(np.int64).reshape(passes, config.accumulators, *sums.shape[1:])

    def _check_distance(self, stream: OperatorStream, passes: int, blocks: int) -> None:
        """Operators between the runs of one filter, see ACCUMULATOR_DISTANCE."""
        ends = np.flatnonzero(stream.end_of_run)
        starts = np.concatenate(([0], ends[:-1] + 1))
        shape = (passes, blocks, stream.filters)
        between = starts.reshape(shape)[:, 1:] - ends.reshape(shape)[:, :-1] - 1
        if stream.filters > 1 and between.min(initial=ACCUMULATOR_DISTANCE) < ACCUMULATOR_DISTANCE:
            self._fail("two runs of a filter are too close")

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
                self._write(step, entry, entry["out_channel"], total, tiles)
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

    def _write(
        self, step: Descriptor, entry: dict[str, int], channel: int, total: IntArray, tiles: IntArray
    ) -> None:
        """Requantise int64[tiles, T*T] and write the words of one channel."""
        fields = step.fields
        bank, word = self._addresses(fields, "out")
        at = (tiles // fields["out_tiles_x"], tiles % fields["out_tiles_x"], np.full(len(tiles), channel))
        scaled = _saturate((total + entry["bias"]) * entry["multiplier"] >> MULTIPLIER_SHIFTS[entry["shift"]])
        if fields["residual"]:
            source = {**fields, "residual_channels": fields["out_channels"]}
            source |= {f"residual_{name}": fields[f"out_{name}"] for name in ("tiles_y", "tiles_x", "pitch")}
            other_bank, other_word = self._addresses(source, "residual")
            pixels = self.feature[other_bank[at], other_word[at]].astype(np.int64) - fields["residual_zero"]
            scaled = scaled + _saturate(
                pixels * fields["residual_multiplier"] >> RESIDUAL_SHIFTS[fields["residual_shift"]]
            )
        rounded = (scaled + (1 << FRACTION_BITS - 1) >> FRACTION_BITS) + fields["out_zero"]
        result = np.clip(rounded, 0, 255).astype(np.uint8)
        result[~self._inside(fields, tiles)] = fields["out_pad"]
        self.feature[bank[at], word[at]] = result

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
        fields = step.fields
        words = _window_words(self, step)
        for index, branch in enumerate(step.branches):
            if not branch["tiles"]:
                continue
            tiles = _tiles_of(fields, branch)
            entry = read_table(self.memories.tables[index], branch["table_base"], 1)[0]
            for channel in range(branch["channel0"], branch["channel0"] + branch["channels"]):
                taken = [
                    words[number][tap][channel, tiles].astype(np.int64)
                    for number, pattern in enumerate(step.patterns)
                    for tap in range(WORD_TAPS)
                    if pattern["taps"] >> tap & 1
                ]
                total = np.sum(taken, axis=0) if fields["average"] else np.max(taken, axis=0)
                if fields["reduce"]:
                    total = np.broadcast_to(total.sum(axis=1, keepdims=True), total.shape)
                self._write(step, entry, channel, total, tiles)

    def _fail(self, what: str) -> NoReturn:
        raise InternalError(f"{self.where}: {what}")


def _window_words(machine: Emulator, step: Descriptor) -> list[list[Bytes]]:
    """Collect what every output tile sees: [pattern][tap] uint8[channels, tiles, T*T], legal taps only."""
    fields, size = step.fields, machine.config.tile_size
    pixels = machine.read_tensor(fields, "in")
    stride = fields["stride"]
    # Tiles outside the map read as the pad value; 12 tiles are further than any pattern and tap reach.
    border = 12 * size
    far = border + size * (stride * max(fields["out_tiles_y"], fields["out_tiles_x"]) + 2)
    framed = np.full((pixels.shape[0], border + far, border + far), fields["in_pad"], np.uint8)
    rows, columns = min(pixels.shape[1], far), min(pixels.shape[2], far)
    framed[:, border : border + rows, border : border + columns] = pixels[:, :rows, :columns]
    lane = np.arange(size)
    result: list[list[Bytes]] = []
    for number, pattern in enumerate(step.patterns):
        before = step.patterns[number - 1]
        same = all(pattern[name] == before[name] for name in ("tile_dy", "tile_dx", "row_offset"))
        if not pattern["fetch"] and (number == 0 or not same):
            machine._fail(f"pattern {number} reuses another window")
        x0 = pattern["column_offset"]
        if x0 < 2 - size or x0 + stride * (size - 1) > 2 * size - 1:
            machine._fail(f"pattern {number}: column offset {x0}")
        taps: list[Bytes] = []
        for tap in range(WORD_TAPS):
            y0 = pattern["row_offset"] + stride * tap
            if y0 < -size or y0 + stride * (size - 1) > 2 * size - 1:
                break
            tile_y = stride * np.arange(fields["out_tiles_y"]) + pattern["tile_dy"]
            tile_x = stride * np.arange(fields["out_tiles_x"]) + pattern["tile_dx"]
            y = border + (tile_y[:, None] * size + y0 + stride * lane).reshape(-1)
            x = border + (tile_x[:, None] * size + x0 + stride * lane).reshape(-1)
            seen = framed[:, y][:, :, x].reshape(len(framed), len(tile_y), size, len(tile_x), size)
            taps.append(seen.transpose(0, 1, 3, 2, 4).reshape(len(framed), -1, size * size))
        result.append(taps)
    return result


def _tiles_of(fields: dict[str, int], branch: dict[str, int]) -> IntArray:
    """Tile numbers (row * out_tiles_x + column) that a branch walks."""
    y, x, numbers = branch["tile_y0"], branch["tile_x0"], []
    for _ in range(branch["tiles"]):
        numbers.append(y * fields["out_tiles_x"] + x)
        x, y = x + fields["step_x"], y + fields["step_y"]
        if x >= fields["out_tiles_x"]:
            x, y = x - fields["out_tiles_x"], y + 1
    return np.array(numbers, np.int64)


def _saturate(values: IntArray) -> IntArray:
    limit = 1 << FIXED_POINT_BITS - 1
    return np.clip(values, -limit, limit - 1)
