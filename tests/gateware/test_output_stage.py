"""Output stage against its models: random tables, parts, residuals and tiles, random stalls on all sides."""

from __future__ import annotations

import numpy as np
import pytest
from layers import mask_outside, set_layer, table_words, to_bytes, to_integer, walk_tiles, write_memory
from stalling import generator, simulate

from espalier.arch.config import load_config
from espalier.arch.feature_layout import tensor_pitch
from espalier.arch.program import Opcode
from espalier_hw.lanes import is_packed, pack_pair_model
from espalier_hw.output_stage import OutputStage
from espalier_hw.pool import LANE_BITS
from espalier_hw.requantise import Requantiser
from espalier_hw.residual import ResidualScale

CONFIG = load_config("tiny")
SIZE, LANES, PES = CONFIG.tile_size, CONFIG.lanes_per_pe, CONFIG.pes_per_branch


def random_layer(rng, opcode, residual=0, reduce=0):
    tiles_y, tiles_x = (1, 1) if reduce else (int(rng.integers(1, 4)), int(rng.integers(2, 4)))
    common = {
        "opcode": opcode,
        "residual": residual,
        "reduce": reduce,
        "passes": int(rng.integers(1, 4)),
        "out_base": int(rng.integers(0, 500)),
        "out_tiles_y": tiles_y,
        "out_tiles_x": tiles_x,
        "out_channels": 40,
        "out_pitch": tensor_pitch(tiles_x),
        "out_pad": int(rng.integers(0, 256)),
        "out_zero": int(rng.integers(0, 256)),
        "out_rows_last": 1 if reduce else int(rng.integers(1, SIZE + 1)),
        "out_columns_last": 1 if reduce else int(rng.integers(1, SIZE + 1)),
        "step_y": 0,
        "step_x": 1,
        "residual_base": int(rng.integers(0, 500)),
        "residual_zero": int(rng.integers(0, 256)),
        "residual_multiplier": int(rng.integers(0, 1 << 16)),
        "residual_shift": int(rng.integers(0, 4)),
    }
    branch = {"tile_y0": 0, "tile_x0": 0, "tiles": tiles_y * tiles_x, "table_base": int(rng.integers(0, 50))}
    return common, branch


def random_table(rng, passes):
    """Entries of all passes; every PE is in every pass, some sums have parts, some are dropped."""
    entries = []
    for _ in range(passes):
        filters = [*range(PES), *rng.integers(0, PES, rng.integers(0, 4))]
        rng.shuffle(filters)
        held = [0] * PES
        for pe in filters:
            parts = min(int(rng.integers(1, 4)), CONFIG.accumulators - held[pe])
            held[pe] += parts
            dropped = rng.random() < 0.15
            bias = int(rng.integers(-(1 << 20), 1 << 20))
            for part in range(parts):
                entries.append(
                    {
                        "multiplier": int(rng.integers(0, 1 << 17)) >> int(rng.integers(0, 17)),
                        "shift": int(rng.integers(0, 4)),
                        "bias": bias,
                        "out_channel": int(rng.integers(0, 40)),
                        "pe": int(pe),
                        "first": int(part == 0),
                        "last": int(part == parts - 1 and not dropped),
                        "high_digit": int(rng.integers(0, 2)),
                        "end_of_pass": 0,
                    }
                )
        entries[-1]["end_of_pass"] = 1
    return entries


def pack_lanes(lanes):
    """Accumulator word of one PE from its lanes."""
    word = 0
    for pair in range(CONFIG.pairs):
        low, high = int(lanes[2 * pair]), int(lanes[2 * pair + 1]) if 2 * pair + 1 < LANES else 0
        word |= pack_pair_model(low, high, is_packed(CONFIG, pair)) << 36 * pair
    return word


class Reference:
    """Runs a layer: what the PEs hold, what residuals are asked for, what is written."""

    def __init__(self, rng, common, branch, entries):
        self.common, self.residuals, self.writes = common, [], []
        self.sums = [[] for _ in range(PES)]
        self.set_sizes = [[] for _ in range(PES)]
        for y, x in walk_tiles(common, branch):
            counts = [0] * PES
            total = np.zeros(LANES, dtype=np.int64)
            for entry in entries:
                lanes = rng.integers(-(1 << 17), 1 << 17, LANES) >> rng.integers(0, 12)
                self.sums[entry["pe"]].append(pack_lanes(lanes))
                counts[entry["pe"]] += 1
                total = (0 if entry["first"] else total) + (lanes << 4 if entry["high_digit"] else lanes)
                if entry["last"]:
                    self.write(rng, y, x, entry["out_channel"], total, entry)
                if entry["end_of_pass"]:
                    for pe in range(PES):
                        self.set_sizes[pe].append(counts[pe])
                    counts = [0] * PES

    def write(self, rng, y, x, channel, total, entry):
        common = self.common
        scaled = np.zeros(LANES, dtype=np.int64)
        if common["residual"]:
            pixels = rng.integers(0, 256, LANES, dtype=np.uint8)
            self.residuals.append(((y, x, channel), pixels))
            scaled = ResidualScale.model(
                pixels, common["residual_zero"], common["residual_multiplier"], common["residual_shift"]
            )
        pixels = Requantiser.model(
            total, entry["bias"], entry["multiplier"], entry["shift"], scaled, common["out_zero"]
        )
        tile = mask_outside(pixels.reshape(SIZE, SIZE), y, x, common)
        self.writes.append(((y, x, channel), tile))


def fake_pe(dut, pe, sums, set_sizes, dice, lazy):
    """Finishes sets after random times, answers drain requests after one to three cycles."""

    async def run(ctx):
        finished, drained, due = 0, 0, None
        sizes = np.cumsum(set_sizes)
        await ctx.tick().until(dut.go)
        while True:
            ctx.set(dut.set_done[pe], 0)
            ctx.set(dut.drain_valid[pe], 0)
            ctx.set(dut.drain_data[pe], 0)
            space = finished < len(set_sizes) and sizes[finished] - drained <= CONFIG.accumulators
            if space and dice.random() >= lazy:
                finished += 1
                ctx.set(dut.set_done[pe], 1)
            if due is not None:
                if due == 0:
                    ctx.set(dut.drain_valid[pe], 1)
                    ctx.set(dut.drain_data[pe], sums[drained])
                    drained += 1
                due = due - 1 if due else None
            _, _, request = await ctx.tick().sample(dut.drain_request[pe])
            if request:
                assert due is None
                assert drained < sizes[finished - 1], "drained before the set was finished"
                due = dice.randrange(3) if lazy else 0

    return run


def residual_memory(dut, residuals, common, dice, lazy):
    """Answers residual requests in order, some cycles later."""

    async def run(ctx):
        asked, pending, answered, cycle = 0, [], 0, 0
        while True:
            ctx.set(dut.residual_request.ready, dice.random() >= lazy)
            ctx.set(dut.residual_valid, 0)
            if pending and pending[0] <= cycle and dice.random() >= lazy:
                ctx.set(dut.residual_valid, 1)
                ctx.set(dut.residual_data, to_integer(residuals[answered][1]))
                answered += 1
                pending.pop(0)
            _, _, valid, ready, request = await ctx.tick().sample(
                dut.residual_request.valid, dut.residual_request.ready, dut.residual_request.payload
            )
            cycle += 1
            if valid and ready:
                address = (request.tile_y, request.tile_x, request.channel)
                assert address == residuals[asked][0]
                assert (request.base, request.pitch, request.channels) == (
                    common["residual_base"],
                    common["out_pitch"],
                    common["out_channels"],
                )
                asked += 1
                pending.append(cycle + 6)

    return run


async def receive_writes(ctx, dut, common, writes, dice, lazy):
    """Compare every word written; returns the cycles from the first to the last one."""
    cycle, first = 0, None
    for position, tile in writes:
        accepted = False
        while not accepted:
            ctx.set(dut.write.ready, dice.random() >= lazy)
            _, _, valid, ready, payload = await ctx.tick().sample(
                dut.write.valid, dut.write.ready, dut.write.payload
            )
            accepted = valid and ready
            cycle += 1
        first = cycle if first is None else first
        address = payload.address
        assert (address.tile_y, address.tile_x, address.channel) == position
        assert (address.base, address.pitch, address.channels) == (
            common["out_base"],
            common["out_pitch"],
            40,
        )
        np.testing.assert_array_equal(to_bytes(payload.data, (SIZE, SIZE)), tile)
    ctx.set(dut.write.ready, 0)
    return cycle - first


def run_layer(rng, common, branch, entries, lazy, seed=1):
    """Simulate one layer twice in a row; returns the cycles between first and last word."""
    branch["table_entries"] = len(entries)
    reference = Reference(rng, common, branch, entries)
    dut = OutputStage(CONFIG)
    spans = []

    async def testbench(ctx):
        await write_memory(ctx, dut.table_write, table_words(entries), branch["table_base"])
        set_layer(ctx, dut, common, branch)
        await ctx.tick()
        ctx.set(dut.go, 1)
        await ctx.tick()
        ctx.set(dut.go, 0)
        spans.append(await receive_writes(ctx, dut, common, reference.writes, generator(seed), lazy))
        if not ctx.get(dut.finished):
            await ctx.tick().until(dut.finished)

    background = [
        fake_pe(dut, pe, reference.sums[pe], reference.set_sizes[pe], generator(seed + 1 + pe), lazy)
        for pe in range(PES)
    ]
    background.append(residual_memory(dut, reference.residuals, common, generator(seed + 9), lazy))
    simulate(dut, testbench, background=background, cycles=20_000)
    return spans[0], len(reference.writes)


@pytest.mark.parametrize("seed", range(6))
@pytest.mark.parametrize("lazy", [0.0, 0.4])
def test_random_layers(seed, lazy):
    rng = np.random.default_rng(seed)
    common, branch = random_layer(rng, Opcode.CONV, residual=seed % 2)
    run_layer(rng, common, branch, random_table(rng, common["passes"]), lazy, seed)


def test_one_entry_every_three_cycles():
    rng = np.random.default_rng(7)
    common, branch = random_layer(rng, Opcode.CONV, residual=1)
    entries = random_table(rng, common["passes"])
    for entry in entries:
        entry["first"] = entry["last"] = 1
    span, words = run_layer(rng, common, branch, entries, lazy=0.0)
    assert span == (words - 1) * CONFIG.output_beats


@pytest.mark.parametrize("reduce", [0, 1])
@pytest.mark.parametrize("lazy", [0.0, 0.4])
def test_pooled_channels(reduce, lazy):
    rng, dice = np.random.default_rng(11), generator(11)
    common, branch = random_layer(rng, Opcode.POOL, reduce=reduce)
    branch |= {"channel0": 5, "channels": 9, "table_entries": 1}
    entry = {"multiplier": 90_000 if reduce else 130_000, "shift": 2, "bias": -300, "first": 1, "last": 1}
    entry["end_of_pass"] = 1
    dut = OutputStage(CONFIG)
    writes, results = [], []
    for y, x in walk_tiles(common, branch):
        for channel in range(5, 14):
            lanes = rng.integers(0, 1 << 12, LANES)
            results.append(sum(int(lane) << LANE_BITS * index for index, lane in enumerate(lanes)))
            total = np.full(LANES, lanes.sum()) if reduce else lanes
            pixels = Requantiser.model(
                total, entry["bias"], entry["multiplier"], entry["shift"], 0 * lanes, common["out_zero"]
            )
            writes.append(((y, x, channel), mask_outside(pixels.reshape(SIZE, SIZE), y, x, common)))

    async def pool(ctx):
        for result in results:
            while dice.random() < lazy:
                await ctx.tick()
            ctx.set(dut.pool_valid, 1)
            ctx.set(dut.pool_result, result)
            await ctx.tick().until(dut.pool_take)
            ctx.set(dut.pool_valid, 0)
            ctx.set(dut.pool_result, (1 << LANES * LANE_BITS) - 1)

    async def testbench(ctx):
        await write_memory(ctx, dut.table_write, table_words([entry]), branch["table_base"])
        set_layer(ctx, dut, common, branch)
        await ctx.tick()
        ctx.set(dut.go, 1)
        await ctx.tick()
        ctx.set(dut.go, 0)
        await receive_writes(ctx, dut, common, writes, generator(3), lazy)
        if not ctx.get(dut.finished):
            await ctx.tick().until(dut.finished)

    simulate(dut, testbench, background=[pool], cycles=20_000)
