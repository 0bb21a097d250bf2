"""The whole feature system against NumPy: windows, residuals, stores, writes, groups, rates."""

import dataclasses

import numpy as np
import pytest
from stalling import generator, send, simulate

from espalier.arch.config import load_config
from espalier.arch.feature_layout import tensor_pitch, tensor_words, tile_position
from espalier_hw.feature_system import FeatureSystem
from espalier_hw.window_reader import window_model

TINY = load_config("tiny")


def small(tile_size, branches=2, depth=256):
    return dataclasses.replace(
        TINY, tile_size=tile_size, branches=branches, feature_depth_words=depth, dsp_pairs=0, uram_banks=2
    )


class Tensor:
    """A random tensor and where it lies."""

    def __init__(self, rng, size, base, tiles_y, tiles_x, channels):
        self.words = np.array(
            rng.choices(range(256), k=tiles_y * tiles_x * channels * size**2), np.uint8
        ).reshape(tiles_y, tiles_x, channels, size**2)
        self.base, self.pitch, self.channels = base, tensor_pitch(tiles_x), channels
        self.tiles_y, self.tiles_x = tiles_y, tiles_x
        self.end = base + tensor_words(tiles_y, tiles_x, channels)

    def address(self, tile_y, tile_x, channel):
        return {
            "base": self.base,
            "pitch": self.pitch,
            "channels": self.channels,
            "tile_y": tile_y,
            "tile_x": tile_x,
            "channel": channel,
        }

    def write(self, tile_y, tile_x, channel):
        data = int.from_bytes(self.words[tile_y, tile_x, channel].tobytes(), "little")
        return {"address": self.address(tile_y, tile_x, channel), "data": data}

    def random_tile(self, rng):
        return rng.randrange(self.tiles_y), rng.randrange(self.tiles_x), rng.randrange(self.channels)

    def all_tiles(self):
        return [tuple(int(i) for i in place) for place in np.ndindex(*self.words.shape[:3])]


def offsets(size):
    """All pairs of stride and row offset that a pattern may have."""
    first = [(1, offset) for offset in range(-(size // 2), size - size // 2)]
    return first + [(2, offset) for offset in range(2 - size, 2)]


def window_request(tensor, rng, stride, offset):
    far = rng.random() < 0.2
    tile_y = rng.randint(-12, tensor.tiles_y + 12) if far else rng.randint(-2, tensor.tiles_y + 1)
    tile_x = rng.randint(-12, tensor.tiles_x + 12) if far else rng.randint(-2, tensor.tiles_x + 1)
    return {
        "centre": tensor.address(tile_y, tile_x, rng.randrange(tensor.channels)),
        "tiles_y": tensor.tiles_y,
        "tiles_x": tensor.tiles_x,
        "pad": rng.randrange(256),
        "row_offset": offset,
        "stride": stride,
    }


def check_window(config, tensor, request, value):
    centre = request["centre"]
    place = centre["tile_y"], centre["tile_x"], centre["channel"]
    expected, defined = window_model(
        tensor.words, place, request["row_offset"], request["stride"], request["pad"]
    )
    got = np.frombuffer(value.to_bytes(config.word_rows * config.window_columns, "little"), np.uint8).reshape(
        config.word_rows, config.window_columns
    )
    assert (got[defined] == expected[defined]).all(), request


class Bench:
    """A feature system with requesters that stall at random, and a monitor that keeps all answers."""

    def __init__(self, config, seed, stall):
        self.config, self.rng, self.stall = config, generator(seed), stall
        self.dut = FeatureSystem(config)
        self.windows = [[] for _ in range(config.branches)]
        self.residuals = [[] for _ in range(config.branches)]
        self.stores, self.trace = [], []
        self.window_cycles, self.cycle = [], 0

    async def offer(self, ctx, stream, payloads):
        await send(ctx, stream, payloads, self.rng, self.stall)

    async def fill(self, ctx, tensor, writer=-1):
        await self.offer(ctx, self.dut.write[writer], [tensor.write(*tile) for tile in tensor.all_tiles()])
        await self.settle(ctx)

    async def settle(self, ctx):
        while not ctx.get(self.dut.idle):
            await ctx.tick()

    async def monitor(self, ctx):
        dut, branches = self.dut, self.config.branches
        valids = [*dut.window_valid, *dut.residual_valid]
        while True:
            _, _, *flags, window, tile, store, written, bank, address, data = await ctx.tick().sample(
                *valids, dut.window_data, dut.tile_data, dut.store_valid, dut.trace_valid,
                dut.trace_bank, dut.trace_address, dut.trace_data,
            )  # fmt: skip
            self.cycle += 1
            for index in range(branches):
                if flags[index]:
                    self.windows[index].append(window)
                    self.window_cycles.append(self.cycle)
                if flags[branches + index]:
                    self.residuals[index].append(tile)
            if store:
                self.stores.append(tile)
            if written:
                self.trace.append((bank, address, data))


@pytest.mark.parametrize("size", [4, 5, 7, 8])
def test_windows_of_all_offsets(size):
    """Every stride and offset, centres inside and outside the map, two tensors in one memory."""
    config = small(size)
    bench = Bench(config, size, stall=0.3)
    first = Tensor(bench.rng, size, 3, 4, 5, 3)
    second = Tensor(bench.rng, size, first.end, 7, 2, 2)
    requests = [
        [
            (tensor, window_request(tensor, bench.rng, *pair))
            for pair in offsets(size)
            for tensor in (first, second)
        ]
        for _ in range(config.branches)
    ]
    for sequence in requests:
        bench.rng.shuffle(sequence)

    async def requester(index, ctx):
        await bench.offer(ctx, bench.dut.window_request[index], [request for _, request in requests[index]])
        await ctx.tick().repeat(20)

    async def main(ctx):
        for index in range(config.branches):
            ctx.set(bench.dut.group_mask[index], 1 << index)
        await bench.fill(ctx, first)
        await bench.fill(ctx, second, writer=0)
        await requester(0, ctx)

    async def other(ctx):
        await ctx.tick().repeat(250)
        await bench.settle(ctx)
        await requester(1, ctx)

    simulate(bench.dut, main, other, background=[bench.monitor])
    for index in range(config.branches):
        assert len(bench.windows[index]) == len(requests[index])
        for (tensor, request), value in zip(requests[index], bench.windows[index], strict=True):
            check_window(config, tensor, request, value)


@pytest.mark.parametrize("stall", [0.0, 0.6])
def test_everything_at_once(stall):
    """Windows, residuals and stores of one tensor while all writers write another one."""
    config = small(4, branches=3)
    bench = Bench(config, 5, stall)
    read = Tensor(bench.rng, 4, 0, 5, 4, 3)
    written = Tensor(bench.rng, 4, read.end, 6, 6, 4)
    windows = [
        [window_request(read, bench.rng, *bench.rng.choice(offsets(4))) for _ in range(60)] for _ in range(3)
    ]
    residuals = [[read.random_tile(bench.rng) for _ in range(50)] for _ in range(3)]
    stores = [read.random_tile(bench.rng) for _ in range(40)]
    tiles = written.all_tiles()
    begun = []

    async def prepare(ctx):
        for index in range(3):
            ctx.set(bench.dut.group_mask[index], 1 << index)
        await bench.fill(ctx, read)
        await ctx.tick()
        bench.trace.clear()
        begun.append(True)
        await finish(ctx)

    async def finish(ctx):
        def answers():
            return sum(map(len, [*bench.windows, *bench.residuals, bench.stores]))

        while answers() < 3 * 60 + 3 * 50 + 40 or len(bench.trace) < len(tiles):
            await ctx.tick()
        await ctx.tick().repeat(30)
        assert answers() == 3 * 60 + 3 * 50 + 40

    def when_begun(stream, payloads):
        async def run(ctx):
            while not begun:
                await ctx.tick()
            await bench.offer(ctx, stream, payloads)

        return run

    dut = bench.dut
    offers = [when_begun(dut.window_request[i], windows[i]) for i in range(3)]
    offers += [
        when_begun(dut.residual_request[i], [read.address(*t) for t in residuals[i]]) for i in range(3)
    ]
    offers += [when_begun(dut.store_request, [read.address(*tile) for tile in stores])]
    offers += [when_begun(dut.write[i], [written.write(*tile) for tile in tiles[i::4]]) for i in range(4)]
    simulate(dut, prepare, *offers, background=[bench.monitor])

    for index in range(3):
        for request, value in zip(windows[index], bench.windows[index], strict=True):
            check_window(config, read, request, value)
        expected = [read.write(*tile)["data"] for tile in residuals[index]]
        assert bench.residuals[index] == expected
    assert bench.stores == [read.write(*tile)["data"] for tile in stores]
    expected_trace = [
        (*tile_position(written.base, written.pitch, written.channels, *tile), written.write(*tile)["data"])
        for tile in tiles
    ]
    assert sorted(bench.trace) == sorted(expected_trace)


@pytest.mark.parametrize(
    "masks", [(0b0101, 0b1010, 0b0101, 0b1010), (0b1111,) * 4, (0b0111,) * 3 + (0b1000,)]
)
def test_groups_share_windows(masks):
    """A group's branches get each window in the same cycle, however differently they stall."""
    config = small(4, branches=4, depth=64)
    bench = Bench(config, 6, stall=0.5)
    tensor = Tensor(bench.rng, 4, 0, 3, 3, 2)
    requests = {
        mask: [window_request(tensor, bench.rng, *bench.rng.choice(offsets(4))) for _ in range(40)]
        for mask in set(masks)
    }
    filled = []

    async def main(ctx):
        for index, mask in enumerate(masks):
            ctx.set(bench.dut.group_mask[index], mask)
        await bench.fill(ctx, tensor)
        filled.append(True)
        while sum(map(len, bench.windows)) < 4 * 40:
            await ctx.tick()
        await ctx.tick().repeat(30)

    def requester(index):
        async def run(ctx):
            while not filled:
                await ctx.tick()
            await bench.offer(ctx, bench.dut.window_request[index], requests[masks[index]])

        return run

    simulate(bench.dut, main, *(requester(index) for index in range(4)), background=[bench.monitor])
    assert len(set(bench.window_cycles)) == 40 * len(set(masks))
    for index, mask in enumerate(masks):
        for request, value in zip(requests[mask], bench.windows[index], strict=True):
            check_window(config, tensor, request, value)


@pytest.mark.parametrize("groups", [1, 2])
def test_one_window_every_cycle(groups):
    """Two branches together, or in turn: a window a cycle once it runs."""
    config = small(4)
    bench = Bench(config, 7, stall=0.0)
    tensor = Tensor(bench.rng, 4, 0, 3, 3, 2)
    requests = [window_request(tensor, bench.rng, 1, 0) for _ in range(50)]
    ready = []

    async def main(ctx):
        for index in range(2):
            ctx.set(bench.dut.group_mask[index], 0b11 if groups == 1 else 1 << index)
        await bench.fill(ctx, tensor)
        ready.append(True)
        await bench.offer(ctx, bench.dut.window_request[0], requests)
        await ctx.tick().repeat(30)

    async def other(ctx):
        while not ready:
            await ctx.tick()
        await bench.offer(ctx, bench.dut.window_request[1], requests)
        await ctx.tick().repeat(30)

    simulate(bench.dut, main, other, background=[bench.monitor])
    cycles = sorted(set(bench.window_cycles))
    assert len(cycles) == 50 * groups
    assert cycles[-1] - cycles[0] == 50 * groups - 1


def test_idle_means_readable():
    """As soon as idle is high after a write, a window shows the new word."""
    config = small(4)
    bench = Bench(config, 8, stall=0.0)
    tensors = [Tensor(bench.rng, 4, 0, 1, 1, 1) for _ in range(20)]
    request = {
        "centre": tensors[0].address(0, 0, 0),
        "tiles_y": 1,
        "tiles_x": 1,
        "pad": 7,
        "row_offset": 0,
        "stride": 1,
    }

    async def main(ctx):
        ctx.set(bench.dut.group_mask[0], 1)
        for tensor in tensors:
            await bench.fill(ctx, tensor, writer=1)
            await bench.offer(ctx, bench.dut.window_request[0], [request])
        await ctx.tick().repeat(30)

    simulate(bench.dut, main, background=[bench.monitor])
    for tensor, value in zip(tensors, bench.windows[0], strict=True):
        check_window(config, tensor, request, value)


def test_latencies_are_those_of_the_architecture_page():
    dut, found = FeatureSystem(TINY), []

    async def measure(ctx):
        for branch in range(TINY.branches):
            ctx.set(dut.group_mask[branch], 1 << branch)
        await ctx.tick()
        for stream, answer in (
            (dut.window_request[0], dut.window_valid[0]),
            (dut.residual_request[0], dut.residual_valid[0]),
            (dut.store_request, dut.store_valid),
            (dut.write[0], dut.trace_valid),
        ):
            assert ctx.get(stream.ready)
            ctx.set(stream.valid, 1)
            await ctx.tick()
            ctx.set(stream.valid, 0)
            cycles = 1
            while not ctx.get(answer):
                await ctx.tick()
                cycles += 1
            found.append(cycles)
            await ctx.tick().repeat(30)

    simulate(dut, measure)
    assert found == [15, 13, 13, 7]
