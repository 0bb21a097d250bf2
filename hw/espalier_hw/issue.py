"""Decides each cycle whether a PE's next operator may start, and where its operands and its sum lie."""

from __future__ import annotations

from typing import Any

from amaranth.hdl import Module, Mux, Signal, signed, unsigned
from amaranth.lib import data, stream, wiring
from amaranth.lib.wiring import In, Out

from espalier.arch.config import HardwareConfig
from espalier_hw.stream_fetch import OPERATOR


def issue_layout(config: HardwareConfig) -> data.StructLayout:
    """Return what the datapath needs for one operator; without one weight, load, store and set_end are 0.

    load: the sum starts from C instead of P; clear: C is zero instead of the accumulator;
    store: P goes to the accumulator; set_end: that was the last store of a set.
    """
    return data.StructLayout(
        {
            "address": unsigned((config.ring_words - 1).bit_length()),
            "tap": unsigned(2),
            "weight": signed(4),
            "accumulator": unsigned((config.accumulators - 1).bit_length()),
            "load": unsigned(1),
            "clear": unsigned(1),
            "store": unsigned(1),
            "set_end": unsigned(1),
        }
    )


class Issue(wiring.Component):
    """Walks sets, blocks and filters along with the operators and stalls them where they must wait.

    freed: pulse, one accumulator has been drained. issued: registered, see `issue_layout`.
    Other ports as in `interfaces.pe_signature`; `filters` must be valid with the first operator and,
    like `blocks`, at least 1 while sets are left.
    """

    def __init__(self, config: HardwareConfig) -> None:
        self._config = config
        super().__init__(
            {
                "restart": In(1),
                "start": In(1),
                "sets": In(19),
                "blocks": In(13),
                "block_words": In(5),
                "filters": In(6),
                "operators": In(stream.Signature(OPERATOR)),
                "commit": In(1),
                "freed": In(1),
                "issued": Out(issue_layout(config)),
                "release": Out(1),
                "operator_issued": Out(1),
                "null_issued": Out(1),
                "ring_empty": Out(1),
                "accumulators_full": Out(1),
            }
        )

    def elaborate(self, platform: Any) -> Module:
        """Decision and output registers; the counters are in helpers."""
        m = Module()
        operator, issued = self.operators.payload, self.issued
        # The next operator is the first of a run, of a set; it lies in the first block, the last filter...
        self._new_run, self._new_set, self._first_block = Signal(init=1), Signal(init=1), Signal(init=1)
        self._last_filter, self._last_block = Signal(), Signal()
        self._single = Signal()
        self._issue, self._run_end = Signal(), Signal()
        self._block_end, self._set_end = Signal(), Signal()
        active = self._set_counter(m)
        has_block, base = self._ring_counter(m)
        has_room, accumulator = self._accumulator_counter(m)
        waiting = self.operators.valid & active
        m.d.comb += [
            self._issue.eq(waiting & has_block & (has_room | ~self._new_set)),
            self.operators.ready.eq(self._issue),
            self._run_end.eq(self._issue & operator.end_of_run),
            self._block_end.eq(self._run_end & self._last_filter),
            self._set_end.eq(self._block_end & self._last_block),
        ]
        self._position(m)
        m.d.sync += [
            # Slots are smaller than a block, so that base and slot never share a bit.
            issued.address.eq(base | operator.slot),
            issued.tap.eq(operator.tap),
            issued.weight.eq(Mux(self._issue, operator.weight, 0)),
            issued.accumulator.eq(accumulator),
            # A single filter's sum simply stays in P from block to block.
            issued.load.eq(self._issue & self._new_run & (self._first_block | ~self._single)),
            issued.clear.eq(self._first_block),
            issued.store.eq(self._run_end),
            issued.set_end.eq(self._set_end),
            self.release.eq(self._block_end),
            self.operator_issued.eq(self._issue & (operator.weight != 0)),
            self.null_issued.eq(self._issue & (operator.weight == 0)),
            self.ring_empty.eq(waiting & ~has_block),
            self.accumulators_full.eq(waiting & has_block & self._new_set & ~has_room),
        ]
        return m

    def _set_counter(self, m: Module) -> Signal:
        """Count the sets of the layer down; return a level that is high while one is left."""
        active = Signal()
        left = Signal.like(self.sets)
        with m.If(self._set_end):
            m.d.sync += left.eq(left - 1)
            with m.If(left == 1):
                m.d.sync += active.eq(0)
        with m.If(self.start):
            m.d.sync += [left.eq(self.sets), active.eq(self.sets != 0)]
        return active

    def _position(self, m: Module) -> None:
        """Filter inside the block and block inside the set, both counted from 1."""
        filter_number = Signal.like(self.filters, init=1)
        block = Signal.like(self.blocks, init=1)
        m.d.comb += [
            self._last_filter.eq(filter_number == self.filters),
            self._last_block.eq(block == self.blocks),
            self._single.eq(self.filters == 1),
        ]
        with m.If(self._issue):
            m.d.sync += [self._new_run.eq(self.operators.payload.end_of_run), self._new_set.eq(self._set_end)]
        with m.If(self._run_end):
            m.d.sync += filter_number.eq(Mux(self._last_filter, 1, filter_number + 1))
        with m.If(self._block_end):
            m.d.sync += [
                block.eq(Mux(self._last_block, 1, block + 1)),
                self._first_block.eq(self._last_block),
            ]
        with m.If(self.start):
            m.d.sync += [self._new_run.eq(1), self._new_set.eq(1), self._first_block.eq(1)]
            m.d.sync += [filter_number.eq(1), block.eq(1)]

    def _ring_counter(self, m: Module) -> tuple[Signal, Signal]:
        """Blocks in the ring; returns (at least one is complete, ring address of the oldest)."""
        available = Signal(range(self._config.ring_words // 8 + 1))
        base = Signal(self.issued.address.shape())
        has_block = Signal()
        m.d.comb += has_block.eq(available != 0)
        with m.If(self.commit & ~self._block_end):
            m.d.sync += available.eq(available + 1)
        with m.Elif(~self.commit & self._block_end):
            m.d.sync += available.eq(available - 1)
        with m.If(self._block_end):
            m.d.sync += base.eq(base + self.block_words)
        with m.If(self.start):
            m.d.sync += [available.eq(0), base.eq(0)]
        return has_block, base

    def _accumulator_counter(self, m: Module) -> tuple[Signal, Signal]:
        """Free accumulators; returns (enough for a set, index of the current filter's accumulator)."""
        count = self._config.accumulators
        free = Signal(range(count + 1), init=count)
        index = Signal(self.issued.accumulator.shape())
        base = Signal.like(index)
        has_room, set_start = Signal(), Signal()
        m.d.comb += [has_room.eq(free >= self.filters), set_start.eq(self._issue & self._new_set)]
        m.d.sync += free.eq(free + self.freed - Mux(set_start, self.filters, 0))
        following = index + 1
        with m.If(self._run_end):
            m.d.sync += index.eq(Mux(self._last_filter & ~self._last_block, base, following))
        with m.If(self._set_end):
            m.d.sync += base.eq(following)
        with m.If(self.restart):
            m.d.sync += [free.eq(count), index.eq(0), base.eq(0)]
        return has_room, index
