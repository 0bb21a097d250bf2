"""Extractor against its model."""

from __future__ import annotations

import numpy as np
import pytest
from amaranth.hdl import Module, Signal, signed
from layers import to_bytes, to_integer
from stalling import simulate

from espalier.arch.config import load_config
from espalier_hw.extractor import Extractor, select_columns


def offsets(size, stride):
    return range(2 - size, 2) if stride == 2 else range(-(size // 2), size - size // 2)


@pytest.mark.parametrize("target", ["tiny", "zcu104"])
@pytest.mark.parametrize("stride", [1, 2])
def test_extractor_cuts_every_offset(target, stride):
    config = load_config(target)
    rng = np.random.default_rng(1)
    m = Module()
    m.submodules.extractor = extractor = Extractor(config)
    offset, stride2 = Signal(signed(4)), Signal()
    m.d.comb += extractor.select.eq(select_columns(m, config, offset, stride2))

    async def testbench(ctx):
        ctx.set(extractor.enable, 1)
        ctx.set(stride2, stride == 2)
        for column_offset in offsets(config.tile_size, stride):
            window = rng.integers(0, 256, (config.word_rows, config.window_columns), dtype=np.uint8)
            ctx.set(extractor.window, to_integer(window))
            ctx.set(offset, column_offset)
            await ctx.tick()
            word = to_bytes(ctx.get(extractor.word), (config.word_rows, config.tile_size))
            np.testing.assert_array_equal(word, Extractor.model(config, window, column_offset, stride))

    simulate(m, testbench)
