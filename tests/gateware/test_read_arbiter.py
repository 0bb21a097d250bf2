"""Read arbiter: groups of clients that ask for the same windows, in changing composition."""

from __future__ import annotations

import numpy as np
import pytest
from amaranth.lib import data
from stalling import generator, send, simulate

from espalier_hw.interfaces import WINDOW_REQUEST
from espalier_hw.read_arbiter import ReadArbiter


def random_request(rng, mask):
    """A request as an integer."""
    bits = int.from_bytes(rng.bytes(WINDOW_REQUEST.size // 8 + 1), "little") & (
        (1 << WINDOW_REQUEST.size) - 1
    )
    return bits & ~((1 << 9) - 1) | mask


def random_layers(rng, clients, layers):
    """Requests of every client: in every layer it belongs to another group, or rests."""
    streams = [[] for _ in range(clients)]
    for _ in range(layers):
        groups = rng.integers(0, clients, clients)
        for group in range(clients):
            members = [client for client in range(clients) if groups[client] == group and rng.random() < 0.9]
            mask = sum(1 << client for client in members)
            requests = [random_request(rng, mask) for _ in range(int(rng.integers(0, 12)))]
            for client in members:
                streams[client] += requests
    return streams


@pytest.mark.parametrize("clients", [1, 3, 5])
@pytest.mark.parametrize("stall", [0, 0.6])
def test_arbiter_serves_groups(clients, stall):
    rng = np.random.default_rng(clients)
    dut = ReadArbiter(clients)
    streams = random_layers(rng, clients, 15)
    left = [list(stream) for stream in streams]

    def requester(client):
        async def run(ctx):
            constants = [WINDOW_REQUEST.from_bits(bits) for bits in streams[client]]
            await send(ctx, dut.window_request[client], constants, generator(client), stall)

        return run

    async def check(ctx):
        while any(left):
            window, request = ctx.get(dut.window), ctx.get(dut.request.as_value())
            if window:
                assert window == request & ((1 << 9) - 1)
                for client in range(clients):
                    if window >> client & 1:
                        assert left[client].pop(0) == request
            await ctx.tick()
        await ctx.tick().repeat(5)
        assert not ctx.get(dut.window)

    simulate(dut, check, *[requester(client) for client in range(clients)])


@pytest.mark.parametrize("masks", [[0b111] * 3, [0b001, 0b010, 0b100], [0b101, 0b010, 0b101]])
def test_arbiter_rate_and_turns(masks):
    """A window a cycle; groups that always wait take turns."""
    dut = ReadArbiter(3)

    async def testbench(ctx):
        for port, mask in zip(dut.window_request, masks, strict=True):
            ctx.set(port.payload.group_mask, mask)
            ctx.set(port.valid, 1)
        await ctx.tick().repeat(6)
        granted = []
        for _ in range(12):
            granted.append(ctx.get(dut.window))
            await ctx.tick()
        turns = len(set(masks))
        assert set(granted) == set(masks)
        assert granted[turns:] == granted[:-turns]

    simulate(dut, testbench)


def test_request_is_what_the_lowest_client_asked_for():
    dut = ReadArbiter(2)
    assert isinstance(WINDOW_REQUEST, data.StructLayout)

    async def testbench(ctx):
        ctx.set(dut.window_request[1].payload, {"group_mask": 3, "pad": 2})
        ctx.set(dut.window_request[1].valid, 1)
        await ctx.tick().repeat(9)
        assert not ctx.get(dut.window)
        ctx.set(dut.window_request[0].payload, {"group_mask": 3, "pad": 1})
        ctx.set(dut.window_request[0].valid, 1)
        cycles = 0
        while not ctx.get(dut.window):
            cycles += 1
            await ctx.tick()
        assert cycles == 3
        assert ctx.get(dut.request.pad) == 1

    simulate(dut, testbench)
