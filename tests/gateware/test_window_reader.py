"""Windows against NumPy: all offsets, groups, rates."""

import itertools

import pytest
from feature_bench import Bench, Tensor, check_window, offsets, small, window_request
from stalling import simulate

from espalier_hw.window_rows import RowSlots


@pytest.mark.parametrize("size", [4, 5, 6, 7, 8])
def test_slots_choose_the_rows_of_every_window(size):
    """Model of the three steps: every start, both strides."""
    slots, ring = RowSlots(size), 3 * size
    for (stride, offset), bank_row in itertools.product(offsets(size), range(3)):
        position = ((bank_row - 1) * size + offset) % ring, stride == 2
        folded = [rows[choice] for rows, choice in zip(slots.candidates, slots.fold(*position), strict=True)]
        turn = slots.turns[slots.turn(*position)[0]]
        turned = [folded[(slot + turn) % slots.count] for slot in range(slots.count)]
        for row, step in enumerate(slots.step(*position)):
            region_row = offset + stride * row
            if region_row < 2 * size:
                expected = ((bank_row - 1) * size + region_row) % ring
                assert turned[(row + step) % slots.count] == expected
            assert step in range(4)


@pytest.mark.parametrize("size", [4, 5, 6, 7, 8])
def test_windows_of_all_offsets(size):
    """Every stride and offset, centres inside and outside the map, two tensors in one memory."""
    config = small(size, branches=1)
    bench = Bench(config, size, stall=0.3)
    first = Tensor(bench.rng, size, 3, 4, 5, 3)
    second = Tensor(bench.rng, size, first.end, 7, 2, 2)
    requests = [
        [
            (tensor, window_request(tensor, bench.rng, *pair, 1 << client))
            for pair in offsets(size)
            for tensor in (first, second)
        ]
        for client in range(2)
    ]
    for sequence in requests:
        bench.rng.shuffle(sequence)
    filled = []

    async def main(ctx):
        await bench.fill(ctx, first)
        await bench.fill(ctx, second, writer=0)
        filled.append(True)
        while bench.answers() < sum(map(len, requests)):
            await ctx.tick()
        await ctx.tick().repeat(20)

    def requester(client):
        async def run(ctx):
            while not filled:
                await ctx.tick()
            sequence = [request for _, request in requests[client]]
            await bench.offer(ctx, bench.dut.window_request[client], sequence)

        return run

    simulate(bench.dut, main, requester(0), requester(1), background=[bench.monitor])
    for sequence, answers in zip(requests, bench.windows, strict=True):
        for (tensor, request), value in zip(sequence, answers, strict=True):
            check_window(config, tensor, request, value)


@pytest.mark.parametrize(
    "masks", [(0b0101, 0b1010, 0b0101, 0b1010), (0b1111,) * 4, (0b0111,) * 3 + (0b1000,)]
)
def test_groups_share_windows(masks):
    """A group's clients get each window in the same cycle, however differently they stall."""
    config = small(4, branches=3, depth=64)
    bench = Bench(config, 6, stall=0.5)
    tensor = Tensor(bench.rng, 4, 0, 3, 3, 2)
    requests = {
        mask: [window_request(tensor, bench.rng, *bench.rng.choice(offsets(4)), mask) for _ in range(40)]
        for mask in sorted(set(masks))
    }
    filled = []

    async def main(ctx):
        await bench.fill(ctx, tensor)
        filled.append(True)
        while bench.answers() < 4 * 40:
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
    """A branch and the pool unit together, or in turn: a window a cycle once it runs."""
    config = small(4, branches=1)
    bench = Bench(config, 7, stall=0.0)
    tensor = Tensor(bench.rng, 4, 0, 3, 3, 2)
    requests = [window_request(tensor, bench.rng, 1, 0, 0) for _ in range(50)]
    filled = []

    async def fill(ctx):
        await bench.fill(ctx, tensor)
        filled.append(True)

    def requester(client):
        async def run(ctx):
            while not filled:
                await ctx.tick()
            mask = 0b11 if groups == 1 else 1 << client
            sequence = [{**request, "group_mask": mask} for request in requests]
            await bench.offer(ctx, bench.dut.window_request[client], sequence)
            await ctx.tick().repeat(30)

        return run

    simulate(bench.dut, fill, requester(0), requester(1), background=[bench.monitor])
    cycles = sorted(set(bench.window_cycles))
    assert len(cycles) == 50 * groups
    assert cycles[-1] - cycles[0] == 50 * groups - 1
