"""Reads sections from DDR into program, stream and table memories: the program image, batches of streams."""

from __future__ import annotations

from typing import Any

from amaranth.hdl import Cat, Module, Mux, Signal, Value
from amaranth.lib import data, stream, wiring
from amaranth.lib.wiring import In, Out

from espalier.arch.config import HardwareConfig
from espalier.arch.program import PROGRAM_WORD_BITS, SECTION_FIELDS, TABLE_WORD_BITS, SectionKind
from espalier_hw.gearbox import Gearbox
from espalier_hw.interfaces import batch_ports, dma_beat, dma_command, memory_write, struct

SECTION = struct(SECTION_FIELDS)
WORD_ADDRESS_BITS = 14
_COUNT_BITS = WORD_ADDRESS_BITS + 1  # words or beats of a section that fits into a memory
# Cycles from a new `required` until `space` says what it says of that.
_SPACE_CYCLES = 4


class Loader(wiring.Component):
    """Walks the sections of a program image.

    start: pulse; address (bytes) and length (bytes, a multiple of 16) are valid with it.
    done, error: pulse at the end; error means an unknown section kind, an index or address range that the
    hardware does not have, or an image that ends inside a section; nothing more is read then.
    program_write: 128-bit words. The 72-bit words of streams and tables share `write_address`,
    `write_data` and `write_pe` (PE inside its branch); `stream_enable`, `table_enable` have a bit per branch.

    With `streaming`: stream: with `start`, the sections are batches; the first one has `length` bytes, and
    each END section announces the next one. restart: pulse, none is loaded yet. loaded, required, space: see
    `interfaces.batch_ports`. hold: level, no batch is to be begun. reading: level, the read engine is
    in use; busy, but not reading: it waits for space, or for `hold` to go.
    """

    def __init__(self, config: HardwareConfig) -> None:
        self.config = config
        batches: dict[str, wiring.Member] = {}
        if config.streaming:
            batches = {name: member.flip() for name, member in batch_ports(config).items()}
            batches |= {"stream": In(1), "restart": In(1), "hold": In(1), "reading": Out(1)}
        super().__init__(
            {
                **batches,
                "start": In(1),
                "address": In(config.axi_address_bits),
                "length": In(32),
                "busy": Out(1),
                "done": Out(1),
                "error": Out(1),
                "command": Out(stream.Signature(dma_command(config))),
                "beats": In(stream.Signature(dma_beat(config))),
                "program_write": Out(
                    memory_write((config.program_depth_words - 1).bit_length(), PROGRAM_WORD_BITS)
                ),
                "write_address": Out(WORD_ADDRESS_BITS),
                "write_data": Out(TABLE_WORD_BITS),
                "write_pe": Out(5),
                "stream_enable": Out(config.branches),
                "table_enable": Out(config.branches),
            }
        )

    def elaborate(self, platform: Any) -> Module:
        """Header, check, words, next header; beats behind the END section are read and dropped."""
        m = Module()
        m.submodules.gearbox = self.gearbox = Gearbox()
        self.section = Signal(SECTION)
        self.beats_left = Signal(28)  # of the image
        self.feed_left = Signal(_COUNT_BITS)  # beats of the section, still to be read
        self.words_left = Signal(_COUNT_BITS)
        # What the three counters say, in registers: the counters are too wide to be asked in time.
        self.image_over, self.feed_over, self.last_word = Signal(), Signal(), Signal()
        self.word_address = Signal(WORD_ADDRESS_BITS)
        self.good, self.complete, self.too_large = Signal(), Signal(), Signal()
        self.section_end = Signal(_COUNT_BITS + 1)  # word behind the section
        if self.config.streaming:
            self.settle = Signal(range(_SPACE_CYCLES + 1))
            with m.If(self.restart):
                m.d.sync += [self.loaded.eq(0), self.required.eq(0)]
        self.beat = Signal()
        m.d.comb += self.beat.eq(self.beats.valid & self.beats.ready)
        with m.If(self.beat):
            m.d.sync += [self.beats_left.eq(self.beats_left - 1), self.image_over.eq(self.beats_left == 1)]
        m.d.sync += [self.done.eq(0), self.error.eq(0)]
        with m.FSM() as fsm:
            m.d.comb += self.busy.eq(~fsm.ongoing("IDLE"))
            with m.State("IDLE"), m.If(self.start):
                m.d.sync += self.command.payload.address.eq(self.address)
                self._begin(m, self.length[4:])
                m.next = "COMMAND"
                if self.config.streaming:
                    with m.If(self.stream):
                        m.d.sync += self.settle.eq(_SPACE_CYCLES)
                        m.next = "SPACE"
            with m.State("COMMAND"):
                self._command(m)
            with m.State("HEADER"):
                self._header(m)
            with m.State("SIZE"):
                self._size(m)
                m.next = "COMPARE"
            with m.State("COMPARE"):
                self._compare(m)
                m.next = "CHECK"
            with m.State("CHECK"):
                self._check(m)
            with m.State("WORDS"):
                self._words(m)
            with m.State("DRAIN"):
                m.d.comb += self.beats.ready.eq(1)
                with m.If(self.image_over):
                    m.d.sync += self.done.eq(1)
                    m.next = "IDLE"
                    if self.config.streaming:
                        self._batch_end(m)
            if self.config.streaming:
                with m.State("SPACE"):
                    self._space(m)
                m.d.comb += self.reading.eq(self.busy & ~fsm.ongoing("SPACE"))
        self._memories(m, fsm.ongoing("WORDS"))
        return m

    def _begin(self, m: Module, beats: Value) -> None:
        """Remember how many beats are to be read from the command's address on."""
        m.d.sync += [
            self.command.payload.beats.eq(beats),
            self.beats_left.eq(beats),
            self.image_over.eq(beats == 0),
        ]

    def _batch_end(self, m: Module) -> None:
        """Go on to the batch behind the one that has been read."""
        command, section = self.command.payload, self.section
        with m.If(section.words != 0):
            m.d.sync += [
                self.done.eq(0),
                self.settle.eq(_SPACE_CYCLES),
                self.required.eq(section.index),
                command.address.eq(command.address + (command.beats << 4)),
            ]
            self._begin(m, section.words[: len(command.beats)])
            m.next = "SPACE"

    def _space(self, m: Module) -> None:
        """Wait until PEs have left what the next batch overwrites, and the read engine is free."""
        m.d.sync += self.settle.eq(self.settle - (self.settle != 0))
        with m.If((self.settle == 0) & self.space & ~self.hold):
            m.next = "COMMAND"

    def _fail(self, m: Module) -> None:
        m.d.sync += self.error.eq(1)
        m.next = "IDLE"

    def _command(self, m: Module) -> None:
        with m.If(self.image_over):
            self._fail(m)
        with m.Else():
            m.d.comb += self.command.valid.eq(1)
            with m.If(self.command.ready):
                m.next = "HEADER"

    def _header(self, m: Module) -> None:
        m.d.comb += self.beats.ready.eq(~self.image_over)
        with m.If(self.image_over):
            m.next = "DRAIN"
        with m.If(self.beat):
            m.d.sync += self.section.eq(self.beats.payload.data)
            m.next = "SIZE"

    def _size(self, m: Module) -> None:
        """Beats and last address of the section; its words are nine bytes, or in the program a beat each.

        No memory is so deep that more than _COUNT_BITS would count.
        """
        section = self.section
        words, address = section.words[:_COUNT_BITS], section.address[:_COUNT_BITS]
        packed_bytes = words + (words << 3)  # a multiplication would take DSP slices
        m.d.sync += [
            self.feed_left.eq(Mux(section.kind == SectionKind.PROGRAM, words, (packed_bytes + 15) >> 4)),
            self.section_end.eq(address + words),
            self.too_large.eq(section.words[_COUNT_BITS:].any() | section.address[_COUNT_BITS:].any()),
        ]

    def _compare(self, m: Module) -> None:
        """Whether the hardware has the memory, and the image the beats."""
        config, section = self.config, self.section
        limits = {
            SectionKind.PROGRAM: (1, config.program_depth_words),
            SectionKind.STREAM: (config.pes, config.stream_depth_words),
            SectionKind.TABLE: (config.branches, config.table_depth_words),
        }
        m.d.sync += [self.good.eq(0), self.complete.eq(self.feed_left <= self.beats_left)]
        with m.Switch(section.kind):
            for kind, (indices, depth) in limits.items():
                with m.Case(kind):
                    m.d.sync += self.good.eq(
                        (section.index < indices) & (self.section_end <= depth) & ~self.too_large
                    )

    def _check(self, m: Module) -> None:
        section = self.section
        m.d.sync += [
            self.words_left.eq(section.words),
            self.word_address.eq(section.address),
            self.feed_over.eq(self.feed_left == 0),
            self.last_word.eq(section.words == 1),
        ]
        with m.If(section.kind == SectionKind.END):
            m.next = "DRAIN"
            if self.config.streaming:
                m.d.sync += self.loaded.eq(self.loaded + 1)
        with m.Elif(~self.good | ~self.complete):
            self._fail(m)
        with m.Elif(section.words == 0):
            m.next = "HEADER"
        with m.Else():
            m.next = "WORDS"

    def _words(self, m: Module) -> None:
        gearbox = self.gearbox
        word = Signal()
        packed = self.section.kind != SectionKind.PROGRAM
        more = ~self.feed_over
        m.d.comb += [
            gearbox.beats.payload.eq(self.beats.payload.data),
            gearbox.beats.valid.eq(self.beats.valid & packed & more),
            gearbox.words.ready.eq(1),
            self.beats.ready.eq(more & (~packed | gearbox.beats.ready)),
            word.eq(Mux(packed, gearbox.words.valid, self.beat)),
        ]
        with m.If(self.beat):
            m.d.sync += [self.feed_left.eq(self.feed_left - 1), self.feed_over.eq(self.feed_left == 1)]
        with m.If(word):
            m.d.sync += [
                self.words_left.eq(self.words_left - 1),
                self.last_word.eq(self.words_left == 2),
                self.word_address.eq(self.word_address + 1),
            ]
            with m.If(self.last_word):
                m.d.comb += gearbox.clear.eq(1)  # the rest of the last beat is padding
                m.next = "HEADER"

    def _memories(self, m: Module, active: Value) -> None:
        config, section, word = self.config, self.section, self.gearbox.words
        branch, pe = Signal(range(config.branches), reset_less=True), Signal(5, reset_less=True)
        for index in range(config.branches):
            first = config.first_pe(index)
            with m.If(section.index >= first):
                m.d.sync += [branch.eq(index), pe.eq(section.index - first)]
        target = Signal(data.StructLayout({"stream": config.branches, "table": config.branches}))
        with m.If(active & word.valid):
            with m.If(section.kind == SectionKind.STREAM):
                m.d.comb += target.stream.eq(1 << branch)
            with m.If(section.kind == SectionKind.TABLE):
                m.d.comb += target.table.eq(1 << section.index[:3])
        m.d.sync += [
            Cat(self.stream_enable, self.table_enable).eq(target),
            self.write_pe.eq(pe),
            self.write_address.eq(self.word_address),
            self.write_data.eq(word.payload),
            self.program_write.enable.eq(active & (section.kind == SectionKind.PROGRAM) & self.beat),
            self.program_write.address.eq(self.word_address),
            self.program_write.data.eq(self.beats.payload.data),
        ]
