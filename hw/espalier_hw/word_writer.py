"""Turns windows into window words, for the rings of all PEs of a branch or for its pool unit."""

from __future__ import annotations

from typing import Any

from amaranth.hdl import Module, Mux, Signal, Value
from amaranth.lib import data, wiring
from amaranth.lib.wiring import In, Out

from espalier.arch.config import HardwareConfig
from espalier.arch.program import Opcode
from espalier_hw.extractor import SELECT, Extractor, select_columns
from espalier_hw.interfaces import BRANCH_LAYER, LAYER, PATTERN, memory_write, window_bits, word_bits
from espalier_hw.lutram_fifo import LutramFifo
from espalier_hw.walks import SetWalk


class WordWriter(wiring.Component):
    """Second walk over channels and patterns: one word a cycle, as windows and ring space allow.

    go: pulse; `layer`, and `sets`, the number of walks over the channels, are valid since the cycle
    before. window_valid/window_data: answers to the window walker's requests. taken: a window has left
    the buffer. ring_write, commit, release: as in `pe_signature`, one release bit per PE.
    word_valid, taps, channel_end, word_ready: a word (`ring_write.data`) for the pool unit, used instead
    of the ring in POOL layers; `word_ready` is combinational.
    ring_full, window_wait: events.
    """

    def __init__(self, config: HardwareConfig) -> None:
        self.config = config
        self.ring_bits = (config.ring_words - 1).bit_length()
        super().__init__(
            {
                "go": In(1),
                "layer": In(LAYER),
                "branch": In(BRANCH_LAYER),
                "sets": In(19),
                "pattern_write": In(memory_write(6, PATTERN.size)),
                "window_valid": In(1),
                "window_data": In(window_bits(config)),
                "taken": Out(1),
                "ring_write": Out(memory_write(self.ring_bits, word_bits(config))),
                "commit": Out(1),
                "release": In(config.pes_per_branch),
                "word_valid": Out(1),
                "taps": Out(4),
                "channel_end": Out(1),
                "word_ready": In(1),
                "ring_full": Out(1),
                "window_wait": Out(1),
            }
        )

    def elaborate(self, platform: Any) -> Module:
        """Build the block."""
        m = Module()
        m.submodules.windows = windows = LutramFifo(window_bits(self.config), self.config.window_fifo_depth)
        m.submodules.extractor = extractor = Extractor(self.config)
        layout = data.StructLayout(
            {"pattern": PATTERN, "channel_end": 1, "block_start": 1, "commit": 1, "address": self.ring_bits}
        )
        # Stages: `word` waits for its window and for ring space, `cut` has its window, then the outputs.
        word, word_valid, word_leaves = Signal(layout, reset_less=True), Signal(), Signal()
        cut, cut_valid, cut_leaves = Signal(layout, reset_less=True), Signal(), Signal()
        pool, room = Signal(), Signal()
        m.d.sync += pool.eq(self.layer.opcode == Opcode.POOL)
        self._walk(m, word, word_valid, word_leaves)

        window_there, may_write = Signal(), Signal()
        m.d.comb += [
            windows.write.eq(self.window_valid),
            windows.write_data.eq(self.window_data),
            window_there.eq(windows.available | ~word.pattern.fetch),
            may_write.eq(pool | ~word.block_start | room),
            cut_leaves.eq(~self.word_valid | self.word_ready),
            word_leaves.eq(word_valid & window_there & may_write & (~cut_valid | cut_leaves)),
            windows.read.eq(word_leaves & word.pattern.fetch),
        ]
        m.d.sync += [
            self.taken.eq(windows.read),
            self.ring_full.eq(word_valid & window_there & ~may_write),
            self.window_wait.eq(word_valid & ~window_there & may_write),
        ]
        block_started = word_leaves & word.block_start & ~pool
        m.d.comb += room.eq(self._room(m, block_started))

        window = Signal(window_bits(self.config), reset_less=True)
        select = Signal(SELECT, reset_less=True)
        with m.If(windows.read):
            m.d.sync += window.eq(windows.read_data)
        with m.If(word_leaves):
            m.d.sync += [
                cut.eq(word),
                select.eq(select_columns(m, self.config, word.pattern.column_offset, self.layer.stride)),
            ]
        with m.If(word_leaves | cut_leaves):
            m.d.sync += cut_valid.eq(word_leaves)
        m.d.comb += [
            extractor.window.eq(window),
            extractor.select.eq(select),
            extractor.enable.eq(cut_valid & cut_leaves),
            self.ring_write.data.eq(extractor.word),
        ]
        self._output(m, cut, cut_valid, cut_leaves, pool)
        return m

    def _walk(self, m: Module, word: data.View, word_valid: Signal, word_leaves: Signal) -> None:
        """Walk the words of all sets, and cut each set into blocks of consecutive ring addresses."""
        m.submodules.walk = walk = SetWalk()
        active, step, block_end = Signal(), Signal(), Signal()
        sets_left = Signal(19)
        slot, base = Signal(4), Signal(self.ring_bits)
        last_slot = Signal(4)
        m.d.comb += [
            walk.layer.eq(self.layer),
            walk.branch.eq(self.branch),
            walk.load.eq(self.go),
            walk.pattern_enable.eq(self.pattern_write.enable),
            walk.pattern_address.eq(self.pattern_write.address),
            walk.pattern_data.eq(self.pattern_write.data),
            walk.step.eq(step),
            step.eq(active & (~word_valid | word_leaves)),
            block_end.eq((slot == last_slot) | walk.set_end),
        ]
        m.d.sync += last_slot.eq(self.layer.block_words - 1)
        with m.If(self.go):
            m.d.sync += [active.eq(1), sets_left.eq(self.sets), slot.eq(0), base.eq(0)]
        with m.Elif(step):
            m.d.sync += slot.eq(Mux(block_end, 0, slot + 1))
            with m.If(block_end):
                m.d.sync += base.eq(base + self.layer.block_words)
            with m.If(walk.set_end):
                m.d.sync += [sets_left.eq(sets_left - 1), active.eq(sets_left != 1)]
        with m.If(step):
            m.d.sync += [
                word.pattern.eq(walk.pattern),
                word.channel_end.eq(walk.channel_end),
                word.block_start.eq(slot == 0),
                word.commit.eq(block_end),
                word.address.eq(base + slot),
            ]
        with m.If(step | word_leaves):
            m.d.sync += word_valid.eq(step)

    def _room(self, m: Module, block_started: Value) -> Value:
        """Count the blocks outstanding at each PE; true while every PE has room for another."""
        most = self.config.ring_words // 8
        limit = Signal(range(most + 1))
        m.d.sync += limit.eq(Mux(self.layer.block_words == 16, most // 2, most))
        full = Signal(self.config.pes_per_branch)
        for pe in range(self.config.pes_per_branch):
            outstanding = Signal(range(most + 1), name=f"outstanding_{pe}")
            after = Signal.like(outstanding, name=f"after_{pe}")
            m.d.comb += after.eq(outstanding + block_started - self.release[pe])
            m.d.sync += [outstanding.eq(after), full[pe].eq(after == limit)]
        return ~full.any()

    def _output(self, m: Module, cut: data.View, cut_valid: Signal, cut_leaves: Signal, pool: Signal) -> None:
        """Register, beside the extractor, where its word goes."""
        m.d.sync += [
            self.ring_write.enable.eq(cut_valid & ~pool),
            self.commit.eq(cut_valid & ~pool & cut.commit),
        ]
        with m.If(cut_leaves):
            m.d.sync += [
                self.word_valid.eq(cut_valid & pool),
                self.ring_write.address.eq(cut.address),
                self.taps.eq(cut.pattern.taps),
                self.channel_end.eq(cut.channel_end),
            ]
