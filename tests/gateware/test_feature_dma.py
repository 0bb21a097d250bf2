"""LOAD and STORE walkers against the order of tile words in DDR."""

from __future__ import annotations

import dataclasses

import pytest
from stalling import generator, receive, send, simulate

from espalier.arch.config import load_config
from espalier.arch.feature_layout import tensor_pitch
from espalier.arch.fields import pack
from espalier.arch.program import COMMON_FIELDS
from espalier_hw.feature_dma import LoadWalker, StoreWalker, walk
from espalier_hw.interfaces import NO_LAYER, tile_bits

TINY = load_config("tiny")
CONFIGS = [TINY, dataclasses.replace(TINY, tile_size=7), dataclasses.replace(TINY, tile_size=5)]


def tensor(prefix, tiles_y, tiles_x, channels):
    """Descriptor fields of a tensor."""
    return {
        f"{prefix}_base": 77,
        f"{prefix}_tiles_y": tiles_y,
        f"{prefix}_tiles_x": tiles_x,
        f"{prefix}_channels": channels,
        f"{prefix}_pitch": tensor_pitch(tiles_x),
        f"{prefix}_ring": 5,
    }


def check_address(address, position, channels, pitch):
    """The address must name that tile of the tensor."""
    assert (address.tile_y, address.tile_x, address.channel) == position
    assert (address.base, address.channels, address.pitch, address.ring) == (77, channels, pitch, 5)


async def start(ctx, dut, layer, first_row=0):
    """Give the walker a descriptor, of which it keeps a copy."""
    ctx.set(dut.first_row, first_row)
    ctx.set(dut.layer.as_value(), pack(COMMON_FIELDS, layer))
    ctx.set(dut.base_address, 0x8_0000_0000)
    ctx.set(dut.start, 1)
    await ctx.tick()
    for port in (dut.start, dut.first_row, dut.layer.as_value(), dut.base_address):
        ctx.set(port, 0)


@pytest.mark.parametrize("stall", [0.0, 0.4])
@pytest.mark.parametrize("config", CONFIGS, ids=lambda config: f"T{config.tile_size}")
def test_load(config, stall):
    dut, rng = LoadWalker(config), generator(1)
    shape, first = (3, 4, 5), int(stall > 0)
    positions = walk(*shape, first)
    beats = [rng.getrandbits(128) for _ in range(len(positions) * config.word_beats)]

    async def memory(ctx):
        (command,) = await receive(ctx, dut.command, 1, generator(2), stall)
        assert command.address == 0x8_0000_0000 + 0x1000
        assert command.beats == len(beats)
        await send(ctx, dut.beats, [{"data": beat, "last": 0} for beat in beats], generator(3), stall)

    async def features(ctx):
        for number, position in enumerate(positions):
            (write,) = await receive(ctx, dut.write, 1, generator(number), stall)
            check_address(write.address, position, shape[2], 2)
            own = beats[number * config.word_beats :][: config.word_beats]
            word = sum(beat << 128 * index for index, beat in enumerate(own))
            assert write.data == word & ((1 << tile_bits(config)) - 1)
            assert write.marks.last == (number == len(positions) - 1)
            assert (write.marks.layer, write.marks.ordered, write.marks.final_tile) == (NO_LAYER, 1, 0)

    async def command(ctx):
        transfer = {"dram_offset": 0x1000, "dram_words": len(positions)}
        await start(ctx, dut, tensor("out", *shape) | transfer, first)
        await ctx.tick().until(~dut.busy)

    simulate(dut, command, memory, features)


@pytest.mark.parametrize("stall", [0.0, 0.4])
@pytest.mark.parametrize("config", CONFIGS, ids=lambda config: f"T{config.tile_size}")
def test_store(config, stall):
    rng = generator(1)
    shape, first = (2, 4, 5), int(stall > 0)
    words = {position: rng.getrandbits(tile_bits(config)) for position in walk(*shape, first)}
    for store_beats in range(1, config.word_beats + 1):
        expected = [
            words[position] >> 128 * beat & ((1 << 128) - 1)
            for position in words
            for beat in range(store_beats)
        ]
        store(StoreWalker(config), shape, words, store_beats, expected, stall)


def store(dut, shape, words, store_beats, expected, stall):
    """Run one STORE of the last tile rows, those that `words` are of."""
    waiting = []

    async def features(ctx):
        for position in words:
            (request,) = await receive(ctx, dut.request, 1, generator(sum(position)), stall)
            check_address(request, position, shape[2], 2)
            waiting.append(words[position])

    async def answers(ctx):
        rng = generator(4)
        while True:
            ready = waiting and rng.random() >= stall
            ctx.set(dut.tile_valid, bool(ready))
            ctx.set(dut.tile_data, waiting.pop(0) if ready else rng.getrandbits(16))
            await ctx.tick()

    async def engine(ctx):
        (command,) = await receive(ctx, dut.command, 1, generator(2), stall)
        assert command.address == 0x8_0000_0000 + 0x20
        assert command.beats == len(expected)
        beats = await receive(ctx, dut.beats, len(expected), generator(3), stall)
        assert [beat.data for beat in beats] == expected
        assert [beat.last for beat in beats] == [0] * (len(expected) - 1) + [1]
        await ctx.tick().repeat(30)
        assert ctx.get(dut.busy)  # until the last answer is there
        ctx.set(dut.engine_idle, 1)

    async def command(ctx):
        transfer = {"dram_offset": 0x20, "store_beats": store_beats, "dram_words": len(words)}
        await start(ctx, dut, tensor("in", *shape) | transfer, min(words)[0])
        await ctx.tick().until(~dut.busy)

    simulate(dut, command, features, engine, background=[answers])
