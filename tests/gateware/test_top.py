"""The whole accelerator through its AXI ports: commands, errors, resets, small layers."""

from __future__ import annotations

import dataclasses
from math import prod

import numpy as np
import pytest
from axi_lite import pause, read, wait, write
from axi_memory import AxiMemory
from stalling import generator, simulate

from espalier.arch.config import load_config
from espalier.arch.feature_layout import tensor_pitch
from espalier.arch.fields import pack
from espalier.arch.operators import HEADER_FIELDS, OPERATOR_BITS, OPERATOR_FIELDS
from espalier.arch.program import (
    PATTERN_FIELDS,
    POOL_BRANCH,
    SECTION_FIELDS,
    TABLE_FIELDS,
    Follows,
    Opcode,
    SectionKind,
    descriptor_words,
    layer_fields,
)
from espalier.arch.registers import COUNTER_BASE, Control, ErrorCode, Status, offset_of
from espalier_hw.top import CONTROL_PREFIX, Espalier

TINY = load_config("tiny")
SMALLEST = dataclasses.replace(TINY, branches=1, pes_per_branch=1)
PROGRAM, INPUT, OUTPUT = 0x1_0000_1000, 0x1_0000_8FC0, 0x1_0000_CFE0
MEMORY_BASE, MEMORY_SIZE = 0x1_0000_0000, 0x10000
PASS_THROUGH = {"multiplier": 1 << 13, "shift": 0}  # an accumulator becomes the pixel of the same value


class ControlBus:
    """The ports s_axi_ctrl_* under the names that the AXI4-Lite helpers use."""

    def __init__(self, dut):
        self.dut = dut

    def __getattr__(self, name):
        return getattr(self.dut, CONTROL_PREFIX + name)


class Machine:
    """An accelerator with memory and a host."""

    def __init__(self, config, seed=0, stall=0.2):
        self.config, self.rng = config, generator(seed)
        self.dut = Espalier(config)
        self.bus = ControlBus(self.dut)
        self.memory = AxiMemory(self.dut, MEMORY_BASE, MEMORY_SIZE, generator(seed + 1), stall)

    async def register(self, ctx, name, value=None):
        """Read a register, or write it if a value is given."""
        if value is None:
            return await read(ctx, self.bus, offset_of(name), self.rng)
        return await write(ctx, self.bus, offset_of(name), value, self.rng)

    async def begin(self, ctx, image, picture):
        """Leave reset, put image and picture into memory and tell where they are."""
        await pause(ctx, 3)
        ctx.set(self.dut.aresetn, 1)
        self.put(image, picture)
        places = {"PROGRAM_ADDRESS": PROGRAM, "INPUT_ADDRESS": INPUT, "OUTPUT_ADDRESS": OUTPUT}
        for name, address in places.items():
            await self.register(ctx, name, address & 0xFFFFFFFF)
            await self.register(ctx, f"{name}_HIGH", address >> 32)
        await self.register(ctx, "PROGRAM_BYTES", len(image))

    def put(self, image, picture=b""):
        """Change image and picture."""
        self.memory.put(PROGRAM, image)
        self.memory.put(INPUT, picture)

    async def command(self, ctx, bits):
        """Run a command to its end and return the status."""
        await self.register(ctx, "CONTROL", bits)
        while (status := await self.register(ctx, "STATUS")) & Status.BUSY:
            pass
        return status

    def simulate(self, main):
        """Run the host."""
        simulate(self.dut, main, background=[self.memory.run])


def section(kind, words, word_bytes, index=0, address=0):
    """One section of an image."""
    header = pack(SECTION_FIELDS, {"kind": kind, "index": index, "address": address, "words": len(words)})
    content = header.to_bytes(16, "little") + b"".join(word.to_bytes(word_bytes, "little") for word in words)
    return content + bytes(-len(content) % 16)


def program_image(config, descriptors):
    """PROGRAM section of (fields, patterns) pairs, END descriptor added."""
    words = []
    for fields, patterns in [*descriptors, ({"opcode": Opcode.END}, [])]:
        bits = pack(layer_fields(config), fields | {"pattern_count": len(patterns)})
        size = descriptor_words(config)
        bits |= sum(pack(PATTERN_FIELDS, p) << 128 * size + 32 * n for n, p in enumerate(patterns))
        words += [bits >> 128 * n & ((1 << 128) - 1) for n in range(size + -(-len(patterns) // 4))]
    return section(SectionKind.PROGRAM, words, 16)


END_SECTION = section(SectionKind.END, [], 16)


def tensor(prefix, shape, base=0):
    """Descriptor fields of a tensor of (channels, tile rows, tile columns)."""
    channels, tiles_y, tiles_x = shape
    values = {"base": base, "tiles_y": tiles_y, "tiles_x": tiles_x, "channels": channels}
    values["pitch"] = tensor_pitch(tiles_x)
    return {f"{prefix}_{name}": value for name, value in values.items()}


def load_store(shape, store_from=0, beats=1):
    """A LOAD to word 0 and a STORE."""
    load = {"opcode": Opcode.LOAD, "barrier": 1, "dram_words": prod(shape)} | tensor("out", shape)
    store = {"opcode": Opcode.STORE, "barrier": 1, "store_beats": beats, "dram_words": prod(shape)}
    store |= tensor("in", shape, store_from)
    return (load, []), (store, [])


def tiles(config, array):
    """Bytes of uint8[channels, height, width] in DDR order."""
    size = config.tile_size
    channels, height, width = array.shape
    split = array.reshape(channels, height // size, size, width // size, size)
    words = split.transpose(1, 3, 0, 2, 4).reshape(-1, size * size)
    return np.pad(words, ((0, 0), (0, -size * size % 16))).tobytes()


def picture_of(config, shape, seed=0):
    """Random pixels of so many channels and tiles."""
    channels, tiles_y, tiles_x = shape
    size = (channels, tiles_y * config.tile_size, tiles_x * config.tile_size)
    return np.random.default_rng(seed).integers(0, 256, size, dtype=np.uint8)


def test_copy():
    machine, shape = Machine(SMALLEST), (3, 4, 5)
    picture = tiles(SMALLEST, picture_of(SMALLEST, shape))
    image = program_image(SMALLEST, load_store(shape)) + END_SECTION

    async def main(ctx):
        await machine.begin(ctx, image, picture)
        await machine.register(ctx, "INTERRUPT_ENABLE", 1)
        assert await machine.register(ctx, "CONFIG_HASH") == SMALLEST.hash
        assert await machine.command(ctx, Control.LOAD) == Status.DONE | Status.LOADED
        assert await machine.register(ctx, "READ_BEATS") == len(image) // 16
        assert ctx.get(machine.dut.interrupt)
        for _ in range(2):
            assert await machine.command(ctx, Control.START) == Status.DONE | Status.LOADED
            assert machine.memory[OUTPUT : OUTPUT + len(picture)] == picture
            machine.memory.put(OUTPUT, bytes(len(picture)))
            for side in ("READ", "WRITE"):
                assert await machine.register(ctx, f"{side}_BEATS") == len(picture) // 16
            assert await machine.register(ctx, "CYCLES") > 2 * len(picture) // 16
        await machine.register(ctx, "CONTROL", Control.CLEAR_INTERRUPT)
        await pause(ctx, 2)
        assert not ctx.get(machine.dut.interrupt)
        assert await machine.register(ctx, "STATUS") == Status.LOADED

    machine.simulate(main)


def test_errors_leave_a_working_accelerator():
    machine, shape = Machine(SMALLEST), (2, 2, 2)
    picture = tiles(SMALLEST, picture_of(SMALLEST, shape))
    image = program_image(SMALLEST, load_store(shape)) + END_SECTION

    async def fails(ctx, command, code, status=Status.ERROR):
        assert await machine.command(ctx, command) == status
        assert await machine.register(ctx, "ERROR_CODE") == code

    async def works(ctx):
        machine.put(image)
        machine.memory.fail_read.clear()
        machine.memory.fail_write.clear()
        machine.memory.put(OUTPUT, bytes(len(picture)))
        assert await machine.command(ctx, Control.LOAD) == Status.DONE | Status.LOADED
        assert await machine.command(ctx, Control.START) == Status.DONE | Status.LOADED
        assert machine.memory[OUTPUT : OUTPUT + len(picture)] == picture

    async def main(ctx):
        await machine.begin(ctx, image, picture)
        await fails(ctx, Control.START, ErrorCode.NOT_LOADED)
        machine.put(section(7, [1, 2], 16))
        await fails(ctx, Control.LOAD, ErrorCode.BAD_SECTION)
        await works(ctx)
        machine.put(program_image(SMALLEST, [({"opcode": 11}, [])]) + END_SECTION * 8)
        assert await machine.command(ctx, Control.LOAD) == Status.DONE | Status.LOADED
        await fails(ctx, Control.START, ErrorCode.BAD_OPCODE, Status.ERROR | Status.LOADED)
        await works(ctx)
        machine.memory.fail_read.add(PROGRAM + 32)
        await fails(ctx, Control.LOAD, ErrorCode.AXI_READ)
        await works(ctx)
        machine.memory.fail_read.add(INPUT + 16)
        await fails(ctx, Control.START, ErrorCode.AXI_READ, Status.ERROR | Status.LOADED)
        await works(ctx)
        machine.memory.fail_write.add(OUTPUT + 16)
        await fails(ctx, Control.START, ErrorCode.AXI_WRITE, Status.ERROR | Status.LOADED)
        await works(ctx)

    machine.simulate(main)


@pytest.mark.parametrize("seed", range(3))
def test_reset_at_any_time(seed):
    machine, shape = Machine(SMALLEST, seed), (2, 3, 3)
    picture = tiles(SMALLEST, picture_of(SMALLEST, shape))
    image = program_image(SMALLEST, load_store(shape)) + END_SECTION
    rng = generator(seed)

    async def main(ctx):
        await machine.begin(ctx, image, picture)
        for _ in range(6):
            if rng.randrange(2):
                assert await machine.command(ctx, Control.LOAD) == Status.DONE | Status.LOADED
            await machine.register(ctx, "CONTROL", rng.choice([Control.LOAD, Control.START]))
            await pause(ctx, rng.randrange(150))
            assert await machine.command(ctx, Control.RESET) == 0
            assert machine.memory.quiet
        machine.memory.put(OUTPUT, bytes(len(picture)))
        assert await machine.command(ctx, Control.LOAD) == Status.DONE | Status.LOADED
        assert await machine.command(ctx, Control.START) == Status.DONE | Status.LOADED
        assert machine.memory[OUTPUT : OUTPUT + len(picture)] == picture

    machine.simulate(main)


def end_streams(config):
    """Sections of streams without layers."""
    words = [pack(HEADER_FIELDS, {"end": 1})]
    return b"".join(section(SectionKind.STREAM, words, 9, pe) for pe in range(config.pes))


def layer_of(config, opcode, source, target, result_base):
    """Fields that CONV and POOL share; tiles go to the branches in turn."""
    _, tiles_y, tiles_x = target
    count = tiles_y * tiles_x
    jump_y, jump_x = divmod(config.branches, tiles_x)
    fields = {
        "opcode": opcode,
        "layer": 3,
        "stride": 1,
        "passes": 1,
        "block_words": 8,
        "out_rows_last": config.tile_size,
        "out_columns_last": config.tile_size,
    }
    fields |= tensor("in", source) | tensor("out", target, result_base)
    for branch in range(config.branches):
        first_y, first_x = divmod(branch, tiles_x)
        values = {"tile_y0": first_y, "tile_x0": first_x, "channels": source[0], "group_mask": 1 << branch}
        values |= {"run": 1, "jump_y": jump_y, "jump_x": jump_x}
        values["tiles"] = -(-(count - branch) // config.branches)
        fields |= {f"b{branch}_{name}": value for name, value in values.items()}
    return fields


def run_layer(config, image, picture, expected):
    """LOAD, START; compare the output, return the counters of the layer."""
    machine, counters = Machine(config), []

    async def main(ctx):
        await machine.begin(ctx, image, tiles(config, picture))
        assert await machine.command(ctx, Control.LOAD) == Status.DONE | Status.LOADED
        for _ in range(2):
            assert await machine.command(ctx, Control.START) == Status.DONE | Status.LOADED
            content = tiles(config, expected)
            assert machine.memory[OUTPUT : OUTPUT + len(content)] == content
            machine.memory.put(OUTPUT, bytes(len(content)))
        assert await machine.register(ctx, "LAYER") == 3
        for counter in range(8):
            address = COUNTER_BASE + 32 * 3 + 4 * counter
            counters.append(await read(ctx, machine.bus, address, machine.rng))

    machine.simulate(main)
    return counters


@pytest.mark.parametrize("follows", [Follows.NOTHING, Follows.LOAD])
def test_pool(follows):
    """Largest of each pixel and the pixel right of it."""
    shape = (2, 2, 3)
    picture = picture_of(TINY, shape)
    layer = layer_of(TINY, Opcode.POOL, shape, shape, 100) | {"follows": follows}
    walk = {"tiles": 6, "jump_y": 0, "jump_x": 1, "group_mask": 1 << TINY.branches}
    layer |= {f"b{POOL_BRANCH}_{name}": value for name, value in walk.items()}
    patterns = [{"taps": 1, "fetch": 1}, {"column_offset": 0}, {"column_offset": 1}]
    load, store = load_store(shape, 100)
    image = program_image(TINY, [load, (layer, patterns), store])
    image += end_streams(TINY)
    right = np.pad(picture, ((0, 0), (0, 0), (0, 1)))[:, :, 1:]
    counters = run_layer(TINY, image + END_SECTION, picture, np.maximum(picture, right))
    assert counters[0] > 6 * 2 * 3
    assert counters[1] == 0


def test_conv():
    """Two of three filters take one channel each, the third one adds both with a vertical shift."""
    source, target = (2, 2, 3), (3, 2, 3)
    picture = picture_of(TINY, source) // 2
    config = dataclasses.replace(TINY, lut_branches=0, lut_pes=0)
    layer = layer_of(config, Opcode.CONV, source, target, 100) | {"blocks": 1}
    layer |= {f"b{branch}_table_entries": 3 for branch in range(config.branches)}
    load, store = load_store(source)[0], load_store(target, 100)[1]
    image = program_image(config, [load, (layer, [{"fetch": 1}]), store])
    filters = [[(1, 0, 0)], [(1, 1, 0)], [(1, 0, 1), (1, 1, 1)]]  # weight, channel, row
    header = {"loop_words": 1, "filters": 1, "sets": 3, "blocks": 1}
    words = [pack(HEADER_FIELDS, header), pack(HEADER_FIELDS, {"end": 1})]
    entries = [
        pack(
            TABLE_FIELDS,
            PASS_THROUGH | {"out_channel": pe, "pe": pe, "first": 1, "last": 1, "end_of_pass": pe == 2},
        )
        for pe in range(3)
    ]
    for branch in range(config.branches):
        image += section(SectionKind.TABLE, entries, 9, branch)
        for pe, taps in enumerate(filters):
            word = sum(
                pack(OPERATOR_FIELDS, {"weight": w, "slot": s, "tap": t, "end_of_run": n == len(taps) - 1})
                << OPERATOR_BITS * (6 - len(taps) + n)
                for n, (w, s, t) in enumerate(taps)
            )
            image += section(SectionKind.STREAM, [words[0], word, words[1]], 9, config.first_pe(branch) + pe)
    below = np.pad(picture, ((0, 0), (0, 1), (0, 0)))[:, 1:]
    expected = np.stack([picture[0], picture[1], below[0] + below[1]])
    counters = run_layer(config, image + END_SECTION, picture, expected)
    assert counters[1] == 6 * 4  # tiles times weights
    assert counters[2] == 6 * 3 * 6 - 6 * 4


def test_aresetn_returns_to_the_start():
    machine = Machine(SMALLEST)

    async def main(ctx):
        await machine.begin(ctx, bytes(16), b"")
        assert await machine.register(ctx, "PROGRAM_ADDRESS") != 0
        ctx.set(machine.dut.aresetn, 0)
        await pause(ctx, 3)
        ctx.set(machine.dut.aresetn, 1)
        await wait(ctx, machine.bus.arready)
        assert await machine.register(ctx, "PROGRAM_ADDRESS") == 0
        assert await machine.register(ctx, "STATUS") == 0

    machine.simulate(main)
