"""Maximum or sum over the window words of a channel."""

from __future__ import annotations

from typing import Any

import numpy as np
import numpy.typing as npt
from amaranth.hdl import Array, Cat, Module, Mux, Signal
from amaranth.lib import wiring
from amaranth.lib.wiring import In, Out

from espalier.arch.config import HardwareConfig
from espalier.arch.operators import PACKED_FIELD_BITS, WORD_TAPS
from espalier_hw.carry import add_choice
from espalier_hw.interfaces import word_bits

LANE_BITS = PACKED_FIELD_BITS


class PoolUnit(wiring.Component):
    """One accumulator of 18 bits per lane; takes one tap of a word a cycle, maxima start from 0.

    word_valid, word, taps, channel_end, word_ready: words, `taps` not zero; a word is accepted in the
    cycle of its last tap. result_valid, result, take: after a channel's last word, until `take`; the
    next channel may start in the cycle of `take`. `word_ready` depends on `take` combinationally.
    """

    def __init__(self, config: HardwareConfig) -> None:
        self.config = config
        super().__init__(
            {
                "average": In(1),
                "word_valid": In(1),
                "word": In(word_bits(config)),
                "taps": In(WORD_TAPS),
                "channel_end": In(1),
                "word_ready": Out(1),
                "result_valid": Out(1),
                "result": Out(config.lanes_per_pe * LANE_BITS),
                "take": In(1),
            }
        )

    def elaborate(self, platform: Any) -> Module:
        """Build the block."""
        m = Module()
        row_bits = self.config.tile_size * 8
        tile_bits = self.config.lanes_per_pe * 8
        done, left = Signal(WORD_TAPS), Signal(WORD_TAPS)  # taps of this word that are done, and the others
        tile = Signal(tile_bits, reset_less=True)
        tile_valid, tile_leaves, tile_end = Signal(), Signal(), Signal()
        select, last_tap = Signal(), Signal()
        rest = Signal(WORD_TAPS)
        m.d.comb += [
            left.eq(self.taps & ~done),
            rest.eq(left & (left - 1)),
            last_tap.eq(rest == 0),
            tile_leaves.eq(tile_valid & (~self.result_valid | self.take)),
            select.eq(self.word_valid & (~tile_valid | tile_leaves)),
            self.word_ready.eq(select & last_tap),
        ]
        tap = Signal(range(WORD_TAPS))
        for index in reversed(range(WORD_TAPS)):
            with m.If(left[index]):
                m.d.comb += tap.eq(index)
        with m.If(select):
            m.d.sync += [
                done.eq(Mux(last_tap, 0, ~rest)),
                tile.eq(Array(self.word[k * row_bits :][:tile_bits] for k in range(WORD_TAPS))[tap]),
                tile_end.eq(last_tap & self.channel_end),
            ]
        with m.If(select | tile_leaves):
            m.d.sync += tile_valid.eq(select)
        with m.If(tile_leaves | self.take):
            m.d.sync += self.result_valid.eq(tile_leaves & tile_end)
        self._accumulate(m, tile, tile_leaves, tile_end)
        return m

    def _accumulate(self, m: Module, tile: Signal, tile_leaves: Signal, tile_end: Signal) -> None:
        """Take the selected tile into the lanes.

        The sum adds to the accumulator; the maximum adds to zero, but only where the pixel is larger. So
        both share one adder.
        """
        fresh = Signal(init=1)
        accumulators = []
        with m.If(tile_leaves):
            m.d.sync += fresh.eq(tile_end)
            for lane in range(self.config.lanes_per_pe):
                accumulator = Signal(LANE_BITS, name=f"accumulator_{lane}", reset_less=True)
                accumulators.append(accumulator)
                pixel = tile.word_select(lane, 8)
                kept = Mux(self.average & ~fresh, accumulator, 0)
                with m.If(self.average | fresh | (pixel > accumulator[:8])):
                    m.d.sync += accumulator.eq(add_choice(pixel, kept, LANE_BITS))
        m.d.comb += self.result.eq(Cat(accumulators))

    @staticmethod
    def model(tiles: npt.NDArray[np.uint8], average: bool) -> npt.NDArray[np.int64]:
        """Lanes int64[T*T] of one channel from its tiles uint8[n, T*T], one for each word and tap."""
        wide = tiles.astype(np.int64)
        return wide.sum(axis=0) if average else wide.max(axis=0)
