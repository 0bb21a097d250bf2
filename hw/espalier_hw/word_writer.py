"""Turns windows into window words, for the rings of all PEs of a branch."""

from __future__ import annotations

from typing import Any

from amaranth.hdl import Cat, Const, Module, Mux, Signal, Value
from amaranth.lib import data, wiring
from amaranth.lib.wiring import In, Out

from espalier.arch.config import HardwareConfig
from espalier_hw.arbitration import look_up
from espalier_hw.extractor import SELECT, Extractor, select_columns
from espalier_hw.interfaces import (
    BRANCH_LAYER,
    LAYER,
    PATTERN,
    PATTERN_ADDRESS_BITS,
    memory_write,
    window_bits,
    word_bits,
)
from espalier_hw.lutram_fifo import LutramFifo
from espalier_hw.walks import SetWalk

UNIT_WORDS = 8  # a block takes one or two units of the ring


class WordWriter(wiring.Component):
    """Second walk over channels and patterns: one word a cycle, as windows and ring space allow.

    go: pulse; `layer`, `branch` and `bank` have been valid for a cycle; `sets`, the number of walks over
    the channels, is valid. busy: level, from the cycle after `go` until the walk is over; only then may
    these change. Words that are left go on by themselves, and the ring continues from layer to layer.
    restart: pulse, the ring is empty and begins at address 0; nothing is at work. window_valid/window_data:
    answers to the window walker's requests. taken: a window has left the buffer. ring_write, commit,
    release, release_wide: as in `pe_signature`, one release bit per PE. ring_full, window_wait: events.
    """

    def __init__(self, config: HardwareConfig, pes: int) -> None:
        """`pes`: number of PEs that hear the words."""
        self.config, self.pes = config, pes
        self.ring_bits = (config.ring_words - 1).bit_length()
        super().__init__(
            {
                "go": In(1),
                "layer": In(LAYER),
                "branch": In(BRANCH_LAYER),
                "bank": In(1),
                "sets": In(19),
                "busy": Out(1),
                "restart": In(1),
                "pattern_write": In(memory_write(PATTERN_ADDRESS_BITS, PATTERN.size)),
                "window_valid": In(1),
                "window_data": In(window_bits(config)),
                "taken": Out(1),
                "ring_write": Out(memory_write(self.ring_bits, word_bits(config))),
                "commit": Out(1),
                "release": In(pes),
                "release_wide": In(pes),
                "ring_full": Out(1),
                "window_wait": Out(1),
            }
        )

    def elaborate(self, platform: Any) -> Module:
        """Build the block."""
        m = Module()
        m.submodules.windows = windows = LutramFifo(window_bits(self.config), self.config.window_fifo_depth)
        # `wide`: the word's block has 16 words.
        layout = data.StructLayout(
            {
                "select": SELECT,
                "fetch": 1,
                "block_start": 1,
                "wide": 1,
                "commit": 1,
                "address": self.ring_bits,
            }
        )
        # Stages: `word` waits for its window and for ring space, `cut` has its window, then the outputs.
        word, word_valid, word_leaves = Signal(layout, reset_less=True), Signal(), Signal()
        cut, cut_valid = Signal(layout, reset_less=True), Signal()
        window_there, may_write = Signal(), Signal()
        wide = Signal()
        m.d.sync += wide.eq(self.layer.block_words == 2 * UNIT_WORDS)
        self._walk(m, word, word_valid, word_leaves, wide)
        room = self._room(m, word.wide, wide, word_leaves & word.block_start)
        m.d.comb += [
            windows.write.eq(self.window_valid),
            windows.write_data.eq(self.window_data),
            window_there.eq(windows.available | ~word.fetch),
            may_write.eq(~word.block_start | room),
            word_leaves.eq(word_valid & window_there & may_write),
            windows.read.eq(word_leaves & word.fetch),
        ]
        m.d.sync += [
            self.taken.eq(windows.read),
            self.ring_full.eq(word_valid & window_there & ~may_write),
            self.window_wait.eq(word_valid & ~window_there & may_write),
            cut_valid.eq(word_leaves),
        ]
        window = Signal(window_bits(self.config), reset_less=True)
        with m.If(windows.read):
            m.d.sync += window.eq(windows.read_data)
        with m.If(word_leaves):
            m.d.sync += cut.eq(word)
        self._output(m, window, cut, cut_valid)
        return m

    def _walk(
        self, m: Module, word: data.View, word_valid: Signal, word_leaves: Signal, wide: Signal
    ) -> None:
        """Walk the words of all sets, and cut each set into blocks of consecutive ring addresses."""
        m.submodules.walk = walk = SetWalk(("column_offset", "fetch"))
        step, block_end = Signal(), Signal()
        sets_left = Signal(19)
        slot, base = Signal(4), Signal(self.ring_bits)
        m.d.comb += [
            walk.layer.eq(self.layer),
            walk.branch.eq(self.branch),
            walk.bank.eq(self.bank),
            walk.load.eq(self.go),
            walk.pattern_enable.eq(self.pattern_write.enable),
            walk.pattern_address.eq(self.pattern_write.address),
            walk.pattern_data.eq(self.pattern_write.data),
            walk.step.eq(step),
            step.eq(self.busy & (~word_valid | word_leaves)),
            block_end.eq((slot == Cat(Const(UNIT_WORDS - 1, 3), wide)) | walk.set_end),
        ]
        with m.If(self.go):
            m.d.sync += [self.busy.eq(1), sets_left.eq(self.sets)]
        with m.Elif(step & walk.set_end):
            m.d.sync += [sets_left.eq(sets_left - 1), self.busy.eq(sets_left != 1)]
        with m.If(step):
            m.d.sync += [
                slot.eq(Mux(block_end, 0, slot + 1)),
                word.select.eq(
                    select_columns(m, self.config, walk.pattern.column_offset, self.layer.stride == 2)
                ),
                word.fetch.eq(walk.pattern.fetch),
                word.block_start.eq(slot == 0),
                word.wide.eq(wide),
                word.commit.eq(block_end),
                word.address.eq(base + slot),
            ]
        with m.If(self.restart):
            m.d.sync += base.eq(0)
        with m.Elif(step & block_end):
            m.d.sync += base.eq(base + Mux(wide, 2 * UNIT_WORDS, UNIT_WORDS))
        with m.If(step | word_leaves):
            m.d.sync += word_valid.eq(step)

    def _room(self, m: Module, word_wide: Value, layer_wide: Value, starts: Value) -> Signal:
        """Count the ring's units; high while every PE has room for another block.

        started, released: running numbers of units. The comparison takes a cycle, so that the cycle after
        a block's start is never one. The size is that of the word that waits or of the next, whichever is
        larger: what waits was the next one in the cycle before. The numbers have three or four bits, so that
        tables take fewer levels than carry chains.
        """
        most = self.config.ring_words // UNIT_WORDS
        bits = (most + 2).bit_length()
        numbers = range(1 << bits)
        advanced = [(number + units) % len(numbers) for units in (1, 2) for number in numbers]
        crowded = [(need - released) % len(numbers) > most for released in numbers for need in numbers]
        started, needed, room = Signal(bits), Signal(bits), Signal()
        full = Signal(self.pes)
        m.d.comb += needed.eq(look_up(Cat(started, word_wide | layer_wide), advanced, bits))
        with m.If(self.restart):
            m.d.sync += started.eq(0)
        with m.Elif(starts):
            m.d.sync += started.eq(look_up(Cat(started, word_wide), advanced, bits))
        for pe in range(self.pes):
            released = Signal(bits, name=f"released_{pe}")
            with m.If(self.restart):
                m.d.sync += released.eq(0)
            with m.Elif(self.release[pe]):
                m.d.sync += released.eq(look_up(Cat(released, self.release_wide[pe]), advanced, bits))
            m.d.comb += full[pe].eq(look_up(Cat(needed, released), crowded, 1))
        m.d.sync += room.eq(~full.any() & ~starts)
        return room

    def _output(self, m: Module, window: Value, cut: data.View, cut_valid: Signal) -> None:
        """Cut the word out of its window; register, beside the extractor, where it goes."""
        m.submodules.extractor = extractor = Extractor(self.config)
        m.d.comb += [
            extractor.window.eq(window),
            extractor.select.eq(cut.select),
            extractor.enable.eq(cut_valid),
            self.ring_write.data.eq(extractor.word),
        ]
        m.d.sync += [
            self.ring_write.enable.eq(cut_valid),
            self.commit.eq(cut_valid & cut.commit),
            self.ring_write.address.eq(cut.address),
        ]
