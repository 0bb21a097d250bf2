"""Sequencer: walks the layer descriptors of the program and starts branches and DMA."""

from __future__ import annotations

from typing import Any

from amaranth.hdl import Cat, Module, Mux, Signal
from amaranth.lib import memory, wiring
from amaranth.lib.wiring import In, Out

from espalier.arch.config import HardwareConfig
from espalier.arch.program import (
    PATTERN_BITS,
    PATTERNS_PER_WORD,
    PROGRAM_WORD_BITS,
    Follows,
    Opcode,
    descriptor_words,
)
from espalier_hw.interfaces import BRANCH_LAYER, LAYER, PATTERN, PATTERN_ADDRESS_BITS, memory_write

# Cycles that all blocks and the feature memory must be idle together before everything counts as ended:
# more than a word spends in registers between a branch's port and the memory's idle output.
QUIET_CYCLES = 4
# Cycles from an offer until `pending` shows it.
OFFER_CYCLES = 3


class Sequencer(wiring.Component):
    """Runs the program once per `start`.

    program_write: fills the program memory. start: pulse; `restart` follows as a pulse to all that take
    layers. layer, branch, bank, pattern_write: see `interfaces.stage_ports`; pattern_for_pool: the pattern is
    for the pool unit, otherwise for the branches. offer_branches, offer_pool: pulses for CONV and POOL.
    pending: level, an offered layer has not been taken by everybody. all_idle: level, no layer is pending or
    at work, and nothing is on its way into the feature memory.
    load_start, store_start: pulses to the DMA, which takes over what it needs, and holds load_busy,
    store_busy until it is done.
    done: pulse at END. error: pulse, unknown opcode; the sequencer then stands still.
    stream_start: pulse, `layer` says where the first batch is; stream_busy: level, batches are still to come;
    with `streaming` only.
    layer_index: of the layer offered last. state: number of the current state.
    """

    def __init__(self, config: HardwareConfig) -> None:
        self.config = config
        self.program_bits = (config.program_depth_words - 1).bit_length()
        super().__init__(
            {
                "start": In(1),
                "restart": Out(1),
                "program_write": In(memory_write(self.program_bits, PROGRAM_WORD_BITS)),
                "layer": Out(LAYER),
                "branch": Out(BRANCH_LAYER).array(config.branches),
                "bank": Out(1),
                "pattern_write": Out(memory_write(PATTERN_ADDRESS_BITS, PATTERN.size)),
                "pattern_for_pool": Out(1),
                "offer_branches": Out(1),
                "offer_pool": Out(1),
                "pending": In(1),
                "all_idle": In(1),
                "load_start": Out(1),
                "load_busy": In(1),
                "store_start": Out(1),
                "store_busy": In(1),
                "layer_index": Out(8),
                "done": Out(1),
                "error": Out(1),
                "state": Out(4),
                **({"stream_start": Out(1), "stream_busy": In(1)} if config.streaming else {}),
            }
        )

    def elaborate(self, platform: Any) -> Module:
        """States: descriptor, patterns, execution by opcode, end of the layer."""
        m = Module()
        self._program_memory(m)
        pulses = (
            self.restart, self.offer_branches, self.offer_pool, self.load_start, self.store_start,
            self.done, self.error, self.pattern_write.enable,
            *([self.stream_start] if self.config.streaming else []),
        )  # fmt: skip
        m.d.sync += [pulse.eq(0) for pulse in pulses]
        # Pool unit and branches each have two banks of patterns, which alternate.
        self.banks = Signal(2)
        self.is_pool = Signal()
        m.d.comb += [
            self.is_pool.eq(self.layer.opcode == Opcode.POOL),
            self.bank.eq(self.banks.bit_select(self.is_pool, 1)),
            self.pattern_for_pool.eq(self.is_pool),
        ]
        states = (
            self._idle, self._fetch, self._pattern_fetch, self._pattern_write, self._execute,
            self._load, self._offered, self._store,
        )  # fmt: skip
        with m.If(~self.all_idle):
            m.d.sync += self.quiet.eq(0)
        with m.Elif(self.quiet != QUIET_CYCLES):
            m.d.sync += self.quiet.eq(self.quiet + 1)
        with m.FSM():
            for number, state in enumerate(states):
                with m.State(state.__name__.strip("_").upper()):
                    m.d.comb += self.state.eq(number)
                    state(m)
        return m

    def _program_memory(self, m: Module) -> None:
        config = self.config
        m.submodules.program = program = memory.Memory(
            shape=PROGRAM_WORD_BITS, depth=config.program_depth_words, init=[]
        )
        write, read = program.write_port(), program.read_port()
        self.pointer = Signal(self.program_bits)
        self.word = read.data
        descriptor = Signal(descriptor_words(config) * PROGRAM_WORD_BITS, reset_less=True)
        self.descriptor = descriptor
        m.d.comb += [
            write.en.eq(self.program_write.enable),
            write.addr.eq(self.program_write.address),
            write.data.eq(self.program_write.data),
            read.en.eq(1),
            read.addr.eq(self.pointer),
            self.layer.eq(descriptor[: LAYER.size]),
        ]
        for index, branch in enumerate(self.branch):
            m.d.comb += branch.eq(descriptor[LAYER.size + index * BRANCH_LAYER.size :][: BRANCH_LAYER.size])
        self.count = Signal(range(max(descriptor_words(config), OFFER_CYCLES) + 1))
        self.pattern = Signal(7)
        self.quiet = Signal(range(QUIET_CYCLES + 1))

    def _next_descriptor(self, m: Module) -> None:
        m.d.sync += self.count.eq(0)
        m.next = "FETCH"

    def _idle(self, m: Module) -> None:
        with m.If(self.start):
            m.d.sync += [self.pointer.eq(0), self.restart.eq(1)]
            self._next_descriptor(m)

    def _fetch(self, m: Module) -> None:
        """Shift the descriptor in; the memory answers a cycle late."""
        words = descriptor_words(self.config)
        m.d.sync += [self.count.eq(self.count + 1), self.pattern.eq(0)]
        with m.If(self.count != words):
            m.d.sync += self.pointer.eq(self.pointer + 1)
        with m.If(self.count != 0):
            m.d.sync += self.descriptor.eq(Cat(self.descriptor[PROGRAM_WORD_BITS:], self.word))
        with m.If(self.count == words):
            m.next = "PATTERN_FETCH"

    def _pattern_fetch(self, m: Module) -> None:
        m.next = "PATTERN_WRITE"
        with m.If(self.pattern == self.layer.pattern_count):
            m.d.sync += self.count.eq(0)
            m.next = "EXECUTE"

    def _pattern_write(self, m: Module) -> None:
        within = self.pattern[: (PATTERNS_PER_WORD - 1).bit_length()]
        following = Signal(7)
        m.d.comb += following.eq(self.pattern + 1)
        m.d.sync += [
            self.pattern.eq(following),
            self.pattern_write.enable.eq(1),
            self.pattern_write.address.eq(Cat(self.pattern[:6], self.bank)),
            self.pattern_write.data.eq(self.word.word_select(within, PATTERN_BITS)),
        ]
        with m.If((within == PATTERNS_PER_WORD - 1) | (following == self.layer.pattern_count)):
            m.d.sync += self.pointer.eq(self.pointer + 1)
            m.next = "PATTERN_FETCH"

    def _execute(self, m: Module) -> None:
        """Start what the opcode names, when nothing that it must wait for is at work.

        A LOAD holds up layers but those that follow it or have nothing to do with its tensor.
        """
        opcode, layer = self.layer.opcode, self.layer
        ended, apart = Signal(), Signal()
        m.d.comb += [
            ended.eq((self.quiet == QUIET_CYCLES) & ~self.load_busy & ~self.store_busy),
            apart.eq(~layer.barrier & ~(layer.wait_store & self.store_busy)),
        ]
        follows_load = layer.follows == Follows.LOAD
        may_offer = ended | (apart & (~self.load_busy | follows_load | layer.during_load))
        with m.Switch(opcode):
            with m.Case(Opcode.END), m.If(ended & ~self.stream_busy if self.config.streaming else ended):
                m.d.sync += self.done.eq(1)
                m.next = "IDLE"
            with m.Case(Opcode.LOAD), m.If(ended | (apart & ~self.load_busy)):
                m.d.sync += self.load_start.eq(1)
                m.next = "LOAD"
            with m.Case(Opcode.CONV, Opcode.POOL), m.If(may_offer):
                m.d.sync += [
                    self.offer_branches.eq(opcode == Opcode.CONV),
                    self.offer_pool.eq(opcode == Opcode.POOL),
                    self.layer_index.eq(layer.layer),
                ]
                m.next = "OFFERED"
            with m.Case(Opcode.STORE), m.If(ended | (~layer.barrier & ~self.store_busy)):
                m.d.sync += self.store_start.eq(1)
                m.next = "STORE"
            if self.config.streaming:
                with m.Case(Opcode.STREAM):
                    m.d.sync += self.stream_start.eq(1)
                    self._next_descriptor(m)
            with m.Default():
                m.d.sync += self.error.eq(1)
                m.next = "IDLE"

    def _load(self, m: Module) -> None:
        with m.If(self.load_busy):  # it has taken over what it needs
            self._next_descriptor(m)

    def _offered(self, m: Module) -> None:
        """Keep the descriptor until everybody has taken it."""
        with m.If(self.count != OFFER_CYCLES):
            m.d.sync += self.count.eq(self.count + 1)
        with m.Elif(~self.pending):
            m.d.sync += self.banks.eq(self.banks ^ Mux(self.is_pool, 2, 1))
            self._next_descriptor(m)

    def _store(self, m: Module) -> None:
        with m.If(self.store_busy):
            self._next_descriptor(m)
