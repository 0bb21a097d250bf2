"""Output stage against its models: layers back to back, parts, residuals, random stalls on all sides."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest
from layers import mask_outside, set_layer, table_words, to_bytes, to_integer, walk_tiles, write_memory
from luts_model import Primitive
from stalling import generator, simulate

from espalier.arch.config import load_config
from espalier.arch.feature_layout import tensor_pitch
from espalier.arch.fields import pack
from espalier.arch.program import COMMON_FIELDS, Opcode
from espalier_hw import luts
from espalier_hw.lanes import is_packed, pack_pair_model
from espalier_hw.output_stage import OutputStage
from espalier_hw.requantise import Requantiser
from espalier_hw.residual import ResidualScale

CONFIG = load_config("tiny")
# An odd number of lanes, the last of which has a slot of its own.
NARROW = replace(CONFIG, pair_spacing_bits=16)
ODD_CONFIG = replace(CONFIG, tile_size=5, output_pairs=4, dsp_pairs=11)
# An odd number of lanes in beats of whole pairs: beside the last lane another high lane is repeated.
WHOLE_BEATS = replace(CONFIG, tile_size=7, output_pairs=5, dsp_pairs=25)


def random_layer(rng, number, residual, size=CONFIG.tile_size):
    tiles_y, tiles_x = int(rng.integers(1, 4)), int(rng.integers(2, 4))
    tiles = int(rng.integers(1, tiles_y * tiles_x + 1))
    common = {
        "opcode": Opcode.CONV,
        "layer": number,
        "ordered": int(rng.integers(0, 2)),
        "residual": int(residual),
        "passes": int(rng.integers(1, 4)),
        "out_base": int(rng.integers(0, 500)),
        "out_tiles_y": tiles_y,
        "out_tiles_x": tiles_x,
        "out_channels": 40,
        "out_pitch": tensor_pitch(tiles_x),
        "out_pad": int(rng.integers(0, 256)),
        "out_zero": int(rng.integers(0, 256)),
        "out_rows_last": int(rng.integers(1, size + 1)),
        "out_columns_last": int(rng.integers(1, size + 1)),
        "residual_base": int(rng.integers(0, 500)),
        "residual_pitch": int(rng.integers(2, 100)),
        "residual_zero": int(rng.integers(0, 256)),
        "residual_multiplier": int(rng.integers(0, 1 << 16)),
        "residual_shift": int(rng.integers(0, 4)),
    }
    first = int(rng.integers(0, tiles_y * tiles_x - tiles + 1))
    branch = {"tile_y0": first // tiles_x, "tile_x0": first % tiles_x, "tiles": tiles}
    branch |= {"run": 1, "jump_y": 0, "jump_x": 1}
    return common, branch


def random_table(rng, passes, pes):
    """Entries of all passes; every PE is in every pass, some sums have parts, some are dropped."""
    entries = []
    for number in range(passes):
        filters = [*range(pes), *rng.integers(0, pes, rng.integers(0, 4))]
        rng.shuffle(filters)
        held = [0] * pes
        for place, pe in enumerate(filters):
            parts = min(int(rng.integers(1, 4)), CONFIG.accumulators - held[pe])
            held[pe] += parts
            final = number == passes - 1 and place == len(filters) - 1
            dropped = rng.random() < 0.15 and not final
            bias = int(rng.integers(-(1 << 20), 1 << 20))
            scale = {
                "multiplier": int(rng.integers(0, 1 << 17)) >> int(rng.integers(0, 17)),
                "shift": int(rng.integers(0, 4)),
                "out_channel": int(rng.integers(0, 40)),
            }
            for part in range(parts):
                entries.append(
                    {
                        **scale,
                        "bias": bias,
                        "pe": int(pe),
                        "first": int(part == 0),
                        "last": int(part == parts - 1 and not dropped),
                        "high_digit": int(rng.integers(0, 2)),
                        "end_of_pass": 0,
                    }
                )
        entries[-1]["end_of_pass"] = 1
    return entries


def pack_lanes(lanes, spacing, dsp_pairs):
    """Accumulator word of one PE from its lanes."""
    word = 0
    for pair, low in enumerate(lanes[::2]):
        low, high = int(low), int(lanes[2 * pair + 1]) if 2 * pair + 1 < len(lanes) else 0
        word |= pack_pair_model(low, high, spacing, is_packed(dsp_pairs, pair)) << 2 * spacing * pair
    return word


class Reference:
    """Runs layers (common, branch, entries): what PEs hold, what residuals are asked for, what is written."""

    def __init__(self, rng, layers, config, pes, dsp_pairs):
        self._rng, self._size, self._dsp_pairs = rng, config.tile_size, dsp_pairs
        self._spacing = config.pair_spacing_bits
        self.residuals = []
        self.writes = [[] for _ in layers]
        self.sums = [[] for _ in range(pes)]
        self.set_sizes = [[] for _ in range(pes)]
        for layer, (common, branch, entries) in enumerate(layers):
            for y, x in walk_tiles(common, branch):
                self._tile(layer, common, y, x, entries)

    def _tile(self, layer, common, y, x, entries):
        counts = [0] * len(self.sums)
        total = np.zeros(self._size**2, dtype=np.int64)
        for entry in entries:
            half = 1 << self._spacing - 1
            lanes = self._rng.integers(-half, half, self._size**2) >> self._rng.integers(0, 12)
            self.sums[entry["pe"]].append(pack_lanes(lanes, self._spacing, self._dsp_pairs))
            counts[entry["pe"]] += 1
            total = (0 if entry["first"] else total) + (lanes << 4 if entry["high_digit"] else lanes)
            if entry["last"]:
                self._write(layer, common, y, x, total, entry)
            if entry["end_of_pass"]:
                for sizes, size in zip(self.set_sizes, counts, strict=True):
                    sizes.append(size)
                counts = [0] * len(self.sums)

    def _write(self, layer, common, y, x, total, entry):
        scaled = np.zeros(self._size**2, dtype=np.int64)
        place = (y, x, entry["out_channel"])
        if common["residual"]:
            pixels = self._rng.integers(0, 256, self._size**2, dtype=np.uint8)
            self.residuals.append((place, pixels, common))
            scaled = ResidualScale.model(
                pixels, common["residual_zero"], common["residual_multiplier"], common["residual_shift"]
            )
        pixels = Requantiser.model(
            total, entry["bias"], entry["multiplier"], entry["shift"], scaled, common["out_zero"]
        )
        self.writes[layer].append((place, mask_outside(pixels.reshape(self._size, self._size), y, x, common)))


def fake_pe(dut, pe, sums, set_sizes, dice, lazy):
    """Finishes sets as far ahead as it has accumulators, answers requests after one to three cycles."""

    async def run(ctx):
        finished, drained, due = 0, 0, None
        sizes = np.cumsum(set_sizes)
        await ctx.tick().until(dut.restart)
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


def residual_memory(dut, residuals, dice, lazy):
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
                place, _, common = residuals[asked]
                assert (request.tile_y, request.tile_x, request.channel) == place
                assert (request.base, request.pitch, request.channels) == (
                    common["residual_base"],
                    common["residual_pitch"],
                    common["out_channels"],
                )
                asked += 1
                pending.append(cycle + 6)

    return run


async def receive_writes(ctx, dut, common, writes, dice, lazy):
    """Compare every word that a layer writes; returns the cycles until each of them."""
    cycle, times = 0, []
    last_tile = writes[-1][0][:2] if writes else None
    for number, (place, tile) in enumerate(writes):
        accepted = False
        while not accepted:
            ctx.set(dut.write.ready, dice.random() >= lazy)
            _, _, valid, ready, payload, busy = await ctx.tick().sample(
                dut.write.valid, dut.write.ready, dut.write.payload, dut.busy
            )
            assert busy
            accepted = valid and ready
            cycle += 1
        times.append(cycle)
        address, marks = payload.address, payload.marks
        assert (address.tile_y, address.tile_x, address.channel) == place
        assert (address.base, address.pitch, address.channels) == (
            common["out_base"],
            common["out_pitch"],
            common["out_channels"],
        )
        assert (marks.layer, marks.ordered) == (common["layer"], common["ordered"])
        assert marks.final_tile == (place[:2] == last_tile)
        assert marks.last == (number == len(writes) - 1)
        np.testing.assert_array_equal(to_bytes(payload.data, tile.shape), tile)
    ctx.set(dut.write.ready, 0)
    return times


async def offer(ctx, dut, common):
    """Announce the next layer."""
    ctx.set(dut.offered.as_value(), pack(COMMON_FIELDS, common))
    ctx.set(dut.offer, 1)
    await ctx.tick()
    ctx.set(dut.offer, 0)


def run_layers(
    rng, layers, lazy, config=CONFIG, seed=1, pes=3, dsp_pairs=6, idle=0, primitives="behavioural"
):
    """Simulate layers one after the other; returns, for each, the cycles from go to each of its words.

    idle: cycles before the first layer, in which the PEs can finish sets.
    """
    base = 0
    words = []
    for _, branch, entries in layers:
        branch |= {"table_base": base, "table_entries": len(entries)}
        base += len(entries)
        words += table_words(entries)
    reference = Reference(rng, layers, config, pes, dsp_pairs)
    dut = OutputStage(config, pes, dsp_pairs, primitives)
    times = []

    async def testbench(ctx):
        await write_memory(ctx, dut.table_write, words)
        # What was before the restart does not count.
        ctx.set(dut.set_done, (1 << pes) - 1)
        await offer(ctx, dut, layers[0][0])
        ctx.set(dut.restart, 1)
        await ctx.tick()
        ctx.set(dut.restart, 0)
        await offer(ctx, dut, layers[0][0])
        for _ in range(idle):
            await ctx.tick()
        for number, (common, branch, _) in enumerate(layers):
            set_layer(ctx, dut, common, branch)
            await ctx.tick()
            ctx.set(dut.go, 1)
            await ctx.tick()
            ctx.set(dut.go, 0)
            if number + 1 < len(layers):
                await offer(ctx, dut, layers[number + 1][0])
            writes = reference.writes[number]
            times.append(await receive_writes(ctx, dut, common, writes, generator(seed), lazy))
            assert not ctx.get(dut.busy)

    background = [
        fake_pe(dut, pe, reference.sums[pe], reference.set_sizes[pe], generator(seed + 1 + pe), lazy)
        for pe in range(pes)
    ]
    background.append(residual_memory(dut, reference.residuals, generator(seed + 9), lazy))
    simulate(dut, testbench, background=background, cycles=40_000)
    return times


@pytest.mark.parametrize("lazy", [0.0, 0.4])
@pytest.mark.parametrize(
    ("config", "pes", "dsp_pairs"),
    [(CONFIG, 3, 6), (CONFIG, 2, 0), (CONFIG, 1, CONFIG.pairs), (ODD_CONFIG, 3, 9), (NARROW, 3, 6)],
    ids=["some", "no", "all", "odd", "narrow"],
)
def test_layers_back_to_back(config, pes, dsp_pairs, lazy):
    rng = np.random.default_rng(pes)
    layers = []
    for number in range(5):
        common, branch = random_layer(rng, number, rng.random() < 0.5, config.tile_size)
        layers.append((common, branch, random_table(rng, common["passes"], pes)))
    run_layers(rng, layers, lazy, config, pes, pes, dsp_pairs)


@pytest.mark.parametrize("config", [CONFIG, ODD_CONFIG, WHOLE_BEATS], ids=["even", "odd", "whole beats"])
def test_every_high_lane_gets_back_what_its_own_low_lane_borrowed(config):
    rng = np.random.default_rng(5)
    common, _ = random_layer(rng, 0, residual=False, size=config.tile_size)
    common |= {"out_zero": 128, "out_rows_last": config.tile_size, "out_columns_last": config.tile_size}
    common |= {"out_tiles_y": 3, "out_tiles_x": 3, "out_pitch": tensor_pitch(3)}
    branch = {"tile_y0": 0, "tile_x0": 0, "tiles": 9, "run": 1, "jump_y": 0, "jump_x": 1}
    # Bytes are sums plus 128, so that a borrow lost or too many shows.
    entry = {"bias": 0, "multiplier": 1 << 13, "shift": 0, "first": 1, "last": 1, "high_digit": 0}
    table = [
        entry | {"pe": 0, "out_channel": channel, "end_of_pass": channel % 8 // 7} for channel in range(24)
    ]
    run_layers(rng, [(common | {"passes": 3}, branch, table)], 0.0, config, 1, 1, config.pairs)


@pytest.mark.parametrize("spacing", [16, 18])
def test_luts_filled_by_hand(spacing, monkeypatch):
    monkeypatch.setattr(luts, "Instance", Primitive)
    config = replace(CONFIG, output_pairs=1, pair_spacing_bits=spacing)
    rng = np.random.default_rng(4)
    common, branch = random_layer(rng, 0, 1)
    layers = [(common, branch, random_table(rng, common["passes"], 2))]
    run_layers(rng, layers, 0.1, config, pes=2, primitives="xilinx")


def plain_layer(rng, number, residual, pes=3, filters=2):
    """Layer of three tiles, one pass and `filters` filters a PE, all of one part."""
    common, branch = random_layer(rng, number, residual)
    common |= {"out_tiles_y": 1, "out_tiles_x": 3, "passes": 1}
    branch |= {"tile_y0": 0, "tile_x0": 0, "tiles": 3}
    entries = [entry for _ in range(filters) for entry in random_table(rng, 1, pes)[:pes]]
    for number, entry in enumerate(entries):
        entry |= {"pe": number % pes, "first": 1, "last": 1, "end_of_pass": int(number == len(entries) - 1)}
    return common, branch, entries


@pytest.mark.parametrize("residual", [0, 1])
def test_no_gaps_between_entries(residual):
    rng = np.random.default_rng(7)
    (times,) = run_layers(rng, [plain_layer(rng, 0, residual)], lazy=0.0)
    assert set(np.diff(times)) == {CONFIG.output_beats}


def test_next_layer_follows_at_once():
    rng = np.random.default_rng(8)
    times = run_layers(rng, [plain_layer(rng, 0, 0), plain_layer(rng, 1, 0)], lazy=0.0, idle=20)
    # Six cycles until a PE is asked, two for its answer, nine stages and the beats of the word; the next
    # layer's offer takes one before the count begins.
    assert [layer[0] for layer in times] == [16 + CONFIG.output_beats, 17 + CONFIG.output_beats]


def test_sets_of_one_accumulator():
    """A PE with a single filter is ahead by as many sets as it has accumulators."""
    rng = np.random.default_rng(9)
    layers = [plain_layer(rng, number, 0, filters=1) for number in range(8)]
    run_layers(rng, layers, lazy=0.0, idle=40)
