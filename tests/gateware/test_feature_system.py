"""The whole feature system: everything at once, words seen as soon as they count as written, latencies."""

import pytest
from feature_bench import TINY, Bench, Tensor, check_window, offsets, pixels, small, window_request
from stalling import simulate

from espalier.arch.feature_layout import tile_position
from espalier.arch.program import ring_words
from espalier_hw.feature_system import FeatureSystem


def random_marks(rng):
    return {
        "layer": rng.randrange(256),
        "ordered": rng.randrange(2),
        "final_tile": rng.randrange(2),
        "last": rng.randrange(2),
    }


@pytest.mark.parametrize("rings", [0, 1])
@pytest.mark.parametrize("stall", [0.0, 0.6])
def test_everything_at_once(stall, rings):
    """Windows, residuals and stores of one tensor while all writers write another one; of rings, the ends."""
    branches = 3
    config = small(4, branches, rings=rings)
    bench = Bench(config, 5, stall)
    rng = bench.rng
    read = Tensor(rng, 4, 57 * rings, 5, 4, 3, rings)
    written = Tensor(rng, 4, 122 if rings else read.end, 6, 6, 4, rings)
    windows = [
        [window_request(read, rng, *rng.choice(offsets(4)), 1 << client) for _ in range(60)]
        for client in range(branches + 1)
    ]
    tiles = [[read.random_tile(rng) for _ in range(50)] for _ in range(branches + 1)]
    writes = [
        [(tile, random_marks(rng)) for tile in written.all_tiles()[writer :: branches + 2]]
        for writer in range(branches + 2)
    ]
    total = (60 + 50) * (branches + 1)
    begun = []

    async def main(ctx):
        await bench.fill(ctx, read)
        await ctx.tick()
        bench.trace.clear()
        bench.written[-1].clear()
        begun.append(True)
        while bench.answers() < total or len(bench.trace) < len(written.all_tiles()):
            await ctx.tick()
        await ctx.tick().repeat(30)
        assert bench.answers() == total

    def when_begun(stream, payloads):
        async def run(ctx):
            while not begun:
                await ctx.tick()
            await bench.offer(ctx, stream, payloads)

        return run

    offers = [
        *map(when_begun, bench.dut.window_request, windows),
        *map(when_begun, bench.tile_requests, [[read.address(*tile) for tile in some] for some in tiles]),
        *map(
            when_begun,
            bench.dut.write,
            [[written.write(*tile, marks=marks) for tile, marks in some] for some in writes],
        ),
    ]
    simulate(bench.dut, main, *offers, background=[bench.monitor])
    for requests, answers in zip(windows, bench.windows, strict=True):
        for request, value in zip(requests, answers, strict=True):
            check_window(config, read, request, value)
    assert bench.tiles == [[read.value(tile) for tile in some] for some in tiles]
    assert bench.written == [[(tile, marks, written.value(tile)) for tile, marks in some] for some in writes]
    expected = [
        (
            *tile_position(written.base, written.pitch, written.channels, *tile, ring_words(written.ring)),
            written.value(tile),
        )
        for tile in written.all_tiles()
    ]
    assert sorted(bench.trace) == sorted(expected)


@pytest.mark.parametrize(
    ("uram_banks", "depth", "rest", "base", "ring"),
    [
        (0, 700, 690, 510, 0),
        (9, 700, 700, 510, 0),
        (4, 80, 64, 0, 0),
        (0, 64, 64, 0, 0),
        (0, 1100, 1030, 1023, 0),
        (0, 600, 512, 510, 4),
        (9, 128, 128, 126, 1),
    ],
)
def test_reads_see_what_was_written_before_they_were_requested(uram_banks, depth, rest, base, ring):
    """Few words, all of them rewritten all the time, by all writers, and read by all readers."""
    config = small(4, branches=2, depth=depth, uram_banks=uram_banks, rest=rest, rings=int(ring > 0))
    bench = Bench(config, 9, stall=0.4)
    rng = bench.rng
    # The words lie on both sides of the border between two memories of a bank, if there is one, or of the end
    # of a ring.
    tensor = Tensor(rng, 4, base, 2, 2, 3, ring)
    places = tensor.all_tiles()
    versions = {place: [tensor.value(place)] for place in places}
    promised = [[] for _ in range(6)]  # per reader: place, and the oldest version that may be read
    finished = []

    def pick():
        # Half of all traffic goes to one bank.
        return (0, 0, rng.randrange(3)) if rng.random() < 0.5 else rng.choice(places)

    async def keep(ctx):
        while True:
            _, _, *found = await ctx.tick().sample(*bench.dut.trace, *bench.dut.written_word)
            for trace, word in zip(found[:2], found[2:], strict=True):
                if trace.valid:
                    versions[word.tile_y, word.tile_x, word.channel].append(trace.data)

    def writer(index):
        async def run(ctx):
            await begin(ctx)
            for _ in range(100):
                word = tensor.write(*pick(), data=rng.getrandbits(128))
                await bench.offer(ctx, bench.dut.write[index], [word])

        return run

    def reader(index, stream, request):
        async def run(ctx):
            await begin(ctx)
            for _ in range(80):
                place = pick()
                while rng.random() < 0.3:
                    await ctx.tick()
                promised[index].append((place, len(versions[place]) - 1))
                ctx.set(stream.payload, request(place))
                ctx.set(stream.valid, 1)
                while not (await ctx.tick().sample(stream.ready))[2]:
                    pass
                ctx.set(stream.valid, 0)
            finished.append(index)

        return run

    async def begin(ctx):
        await ctx.tick().repeat(60)

    async def main(ctx):
        await bench.offer(ctx, bench.dut.write[0], [tensor.write(*place) for place in places])
        while len(finished) < 6:
            await ctx.tick()
        await ctx.tick().repeat(200)

    def centre_window(client):
        return lambda place: {
            "group_mask": 1 << client,
            "centre": tensor.address(*place),
            "tiles_y": tensor.tiles_y,
            "tiles_x": tensor.tiles_x,
            "pad": 0,
            "row_offset": 0,
            "stride": 1,
        }

    readers = [
        reader(index, stream, lambda place: tensor.address(*place))
        for index, stream in enumerate(bench.tile_requests)
    ]
    readers += [
        reader(index + 3, stream, centre_window(index))
        for index, stream in enumerate(bench.dut.window_request)
    ]
    writers = [writer(index) for index in range(4)]
    simulate(bench.dut, main, *readers, *writers, background=[bench.monitor, keep])
    answers = bench.tiles + [
        [int.from_bytes(pixels(config, value)[:4, 2:6].tobytes(), "little") for value in values]
        for values in bench.windows
    ]
    for promises, values in zip(promised, answers, strict=True):
        assert len(values) == len(promises) == 80
        for (place, oldest), value in zip(promises, values, strict=True):
            assert value in versions[place][oldest:]


def test_idle_means_readable():
    """As soon as idle is high after a write, a window shows the new word."""
    config = small(4)
    bench = Bench(config, 8, stall=0.0)
    tensors = [Tensor(bench.rng, 4, 0, 1, 1, 1) for _ in range(20)]
    request = {
        "group_mask": 1,
        "centre": tensors[0].address(0, 0, 0),
        "tiles_y": 1,
        "tiles_x": 1,
        "pad": 7,
        "row_offset": 0,
        "stride": 1,
    }

    async def main(ctx):
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
        await ctx.tick()
        for stream, answer in (
            (dut.window_request[0], dut.window_valid[0]),
            (dut.window_request[TINY.branches], dut.window_valid[TINY.branches]),
            (dut.residual_request[0], dut.residual_valid[0]),
            (dut.store_request, dut.store_valid),
            (dut.write[0], dut.trace[0].valid),
            (dut.write[TINY.branches], dut.trace[1].valid),
        ):
            assert ctx.get(stream.ready)
            if hasattr(stream.payload, "group_mask"):
                ctx.set(
                    stream.payload.group_mask, 1 if stream is dut.window_request[0] else 1 << TINY.branches
                )
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
    assert found == [15, 15, 12, 12, 7, 8]
