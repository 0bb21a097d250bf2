"""Reads that wait for their banks: the oldest one steps aside, so that those behind it need not wait too."""

from __future__ import annotations

from typing import Any

from amaranth.hdl import Cat, Module, Mux, Signal, Value
from amaranth.lib import data, wiring
from amaranth.lib.wiring import In, Out

from espalier_hw.lutram_fifo import EarlyFifo
from espalier_hw.tile_address import ADDRESS_BITS


def read_layout(owners: int) -> data.StructLayout:
    """Return the fields of a read, those that decide first. refusable: takes two cycles; owner: one-hot."""
    return data.StructLayout({"row": 2, "column": 2, "refusable": 1, "owner": owners, "word": ADDRESS_BITS})


class ReadQueue(wiring.Component):
    """Keeps up to `depth` reads, and chooses one a cycle into whose bank no word is written.

    A read that has to wait steps aside, into a register, if there is none yet: from then on it goes before
    the others whenever it can, and otherwise the oldest of them goes, unless it belongs to the same owner.
    When the one aside goes, the next takes its place, so that there is a choice as long as reads wait. The
    reads of an owner keep their order. write, written: another read. coming*: banks into which words
    are about to be written. hold: no read may be chosen. reading, chosen: the choice, in the same cycle.
    """

    def __init__(self, owners: int, depth: int) -> None:
        """`owners`: who reads."""
        self.layout, self.depth = read_layout(owners), depth
        super().__init__(
            {
                "write": In(1),
                "written": In(self.layout),
                "coming": In(1).array(2),
                "coming_row": In(2).array(2),
                "coming_column": In(2).array(2),
                "hold": In(1),
                "reading": Out(1),
                "chosen": Out(self.layout),
            }
        )

    def elaborate(self, platform: Any) -> Module:
        """Two candidates: the one aside, and the oldest in the FIFO."""
        m = Module()
        early = self.layout.size - ADDRESS_BITS
        m.submodules.waiting = waiting = EarlyFifo(self.layout.size, self.depth, early)
        oldest, aside = Signal(self.layout), Signal(self.layout, reset_less=True)
        aside_valid, aside_reads, oldest_reads, steps_aside = Signal(), Signal(), Signal(), Signal()
        oldest_clash = self._clash(oldest)
        blocked = aside_valid & (aside.owner & oldest.owner).any()
        m.d.comb += [
            waiting.write.eq(self.write),
            waiting.write_data.eq(self.written),
            oldest.as_value().eq(waiting.read_data),
            aside_reads.eq(aside_valid & ~self._clash(aside) & ~self.hold),
            oldest_reads.eq(waiting.available & ~oldest_clash & ~self.hold & ~blocked & ~aside_reads),
            steps_aside.eq(waiting.available & (aside_reads | (oldest_clash & ~aside_valid & ~self.hold))),
            waiting.read.eq(oldest_reads | steps_aside),
            self.reading.eq(aside_reads | oldest_reads),
            Value.cast(self.chosen).eq(Mux(aside_valid & ~oldest_reads, aside, oldest)),
        ]
        with m.If(steps_aside):
            m.d.sync += [aside.eq(oldest), aside_valid.eq(1)]
        with m.Elif(aside_reads):
            m.d.sync += aside_valid.eq(0)
        return m

    def _clash(self, read: data.View) -> Value:
        """Whether a word is about to be written into the bank of a read."""
        return Cat(
            coming & (read.row == self.coming_row[port]) & (read.column == self.coming_column[port])
            for port, coming in enumerate(self.coming)
        ).any()
