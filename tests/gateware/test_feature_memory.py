"""Addresses, banks, write port."""

import dataclasses
import random

import pytest
from amaranth.sim import Simulator

from espalier.arch.config import load_config
from espalier.arch.feature_banks import bank_parts
from espalier.arch.feature_layout import tile_position
from espalier.arch.program import RING_CODES, ring_words
from espalier_hw.feature_memory import FeatureBank
from espalier_hw.tile_address import TileAddress
from espalier_hw.write_port import WritePort

TINY = load_config("tiny")


def simulate(dut, *processes):
    simulator = Simulator(dut)
    simulator.add_clock(1e-8)
    for process in processes:
        simulator.add_testbench(process)
    simulator.run()


def random_address(rng, words=1 << 13):
    return {
        "base": rng.randrange(words),
        "pitch": rng.choice([1, 2, 6, 11, 127]),
        "channels": rng.choice([1, 3, 64, 512, 8191]),
        "tile_y": rng.choice([rng.randint(-512, 511), rng.randint(-3, 40)]),
        "tile_x": rng.choice([rng.randint(-512, 511), rng.randint(-3, 40)]),
        "channel": rng.randrange(words),
    }


def position_of(address):
    code = address.get("ring", 0)
    return tile_position(**{**address, "ring": ring_words(code)})


@pytest.mark.parametrize("rings", [False, True])
def test_tile_address_matches_the_layout(rings):
    dut = TileAddress(rings)
    rng = random.Random(1)
    addresses = [random_address(rng) for _ in range(300)]
    addresses += [{**random_address(rng), "tile_y": y, "tile_x": -1 - y} for y in range(-512, 512)]
    if rings:
        addresses = [{**address, "ring": rng.randrange(RING_CODES)} for address in addresses]

    async def bench(ctx):
        for cycle in range(len(addresses) + dut.LATENCY):
            if cycle >= dut.LATENCY:
                address = addresses[cycle - dut.LATENCY]
                bank, word = position_of(address)
                assert ctx.get(dut.bank_row) * 3 + ctx.get(dut.bank_column) == bank
                assert ctx.get(dut.word) == word % 8192
                assert ctx.get(dut.row_step) == address["pitch"] * address["channels"] % 8192
                assert ctx.get(dut.channels) == address["channels"]
                assert ctx.get(dut.row_back) == -address["pitch"] * address["channels"] % 8192
                assert ctx.get(dut.channels_back) == -address["channels"] % 8192
            if cycle < len(addresses):
                ctx.set(dut.address, addresses[cycle])
            await ctx.tick()

    simulate(dut, bench)


@pytest.mark.parametrize(
    ("depth", "parts"),
    [
        *((3072, [2048, 1024]), (2560, [2048, 512]), (1024, [1024]), (64, [64])),
        *((1700, [1024, 676]), (1500, [1024, 476]), (600, [600])),
    ],
)
def test_block_ram_parts(depth, parts):
    assert bank_parts(depth) == parts


@pytest.mark.parametrize(
    ("depth", "ultra", "small"),
    [(64, False, 0), (1100, False, 1024), (1100, True, 1100), (700, False, 700), (1700, False, 1700)],
)
def test_bank(depth, ultra, small):
    """Windows on one port, writes or single reads on the other; in words from `small` one read at a time."""
    dut = FeatureBank(depth, 24, ultra)
    rng = random.Random(2)
    memory = [0] * depth
    hot = [0, depth - 1, depth // 2, *(a for a in (511, 512, 1023, 1024, 1025) if a < depth)]

    async def bench(ctx):
        expected = [None] * (dut.LATENCY + 1)
        tiles = [0] * (dut.TILE_LATENCY + 1)
        for _ in range(1000):
            read, write, tile = rng.random() < 0.6, rng.random() < 0.4, rng.random() < 0.7
            read_address, write_address, tile_address = (rng.choice(hot) for _ in range(3))
            tile = tile and (tile_address >= small or not write)
            refused = tile and read and small <= min(tile_address, read_address)
            data = rng.randrange(1 << 24)
            ctx.set(dut.read_enable, read)
            ctx.set(dut.read_address, read_address)
            ctx.set(dut.tile_enable, tile)
            ctx.set(dut.tile_address, tile_address)
            ctx.set(dut.write_enable, write)
            ctx.set(dut.write_address, write_address)
            ctx.set(dut.write_data, data)
            expected = [*expected[1:], memory[read_address] if read else expected[-1]]
            tiles = [*tiles[1:], memory[tile_address] if tile and not refused else 0]
            assert ctx.get(dut.tile_refused) == refused
            if write:
                memory[write_address] = data
            await ctx.tick()
            if expected[1] is not None:
                assert ctx.get(dut.read_data) == expected[1]
            words = [ctx.get(word) for word in dut.tile_words]
            assert sum(words) == max(words) == tiles[1]

    simulate(dut, bench)


@pytest.mark.parametrize("yields", [False, True])
@pytest.mark.parametrize("density", [1.0, 0.3])
def test_write_port(density, yields):
    config = dataclasses.replace(TINY, branches=2)
    dut = WritePort(config, 3, yields)
    rng = random.Random(3)
    sent = [[] for _ in range(3)]
    received, reported = [], [[] for _ in range(3)]
    cycles = 300
    state = {"accepted": 0, "written": 0}

    def writer(index):
        async def bench(ctx):
            stream = dut.write[index]
            for _ in range(cycles):
                valid = rng.random() < density
                marks = {"layer": rng.randrange(256), "ordered": 1, "final_tile": 0, "last": rng.randrange(2)}
                word = {"address": random_address(rng), "marks": marks, "data": rng.randrange(1 << 128)}
                ctx.set(stream.valid, valid)
                ctx.set(stream.payload, word)
                while True:
                    _, _, ready = await ctx.tick().sample(stream.ready)
                    if not valid or ready:
                        break
                if valid:
                    sent[index].append(word)
            ctx.set(stream.valid, 0)

        return bench

    async def monitor(ctx):
        busy, idle_while_under_way, announced, others = 0, 0, None, [None, None]
        while True:
            ready = [dut.write[i].ready for i in range(3)]
            valid = [dut.write[i].valid for i in range(3)]
            coming = dut.coming, dut.coming_row, dut.coming_column
            _, _, *values = await ctx.tick().sample(
                *ready, *valid, *coming, dut.enable, dut.address, dut.data, dut.bank, dut.idle,
                dut.written, dut.written_word,
            )  # fmt: skip
            *handshakes, comes, row, column, enable, address, data, bank, idle, written, word = values
            idle_while_under_way += idle and state["accepted"] != state["written"]
            state["accepted"] += sum(handshakes[i] & handshakes[i + 3] for i in range(3))
            if not yields:
                assert announced == (bank if enable else None)
            elif enable:
                assert announced == bank != others[-2]
            other = rng.randrange(9) if yields and rng.random() < 0.5 else None
            others.append(other)
            ctx.set(dut.other_coming, other is not None)
            ctx.set(dut.other_row, (other or 0) // 3)
            ctx.set(dut.other_column, (other or 0) % 3)
            announced = 3 * row + column if comes else None
            if enable:
                assert enable == 1 << bank
                received.append((bank, address, data))
                state["written"] += 1
                place = word.tile_y, word.tile_x, word.channel, word.marks.layer, word.marks.last
                reported[written.bit_length() - 1].append((*place, data))
            assert written.bit_count() == (enable != 0)
            busy += 1
            if idle and busy > cycles and state["accepted"] == state["written"] and not any(handshakes[3:]):
                break
        assert idle_while_under_way == 0
        if density == 1.0 and not yields:
            assert busy < 3 * cycles + 20

    simulate(dut, *(writer(index) for index in range(3)), monitor)
    expected = [(*_wrapped(position_of(word["address"])), word["data"]) for stream in sent for word in stream]
    assert sorted(received) == sorted(expected)
    assert reported == [[_report(word) for word in stream] for stream in sent], (
        "writers' words keep their order"
    )


def _report(word):
    address, marks = word["address"], word["marks"]
    coordinates = address["tile_y"] % 256, address["tile_x"] % 256, address["channel"]
    return *coordinates, marks["layer"], marks["last"], word["data"]


def _wrapped(position):
    bank, word = position
    return bank, word % 8192
