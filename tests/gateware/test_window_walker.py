"""Window walker: order of the requests, credits, and what it waits for."""

from __future__ import annotations

import numpy as np
import pytest
from amaranth.hdl import Module
from stage_layers import offer_layer, random_layer, staged
from stalling import generator, simulate

from espalier.arch.config import load_config
from espalier.arch.program import Follows
from espalier_hw.follow_check import FollowCheck
from espalier_hw.window_walker import WindowWalker

CONFIG = load_config("tiny")
SIZE = CONFIG.tile_size


def expected_requests(layer):
    """What `read_request` must give for every window, in order."""
    common, stride = layer.common, layer.common["stride"]
    return [
        {
            "group_mask": layer.branch["group_mask"],
            "base": common["in_base"],
            "pitch": common["in_pitch"],
            "channels": common["in_channels"],
            "tile_y": stride * y + pattern["tile_dy"],
            "tile_x": stride * x + pattern["tile_dx"],
            "channel": channel,
            "tiles_y": common["in_tiles_y"],
            "tiles_x": common["in_tiles_x"],
            "pad": common["in_pad"],
            "row_offset": pattern["row_offset"],
            "stride": stride,
        }
        for (y, x), channel, pattern in layer.words()
        if pattern["fetch"]
    ]


def read_request(payload):
    names = ("base", "pitch", "channels", "tile_y", "tile_x", "channel")
    values = {name: payload.centre[name] for name in names}
    for name in ("group_mask", "tiles_y", "tiles_x", "pad", "row_offset", "stride"):
        values[name] = payload[name]
    return values


def needed_tiles(request):
    """Tiles (y, x) inside the map of the 3x3 neighbourhood; at least the last one counts as needed."""
    rows = range(request["tile_y"] - 1, request["tile_y"] + 2)
    columns = range(request["tile_x"] - 1, request["tile_x"] + 2)
    return {
        (y, x) for y in rows if 0 <= y < request["tiles_y"] for x in columns if 0 <= x < request["tiles_x"]
    }


class Memory:
    """What writers have brought into the feature memory."""

    def __init__(self):
        self.written = {}  # by layer: (y, x, channel) of its input
        self.may_offer = -1  # index of the last layer that can be offered


def writer_words(rng, layer, writers):
    """Words (y, x, channel) that each writer writes, in order, and whether channels ascend."""
    common, channels = layer.common, layer.branch["channels"]
    tiles = [(y, x) for y in range(common["in_tiles_y"]) for x in range(common["in_tiles_x"])]
    split_channels = rng.random() < 0.5
    owner = rng.integers(0, writers, channels if split_channels else len(tiles))
    ordered = bool(rng.random() < 0.6)
    words = []
    for writer in range(writers):
        words.append([])
        for number, tile in enumerate(tiles):
            own = np.flatnonzero(owner == writer) if split_channels else np.arange(channels)
            if split_channels or owner[number] == writer:
                own = own if ordered else rng.permutation(own)
                words[-1] += [(*tile, int(channel)) for channel in own]
    return words, ordered


async def show(ctx, port, values):
    for name, value in values.items():
        ctx.set(port[name], int(value))


async def write_input(ctx, dut, rng, layer, memory):
    """Write the input of `layer` word by word, and tell so a cycle after."""
    follows, index = layer.common["follows"], layer.common["follows_layer"]
    ports = list(dut.progress)
    kinds = {Follows.BRANCHES: ports[:-2], Follows.POOL: ports[-2:-1], Follows.LOAD: ports[-1:]}
    concerned = kinds[Follows(follows)]
    for port in ports:  # those that do not count stand still with the same layer
        await show(ctx, port, {"layer": index, "complete": 0, "written": 0})
    words, ordered = writer_words(rng, layer, len(concerned))
    for port, own in zip(concerned, words, strict=True):
        if not own:
            await show(ctx, port, {"layer": index - 1, "complete": rng.integers(0, 2)})
    memory.written[layer.common["layer"]] = present = set()
    await ctx.tick()
    memory.may_offer = layer.common["layer"]
    left = [list(own) for own in words]
    while any(left):
        writer = int(rng.choice([number for number, own in enumerate(left) if own]))
        for _ in range(int(rng.integers(1, 6))):  # a writer runs ahead of others now and then
            if not left[writer]:
                break
            y, x, channel = left[writer].pop(0)
            present.add((y, x, channel))
            progress = {
                "complete": not left[writer],
                "written": 1,
                "ordered": ordered,
                "final_tile": (y, x) == words[writer][-1][:2],
                "tile_y": y,
                "tile_x": x,
                "channel": channel,
            }
            await show(ctx, concerned[writer], progress)
            await ctx.tick().repeat(int(rng.integers(1, 8)))


@pytest.mark.parametrize("seed", range(4))
def test_walker_asks_in_order_and_for_what_is_there(seed):
    rng, dice = np.random.default_rng(seed), generator(seed)
    dut = WindowWalker(CONFIG)
    m, stage = staged(dut)
    layers, memory = [random_layer(rng, SIZE, index + 1) for index in range(10)], Memory()
    for index, layer in enumerate(layers):
        layer.common["follows"] = int(rng.choice(list(Follows)))
        layer.common["follows_layer"] = index
    expected = [(layer, request) for layer in layers for request in expected_requests(layer)]
    buffered = [0]

    async def supply(ctx):
        for layer in layers:
            if layer.common["follows"]:
                await write_input(ctx, dut, rng, layer, memory)
            else:
                memory.may_offer = layer.common["layer"]

    async def sequence(ctx):
        for index, layer in enumerate(layers):
            while memory.may_offer < layer.common["layer"]:
                await ctx.tick()
            await offer_layer(ctx, stage, dut, layer, index % 2)

    async def receive(ctx):
        for layer, wanted in expected:
            ready = False
            while not ready:
                ready = dice.random() < 0.6
                ctx.set(dut.request.ready, ready)
                _, _, valid, payload = await ctx.tick().sample(dut.request.valid, dut.request.payload)
                ready = ready and valid
            assert read_request(payload) == wanted
            check_present(layer, wanted)
            buffered[0] += 1
            assert buffered[0] <= CONFIG.window_fifo_depth
        ctx.set(dut.request.ready, 1)
        await ctx.tick().repeat(30)
        assert not ctx.get(dut.request.valid)
        assert ctx.get(stage.idle)

    def check_present(layer, wanted):
        if layer.common["follows"]:
            needed = {(y, x, wanted["channel"]) for y, x in needed_tiles(wanted)}
            assert needed <= memory.written[layer.common["layer"]]

    async def take(ctx):
        while True:
            pulse = buffered[0] > 0 and dice.random() < 0.5
            buffered[0] -= pulse
            ctx.set(dut.taken, pulse)
            await ctx.tick()

    simulate(m, supply, sequence, receive, background=[take])


@pytest.mark.parametrize(
    ("follows", "complete", "cycles"),
    [
        (Follows.NOTHING, 0, 1),
        (Follows.BRANCHES, 1, 1),
        (Follows.BRANCHES, 0, 2),
        (Follows.POOL, 0, 2),
        (Follows.LOAD, 0, 2),
    ],
)
def test_walker_rate(follows, complete, cycles):
    """One request a cycle, or every second while writers are at work."""
    rng = np.random.default_rng(1)
    layer = random_layer(rng, SIZE, 2, rests=0)
    layer.patterns = [pattern for pattern in layer.patterns if pattern["fetch"]]
    layer.common |= {
        "follows": follows,
        "follows_layer": 1,
        "pattern_count": len(layer.patterns),
        "passes": 30,
    }
    dut = WindowWalker(CONFIG, depth=1000)
    m, stage = staged(dut)

    async def testbench(ctx):
        ctx.set(dut.request.ready, 1)
        for port in dut.progress:
            far = {"layer": 1, "complete": complete, "written": 1, "tile_y": 255, "tile_x": 255}
            await show(ctx, port, far)
        await offer_layer(ctx, stage, dut, layer, 0)
        while not ctx.get(dut.request.valid):
            await ctx.tick()
        for index in range(60):
            assert ctx.get(dut.request.valid) == (index % cycles == 0)
            await ctx.tick()

    simulate(m, testbench)


def random_progress(rng):
    return {
        "layer": int(rng.integers(4, 6)),
        "complete": int(rng.random() < 0.2),
        "written": int(rng.random() < 0.9),
        "ordered": int(rng.random() < 0.7),
        "final_tile": int(rng.random() < 0.4),
        "tile_y": int(rng.integers(0, 3)),
        "tile_x": int(rng.integers(0, 3)),
        "channel": int(rng.integers(0, 4)),
    }


def test_follow_check_is_its_model():
    rng = np.random.default_rng(3)
    m = Module()
    m.submodules.dut = dut = FollowCheck(CONFIG)

    async def testbench(ctx):
        results = []
        for _ in range(3000):
            progress = [random_progress(rng) for _ in dut.progress]
            need = (int(rng.integers(0, 3)), int(rng.integers(0, 3)))
            channel, follows = int(rng.integers(0, 4)), int(rng.integers(0, 3))
            for port, values in zip(dut.progress, progress, strict=True):
                await show(ctx, port, values)
            ctx.set(dut.layer.follows, follows)
            ctx.set(dut.layer.follows_layer, 5)
            ctx.set(dut.need_y, need[0])
            ctx.set(dut.need_x, need[1])
            ctx.set(dut.channel, channel)
            ctx.set(dut.hold, 1)
            await ctx.tick()
            results.append(ctx.get(dut.passed))
            assert results[-1] == FollowCheck.model(follows, 5, progress, need, channel)
        assert 0.2 < np.mean(results) < 0.9

    simulate(m, testbench)
