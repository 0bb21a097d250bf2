"""Drives and drains ready/valid streams in simulation with random stalls."""

from __future__ import annotations

import random

from amaranth.sim import Simulator


async def send(ctx, port, payloads, rng, stall=0.4):
    """Offer every payload until it is taken."""
    for payload in payloads:
        while rng.random() < stall:
            await ctx.tick()
        ctx.set(port.payload, payload)
        ctx.set(port.valid, 1)
        ready = False
        while not ready:
            _, _, ready = await ctx.tick().sample(port.ready)
        ctx.set(port.valid, 0)


async def receive(ctx, port, count, rng, stall=0.4):
    """Take `count` payloads."""
    taken = []
    while len(taken) < count:
        ctx.set(port.ready, rng.random() >= stall)
        _, _, valid, ready, payload = await ctx.tick().sample(port.valid, port.ready, port.payload)
        if valid and ready:
            taken.append(payload)
    ctx.set(port.ready, 0)
    return taken


def simulate(design, *testbenches, background=(), cycles=200_000):
    """Run until all testbenches have ended; fail after so many cycles."""
    simulator = Simulator(design)
    simulator.add_clock(1e-8)
    ended = []

    def counted(testbench):
        async def run(ctx):
            await testbench(ctx)
            ended.append(testbench)

        return run

    for testbench in testbenches:
        simulator.add_testbench(counted(testbench))
    for testbench in background:
        simulator.add_testbench(testbench, background=True)
    for _ in range(2 * cycles):
        simulator.advance()
        if len(ended) == len(testbenches):
            return
    raise AssertionError(f"not finished after {cycles} cycles")


def generator(seed):
    """A random generator of its own for every test and side."""
    return random.Random(seed)
