"""Fetches finished accumulators from the PEs, and cuts them into beats."""

from __future__ import annotations

from typing import Any

from amaranth.hdl import Array, Module, Mux, Signal, Value
from amaranth.lib import data, wiring
from amaranth.lib.wiring import In, Out

from espalier.arch.config import HardwareConfig
from espalier_hw.interfaces import PAIR_BITS, drain_bits
from espalier_hw.or_tree import OrTree
from espalier_hw.table_walker import ENTRY


def beat_layout(config: HardwareConfig) -> data.StructLayout:
    """Layout of what the requantiser gets each cycle: the sums of `output_pairs` lane pairs.

    `index` counts the beats of an entry from 0, `final` marks its last.
    """
    return data.StructLayout(
        {
            "entry": ENTRY,
            "index": range(config.output_beats),
            "final": 1,
            "pairs": config.output_pairs * PAIR_BITS,
        }
    )


def choose_beat(word: Value, bits: int, beats: int, index: Value) -> Value:
    """Part `index` of a word of `beats` parts of `bits` bits; arbitrary past the end of the word."""
    parts = [word[beat * bits : (beat + 1) * bits] for beat in range(beats)]
    return Array(parts)[index[: max(1, (beats - 1).bit_length())]]


def source_ports(config: HardwareConfig, pes: int) -> dict[str, wiring.Member]:
    """Ports towards the PEs, where the sums come from.

    set_done, drain_request, drain_valid, drain_data: one bit, or one word, per PE, see
    `interfaces.pe_signature`.
    """
    return {
        "set_done": In(pes),
        "drain_request": Out(pes),
        "drain_valid": In(pes),
        "drain_data": In(data.ArrayLayout(drain_bits(config), pes)),
    }


class Drain(wiring.Component):
    """One entry every `output_beats` cycles, while sums are ready: the next is fetched during the beats.

    restart: pulse, no PE has finished a set. entry, available, take: from the table walker. Sums come through
    `source_ports`; PEs may have finished sets of the next layer already. residual_there: the residual tile of
    the next entry has arrived (or none is needed); entry_starts: pulse, an entry begins its beats. beat,
    beat_valid: registered, all of this moves on only while `advance` is high.
    """

    def __init__(self, config: HardwareConfig, pes: int, primitives: str = "behavioural") -> None:
        self.config = config
        self._pes, self._primitives = pes, primitives
        super().__init__(
            {
                "restart": In(1),
                "available": In(1),
                "entry": In(ENTRY),
                "take": Out(1),
                **source_ports(config, pes),
                "residual_there": In(1),
                "next_entry": Out(ENTRY),
                "entry_starts": Out(1),
                "advance": In(1),
                "beat_valid": Out(1),
                "beat": Out(beat_layout(config)),
            }
        )

    def elaborate(self, platform: Any) -> Module:
        """Build the block."""
        m = Module()
        # `fetched`: sums of the next entry. `current`: sums whose beats are going out.
        fetched = Signal(drain_bits(self.config), reset_less=True)
        current = Signal(drain_bits(self.config), reset_less=True)
        next_valid, current_valid, last_beat = Signal(), Signal(), Signal()
        current_entry = Signal(ENTRY, reset_less=True)
        index = Signal(range(self.config.output_beats))
        start = self.entry_starts
        m.d.comb += [
            start.eq(next_valid & self.residual_there & (~current_valid | (last_beat & self.advance))),
            last_beat.eq(current_valid & (index == self.config.output_beats - 1)),
        ]
        self._fetch(m, fetched, next_valid)
        with m.If(start):
            m.d.sync += [current.eq(fetched), current_entry.eq(self.next_entry), index.eq(0)]
        with m.Elif(self.advance):
            m.d.sync += index.eq(index + 1)
        with m.If(start | (last_beat & self.advance)):
            m.d.sync += current_valid.eq(start)
        with m.If(self.advance):
            m.d.sync += self.beat_valid.eq(current_valid)
        with m.If(self.advance & current_valid):
            m.d.sync += [
                self.beat.entry.eq(current_entry),
                self.beat.index.eq(index),
                self.beat.final.eq(last_beat),
                self.beat.pairs.eq(
                    choose_beat(
                        current, self.config.output_pairs * PAIR_BITS, self.config.output_beats, index
                    )
                ),
            ]
        return m

    def _fetch(self, m: Module, fetched: Signal, next_valid: Signal) -> None:
        """Take an entry once the one before has moved on; ask its PE when that has finished the set."""
        waiting = Signal()
        next_entry = Signal(ENTRY, reset_less=True)
        finished = self._finished_sets(m)
        arrived = self.drain_valid.any()
        m.d.comb += [
            self.next_entry.eq(next_entry),
            self.take.eq(
                self.available
                & ~waiting
                & (~next_valid | self.entry_starts)
                & finished.bit_select(self.entry.pe, 1)
            ),
        ]
        m.d.sync += self.drain_request.eq(Mux(self.take, 1 << self.entry.pe, 0))
        with m.If(self.take):
            m.d.sync += [next_entry.eq(self.entry), waiting.eq(1)]
        with m.Elif(arrived):
            m.d.sync += waiting.eq(0)
        with m.If(arrived):
            m.d.sync += next_valid.eq(1)
        with m.Elif(self.entry_starts):
            m.d.sync += next_valid.eq(0)
        # PEs that do not answer drive zero.
        m.submodules.everyone = everyone = OrTree(self._pes, drain_bits(self.config), self._primitives)
        m.d.comb += everyone.words.eq(self.drain_data)
        with m.If(arrived):
            m.d.sync += fetched.eq(everyone.word)

    def _finished_sets(self, m: Module) -> Signal:
        """One bit per PE: it has finished a set that is not drained yet.

        Every set has an accumulator at least, so that a PE is ahead by `accumulators` sets at most, and by
        one more when the last entry of a pass is still to come.
        """
        finished = Signal(self._pes)
        pass_drained = self.take & self.entry.end_of_pass
        for pe in range(self._pes):
            count = Signal(range(self.config.accumulators + 2), name=f"finished_{pe}")
            with m.If(self.restart):
                m.d.sync += count.eq(0)
            with m.Elif(self.set_done[pe] ^ pass_drained):
                m.d.sync += count.eq(count + Mux(pass_drained, -1, 1))
            m.d.comb += finished[pe].eq(count != 0)
        return finished
