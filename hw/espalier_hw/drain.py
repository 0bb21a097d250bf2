"""Fetches finished accumulators from the PEs, or results from the pool unit, beat by beat."""

from __future__ import annotations

from typing import Any

from amaranth.hdl import Array, Module, Mux, Signal, Value, signed
from amaranth.lib import data, wiring
from amaranth.lib.wiring import In, Out

from espalier.arch.config import HardwareConfig
from espalier.arch.program import Opcode
from espalier_hw.interfaces import LAYER, PAIR_BITS, drain_bits
from espalier_hw.or_tree import OrTree
from espalier_hw.pool import LANE_BITS
from espalier_hw.table_walker import ENTRY

# A layer with `reduce` has two beats more: the sum over the lanes comes out of its adder tree later.
REDUCE_BEATS = 2


def beat_layout(config: HardwareConfig) -> data.StructLayout:
    """Layout of what the requantiser gets each cycle: `output_pairs` pairs of PE sums and of pool lanes.

    One of the two is zero. `index` counts the beats of an entry from 0, `final` marks its last.
    """
    return data.StructLayout(
        {
            "entry": ENTRY,
            "index": range(config.output_beats + REDUCE_BEATS),
            "final": 1,
            "pairs": config.output_pairs * PAIR_BITS,
            "pool": config.output_pairs * 2 * LANE_BITS,
        }
    )


def choose_beat(word: Value, bits: int, beats: int, index: Value) -> Value:
    """Part `index` of a word of `beats` parts of `bits` bits; arbitrary past the end of the word."""
    parts = [word[beat * bits : (beat + 1) * bits] for beat in range(beats)]
    return Array(parts)[index[: max(1, (beats - 1).bit_length())]]


def source_ports(config: HardwareConfig) -> dict[str, wiring.Member]:
    """Ports towards PEs and pool unit, where the sums come from.

    set_done, drain_request, drain_valid, drain_data: one bit, or one word, per PE, see
    `interfaces.pe_signature`. pool_valid, pool_result, pool_take: from the pool unit.
    """
    pes = config.pes_per_branch
    return {
        "set_done": In(pes),
        "drain_request": Out(pes),
        "drain_valid": In(pes),
        "drain_data": In(data.ArrayLayout(drain_bits(config), pes)),
        "pool_valid": In(1),
        "pool_result": In(config.lanes_per_pe * LANE_BITS),
        "pool_take": Out(1),
    }


class Drain(wiring.Component):
    """One entry every `output_beats` cycles, while sums are ready: the next is fetched during the beats.

    entry, available, take: from the table walker. Sums come through `source_ports`. residual_there: the
    residual tile of the next entry has arrived (or none is needed); entry_starts: pulse, an entry begins
    its beats. beat, beat_valid: registered, all of this moves on only while `advance` is high.
    """

    def __init__(self, config: HardwareConfig, primitives: str = "behavioural") -> None:
        self.config = config
        self._primitives = primitives
        super().__init__(
            {
                "go": In(1),
                "layer": In(LAYER),
                "available": In(1),
                "entry": In(ENTRY),
                "take": Out(1),
                **source_ports(config),
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
        pool_current = Signal(self.config.lanes_per_pe * LANE_BITS, reset_less=True)
        next_valid, current_valid, last_beat = Signal(), Signal(), Signal()
        current_entry = Signal(ENTRY, reset_less=True)
        index = Signal(range(self.config.output_beats + REDUCE_BEATS))
        start = self.entry_starts
        pool = Signal()
        m.d.sync += pool.eq(self.layer.opcode == Opcode.POOL)
        m.d.comb += [
            start.eq(next_valid & self.residual_there & (~current_valid | (last_beat & self.advance))),
            self.pool_take.eq(start & pool),
        ]
        self._fetch(m, fetched, next_valid, pool)
        with m.If(start):
            m.d.sync += [
                current.eq(fetched),
                pool_current.eq(Mux(pool, self.pool_result, 0)),
                current_entry.eq(self.next_entry),
                index.eq(0),
            ]
        with m.Elif(self.advance):
            m.d.sync += index.eq(index + 1)
        with m.If(start | (last_beat & self.advance)):
            m.d.sync += current_valid.eq(start)
        self._send(m, current, current_valid, pool_current, current_entry, index, last_beat)
        return m

    def _fetch(self, m: Module, fetched: Signal, next_valid: Signal, pool: Signal) -> None:
        """Take an entry once the one before has moved on; ask its PE when that has finished the set."""
        waiting, held, request = Signal(), Signal(), Signal()
        next_entry = Signal(ENTRY, reset_less=True)
        finished = self._finished_sets(m)
        arrived = self.drain_valid.any()
        m.d.comb += [
            self.next_entry.eq(next_entry),
            next_valid.eq(held & (~pool | self.pool_valid)),
            self.take.eq(
                self.available
                & ~waiting
                & (~held | self.entry_starts)
                & (pool | finished.bit_select(self.entry.pe, 1))
            ),
            request.eq(self.take & ~pool),
        ]
        m.d.sync += self.drain_request.eq(Mux(request, 1 << self.entry.pe, 0))
        with m.If(self.take):
            m.d.sync += next_entry.eq(self.entry)
        with m.If(request):
            m.d.sync += waiting.eq(1)
        with m.Elif(arrived):
            m.d.sync += waiting.eq(0)
        with m.If(arrived | (self.take & pool)):
            m.d.sync += held.eq(1)
        with m.Elif(self.entry_starts):
            m.d.sync += held.eq(0)
        # PEs that do not answer drive zero.
        m.submodules.everyone = everyone = OrTree(
            self.config.pes_per_branch, drain_bits(self.config), self._primitives
        )
        m.d.comb += everyone.words.eq(self.drain_data)
        with m.If(arrived | (self.take & pool)):
            m.d.sync += fetched.eq(everyone.word)

    def _finished_sets(self, m: Module) -> Signal:
        """One bit per PE: it has finished a set that is not drained yet.

        The table drains the sets of all PEs pass by pass; a PE that has no entry in a pass may lag, so
        that its count is below zero for a while.
        """
        finished = Signal(self.config.pes_per_branch)
        pass_drained = self.take & self.entry.end_of_pass & (self.layer.opcode != Opcode.POOL)
        bits = self.config.accumulators.bit_length() + 1
        for pe in range(self.config.pes_per_branch):
            count = Signal(signed(bits), name=f"finished_{pe}")
            with m.If(self.go):
                m.d.sync += count.eq(0)
            with m.Elif(self.set_done[pe] ^ pass_drained):
                m.d.sync += count.eq(count + Mux(pass_drained, -1, 1))
            m.d.comb += finished[pe].eq(count > 0)
        return finished

    def _send(
        self,
        m: Module,
        current: Signal,
        current_valid: Signal,
        pool_current: Signal,
        entry: data.View,
        index: Signal,
        last_beat: Signal,
    ) -> None:
        """Cut the words into beats."""
        beats = self.config.output_beats
        pair_bits = self.config.output_pairs * PAIR_BITS
        lane_bits = self.config.output_pairs * 2 * LANE_BITS
        m.d.comb += last_beat.eq(
            current_valid & (index == Mux(self.layer.reduce, beats + REDUCE_BEATS - 1, beats - 1))
        )
        with m.If(self.advance):
            m.d.sync += self.beat_valid.eq(current_valid)
        with m.If(self.advance & current_valid):
            m.d.sync += [
                self.beat.entry.eq(entry),
                self.beat.index.eq(index),
                self.beat.final.eq(last_beat),
                self.beat.pairs.eq(choose_beat(current, pair_bits, beats, index)),
                self.beat.pool.eq(choose_beat(pool_current, lane_bits, beats, index)),
            ]
            with m.If(index >= beats):
                m.d.sync += self.beat.pool.eq(0)
