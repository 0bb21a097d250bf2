"""Decides each cycle whether a PE's next operator may start, and where its operands and its sum lie."""

from __future__ import annotations

from typing import Any

from amaranth.hdl import Cat, Module, Mux, Signal, signed, unsigned
from amaranth.lib import data, stream, wiring
from amaranth.lib.wiring import In, Out

from espalier.arch.config import HardwareConfig
from espalier_hw.stream_fetch import HEADER, OPERATOR


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
    """Walks layers, sets, blocks and filters along with the operators and stalls them where they must wait.

    layers: headers of layers with at least one set, block and filter; taken with the last operator of the
    layer before, and `operators` must be those of the new layer from then on. freed: pulse, one accumulator
    has been drained. issued: registered, see `issue_layout`. Other ports as in `interfaces.pe_signature`.
    """

    def __init__(self, config: HardwareConfig) -> None:
        self._config = config
        super().__init__(
            {
                "restart": In(1),
                "layers": In(stream.Signature(HEADER)),
                "operators": In(stream.Signature(OPERATOR)),
                "commit": In(1),
                "freed": In(1),
                "issued": Out(issue_layout(config)),
                "release": Out(1),
                "release_wide": Out(1),
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
        # The next operator is the first of a run, of a set; it lies in the first block, the last run...
        self._new_run, self._new_set, self._first_block = Signal(init=1), Signal(init=1), Signal(init=1)
        self._last_run, self._last_block = Signal(), Signal()
        self._single = Signal()
        self._issue, self._run_end = Signal(), Signal()
        self._block_end, self._set_end = Signal(), Signal()
        self._layer = Signal(HEADER, reset_less=True)
        active = self._set_counter(m)
        has_block, address = self._ring_counter(m)
        has_room, accumulator = self._accumulator_counter(m)
        waiting = self.operators.valid & active
        m.d.comb += [
            self._issue.eq(waiting & has_block & (has_room | ~self._new_set)),
            self.operators.ready.eq(self._issue),
            self._run_end.eq(self._issue & operator.end_of_run),
            self._block_end.eq(self._run_end & self._last_run),
            self._set_end.eq(self._block_end & self._last_block),
        ]
        self._position(m)
        m.d.sync += [
            issued.address.eq(address),
            issued.tap.eq(operator.tap),
            issued.weight.eq(Mux(self._issue, operator.weight, 0)),
            issued.accumulator.eq(accumulator),
            # A single filter's sum simply stays in P from block to block.
            issued.load.eq(self._issue & self._new_run & (self._first_block | ~self._single)),
            issued.clear.eq(self._first_block),
            issued.store.eq(self._run_end),
            issued.set_end.eq(self._set_end),
            self.release.eq(self._block_end),
            self.release_wide.eq(self._layer.wide_blocks),
            self.operator_issued.eq(self._issue & (operator.weight != 0)),
            self.null_issued.eq(self._issue & (operator.weight == 0)),
            self.ring_empty.eq(waiting & ~has_block),
            self.accumulators_full.eq(waiting & has_block & self._new_set & ~has_room),
        ]
        return m

    def _set_counter(self, m: Module) -> Signal:
        """Count sets, take the next layer after the last one; return a level: a layer runs."""
        active, last = Signal(), Signal()
        number = Signal.like(self._layer.sets, init=1)
        layers = self.layers
        m.d.comb += [
            last.eq(number == self._layer.sets),
            layers.ready.eq(~active | (self._set_end & last)),
        ]
        with m.If(self._set_end):
            m.d.sync += number.eq(Mux(last, 1, number + 1))
        with m.If(layers.ready):
            m.d.sync += active.eq(layers.valid)
            with m.If(layers.valid):
                m.d.sync += self._layer.eq(layers.payload)
        with m.If(self.restart):
            m.d.sync += [active.eq(0), number.eq(1)]
        return active

    def _position(self, m: Module) -> None:
        """Filter inside the block and block inside the set, which is counted from 1."""
        filters, skip = self._layer.filters, self.operators.payload.skip
        # Counts up to -2 in the last filter: the layer's number inverted is where that begins.
        left = Signal(len(filters), reset_less=True)
        block = Signal.like(self._layer.blocks, init=1)
        near_end, carry = left[2:].all(), left[1] & (left[0] | skip)
        m.d.comb += [
            # The last filter, or the one before the last if the last is left out.
            self._last_run.eq(near_end & (left[1] | (left[0] & skip))),
            self._last_block.eq(block == self._layer.blocks),
            self._single.eq(self._layer.filters == 1),
        ]
        with m.If(self._issue):
            m.d.sync += [self._new_run.eq(self.operators.payload.end_of_run), self._new_set.eq(self._set_end)]
        # Before the first operator of a layer there are cycles enough to begin with its number.
        with m.If(self._block_end | (self._new_set & ~self._issue)):
            m.d.sync += left.eq(~filters)
        with m.Elif(self._run_end):
            m.d.sync += left.eq(Cat(left[0] ^ ~skip, left[1] ^ (left[0] | skip), left[2:] + carry))
        with m.If(self._block_end):
            m.d.sync += [
                block.eq(Mux(self._last_block, 1, block + 1)),
                self._first_block.eq(self._last_block),
            ]
        with m.If(self.restart):
            m.d.sync += [self._new_run.eq(1), self._new_set.eq(1), self._first_block.eq(1)]
            m.d.sync += block.eq(1)

    def _ring_counter(self, m: Module) -> tuple[Signal, Signal]:
        """Blocks in the ring; returns (at least one is complete, ring address of the operator's word)."""
        eighths = self._config.ring_words // 8
        available = Signal(range(eighths + 1))
        base = Signal(range(eighths))  # in units of 8 words, the smallest block
        has_block, address = Signal(), Signal(self.issued.address.shape())
        slot = self.operators.payload.slot
        m.d.comb += [
            has_block.eq(available != 0),
            address.eq(Cat(slot[:3], (base + slot[3])[: len(base)])),
        ]
        with m.If(self.commit & ~self._block_end):
            m.d.sync += available.eq(available + 1)
        with m.Elif(~self.commit & self._block_end):
            m.d.sync += available.eq(available - 1)
        with m.If(self._block_end):
            m.d.sync += base.eq(base + 1 + self._layer.wide_blocks)
        with m.If(self.restart):
            m.d.sync += [available.eq(0), base.eq(0)]
        return has_block, address

    def _accumulator_counter(self, m: Module) -> tuple[Signal, Signal]:
        """Free accumulators; returns (enough for a set, index of the current filter's accumulator)."""
        count = self._config.accumulators
        free = Signal(range(count + 1), init=count)
        index = Signal(self.issued.accumulator.shape())
        base = Signal.like(index)
        has_room, set_start = Signal(), Signal()
        m.d.comb += [has_room.eq(free >= self._layer.filters), set_start.eq(self._issue & self._new_set)]
        m.d.sync += free.eq(free + self.freed - Mux(set_start, self._layer.filters, 0))
        following = index + 1 + self.operators.payload.skip
        with m.If(self._run_end):
            m.d.sync += index.eq(Mux(self._last_run & ~self._last_block, base, following))
        with m.If(self._set_end):
            m.d.sync += base.eq(following)
        with m.If(self.restart):
            m.d.sync += [free.eq(count), index.eq(0), base.eq(0)]
        return has_room, index
