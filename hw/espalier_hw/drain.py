"""Fetches finished accumulators from the PEs, and cuts them into beats."""

from __future__ import annotations

from typing import Any

from amaranth.hdl import Cat, Module, Mux, Signal
from amaranth.lib import data, wiring
from amaranth.lib.wiring import In, Out

from espalier.arch.config import HardwareConfig
from espalier_hw.beats import beat_slots, choose_beat
from espalier_hw.interfaces import drain_bits
from espalier_hw.or_tree import OrTree
from espalier_hw.table_walker import ENTRY

# Shift registers that go through all states but one: bits, and the bit from 1 that is compared with the last.
_SHIFT_TAPS = {3: 2, 4: 3, 5: 3, 6: 5}


def beat_layout(config: HardwareConfig) -> data.StructLayout:
    """Layout of what the requantiser gets each cycle: the sums of the lanes of one beat, see `beats`.

    `index` counts the beats of an entry from 0, `final` marks its last.
    """
    return data.StructLayout(
        {
            "entry": ENTRY,
            "index": range(config.output_beats),
            "final": 1,
            "sums": len(beat_slots(config)) * config.pair_spacing_bits,
        }
    )


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
        self._bits = config.lanes_per_pe * config.pair_spacing_bits  # the last pair may have only one lane
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
        fetched = Signal(self._bits, reset_less=True)
        current = Signal(self._bits, reset_less=True)
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
                self.beat.sums.eq(
                    choose_beat(current, self.config.pair_spacing_bits, beat_slots(self.config), index)
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
        m.submodules.everyone = everyone = OrTree(self._pes, self._bits, self._primitives)
        m.d.comb += [everyone.words[pe].eq(self.drain_data[pe]) for pe in range(self._pes)]
        with m.If(arrived):
            m.d.sync += fetched.eq(everyone.word)

    def _finished_sets(self, m: Module) -> Signal:
        """One bit per PE: it has finished a set that is not drained yet; a cycle late.

        Every set has an accumulator at least, so that a PE is ahead by `accumulators` sets at most, and by
        one more when the last entry of a pass is still to come. The counters only have to tell whether two
        numbers of sets are equal: shift registers do it, which need fewer LUTs than adders.
        """
        states = self.config.accumulators + 2
        bits = next(bits for bits in _SHIFT_TAPS if (1 << bits) - 1 >= states)
        finished = Signal(self._pes)
        drained = Signal(bits)
        counters = [(drained, self.take & self.entry.end_of_pass)]
        for pe in range(self._pes):
            done = Signal(bits, name=f"done_{pe}")
            counters.append((done, self.set_done[pe]))
            m.d.sync += finished[pe].eq(done != drained)
        for counter, event in counters:
            with m.If(event):
                bit = ~(counter[-1] ^ counter[_SHIFT_TAPS[bits] - 1])
                m.d.sync += counter.eq(Cat(bit, counter))
            with m.If(self.restart):
                m.d.sync += counter.eq(0)
        return finished
