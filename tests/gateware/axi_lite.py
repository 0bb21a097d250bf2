"""AXI4-Lite master for simulation, with random delays."""

from __future__ import annotations


async def wait(ctx, signal, *values):
    """Let cycles pass up to the first in which `signal` is high; return the values in that cycle.

    Unlike `tick().until()` this lives through resets.
    """
    while True:
        _, _, high, *sampled = await ctx.tick().sample(signal, *values)
        if high:
            return sampled


async def pause(ctx, cycles):
    """Let cycles pass."""
    for _ in range(cycles):
        await ctx.tick()


async def write(ctx, bus, address, value, rng, strobe=15):
    """One write; address and data come in any order and apart, the answer is taken late."""
    delays = {"aw": rng.randrange(4), "w": rng.randrange(4)}
    fields = {"aw": {"addr": address}, "w": {"data": value, "strb": strobe}}
    while delays:
        for channel in list(delays):
            if delays[channel] == 0:
                for name, content in fields[channel].items():
                    ctx.set(getattr(bus, channel + name), content)
                ctx.set(getattr(bus, f"{channel}valid"), 1)
        _, _, *ready = await ctx.tick().sample(bus.awready, bus.wready)
        for channel, taken in zip(("aw", "w"), ready, strict=True):
            if channel not in delays:
                continue
            if delays[channel] > 0:
                delays[channel] -= 1
            elif taken:
                ctx.set(getattr(bus, f"{channel}valid"), 0)
                del delays[channel]
    await pause(ctx, rng.randrange(1, 5))
    ctx.set(bus.bready, 1)
    (answer,) = await wait(ctx, bus.bvalid, bus.bresp)
    ctx.set(bus.bready, 0)
    assert answer == 0


async def read(ctx, bus, address, rng):
    """One read; the answer is taken late and must not change while it waits."""
    ctx.set(bus.araddr, address)
    ctx.set(bus.arvalid, 1)
    await wait(ctx, bus.arready)
    ctx.set(bus.arvalid, 0)
    ctx.set(bus.araddr, rng.randrange(1 << 16))
    (value,) = await wait(ctx, bus.rvalid, bus.rdata)
    await pause(ctx, rng.randrange(4))
    ctx.set(bus.rready, 1)
    data, answer = await wait(ctx, bus.rvalid, bus.rdata, bus.rresp)
    ctx.set(bus.rready, 0)
    assert (data, answer) == (value, 0)
    return data
