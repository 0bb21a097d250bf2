"""The FIFO with registers in front, against a queue, with random stalls."""

from __future__ import annotations

from collections import deque

import numpy as np
import pytest
from amaranth.sim import Simulator

from espalier_hw.lutram_fifo import EarlyFifo

DEPTH = 8


@pytest.mark.parametrize(("writes", "reads"), [(0.2, 0.9), (0.9, 0.2), (0.5, 0.5), (1.0, 1.0)])
def test_early_fifo_is_a_queue_that_shows_a_word_a_cycle_after_it_came(writes, reads):
    rng = np.random.default_rng(0)
    dut = EarlyFifo(10, DEPTH, 3)
    seen = set()

    async def testbench(ctx):
        queue = deque()
        for _ in range(600):
            assert ctx.get(dut.available) == bool(queue)
            if queue:
                assert ctx.get(dut.read_data) == queue[0]
            seen.add(len(queue))
            read = bool(queue) and rng.random() < reads
            write = len(queue) < DEPTH and rng.random() < writes
            value = int(rng.integers(1 << 10))
            ctx.set(dut.read, read)
            ctx.set(dut.write, write)
            ctx.set(dut.write_data, value)
            if read:
                queue.popleft()
            if write:
                queue.append(value)
            await ctx.tick()

    sim = Simulator(dut)
    sim.add_clock(1e-6)
    sim.add_testbench(testbench)
    sim.run()
    assert seen >= ({0, DEPTH} if writes == 0.9 else {0, 1})
