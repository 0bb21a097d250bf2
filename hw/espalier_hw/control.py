"""Commands and status: starts LOAD and START, times them, and brings the core back after errors and RESET."""

from __future__ import annotations

from typing import Any

from amaranth.hdl import Cat, Module, Mux, Signal, Value, ValueLike
from amaranth.lib import wiring
from amaranth.lib.wiring import In, Out

from espalier.arch.registers import Control, ErrorCode, Status

# Cycles for which the core's reset is held at least, and cycles that it gets to come out of it.
RESET_CYCLES = 8


class CommandControl(wiring.Component):
    """Life cycle of a command. Lives outside the core's reset.

    control: command pulses (bits of `Control`); all but RESET and CLEAR_INTERRUPT are ignored while busy.
    loader_start, sequencer_start: pulses to the core; *_done, *_error: pulses from it.
    read_error, write_error, read_beat, write_beat: pulses of the AXI engines.
    core_reset: level, the core (not the AXI engines) is to be reset; flush: level, the AXI engines let
    outstanding transactions finish without the core; bus_idle: both have none left.
    status, error_code, cycles, read_beats, write_beats: register values; interrupt: registered level.
    streaming: the loader works during START too, and its errors end that as well.
    An error ends the command with ERROR (not DONE) after the core was reset; a loaded program survives it.
    """

    def __init__(self, streaming: bool = False) -> None:
        self.streaming = streaming
        super().__init__(
            {
                "control": In(len(Control)),
                "interrupt_enable": In(1),
                "loader_start": Out(1),
                "loader_done": In(1),
                "loader_error": In(1),
                "sequencer_start": Out(1),
                "sequencer_done": In(1),
                "sequencer_error": In(1),
                "read_error": In(1),
                "write_error": In(1),
                "read_beat": In(1),
                "write_beat": In(1),
                "core_reset": Out(1),
                "flush": Out(1),
                "bus_idle": In(1),
                "status": Out(32),
                "error_code": Out(32),
                "cycles": Out(32),
                "read_beats": Out(32),
                "write_beats": Out(32),
                "interrupt": Out(1),
            }
        )

    def elaborate(self, platform: Any) -> Module:
        """One state machine and the counters of the last command."""
        m = Module()
        self.busy, self.done, self.loaded, self.error = (
            Signal(name=n) for n in ("busy", "done", "loaded", "error")
        )
        flags = {
            Status.BUSY: self.busy,
            Status.DONE: self.done,
            Status.LOADED: self.loaded,
            Status.ERROR: self.error,
        }
        for flag, signal in flags.items():
            m.d.comb += self.status[flag.value.bit_length() - 1].eq(signal)
        m.d.sync += self.interrupt.eq(self.interrupt_enable & (self.done | self.error))
        with m.If(self._written(Control.CLEAR_INTERRUPT)):
            m.d.sync += [self.done.eq(0), self.error.eq(0)]
        self._measure(m)
        self._states(m)
        return m

    def _written(self, bit: Control) -> Signal:
        return self.control[bit.value.bit_length() - 1]

    def _measure(self, m: Module) -> None:
        running = Signal()
        m.d.comb += running.eq(self.busy & ~self.flush)
        with m.If(self.loader_start | self.sequencer_start):
            m.d.sync += [self.cycles.eq(1), self.read_beats.eq(0), self.write_beats.eq(0)]
        with m.Elif(running):
            m.d.sync += [
                self.cycles.eq(self.cycles + 1),
                self.read_beats.eq(self.read_beats + self.read_beat),
                self.write_beats.eq(self.write_beats + self.write_beat),
            ]

    def _states(self, m: Module) -> None:
        self.wait = Signal(range(RESET_CYCLES))
        m.d.sync += [self.loader_start.eq(0), self.sequencer_start.eq(0)]
        states = {
            "IDLE": self._accept,
            "LOAD": self._load,
            "RUN": self._run,
            "ABORT": self._abort,
            "SETTLE": self._settle,
        }
        with m.FSM() as fsm:
            m.d.comb += self.busy.eq(~fsm.ongoing("IDLE"))
            for name, state in states.items():
                with m.State(name):
                    state(m)
                    with m.If(self._written(Control.RESET)):
                        self._reset(m)

    def _reset(self, m: Module) -> None:
        m.d.sync += [
            Cat(self.done, self.loaded, self.error).eq(0),
            self.error_code.eq(ErrorCode.NONE),
            self.loader_start.eq(0),
            self.sequencer_start.eq(0),
            self.wait.eq(0),
        ]
        m.next = "ABORT"

    def _accept(self, m: Module) -> None:
        with m.If(self._written(Control.LOAD) | self._written(Control.START)):
            m.d.sync += [self.done.eq(0), self.error.eq(0), self.error_code.eq(ErrorCode.NONE)]
        with m.If(self._written(Control.LOAD)):
            m.d.sync += [self.loaded.eq(0), self.loader_start.eq(1)]
            m.next = "LOAD"
        with m.Elif(self._written(Control.START)):
            with m.If(self.loaded):
                m.d.sync += self.sequencer_start.eq(1)
                m.next = "RUN"
            with m.Else():
                m.d.sync += [self.error.eq(1), self.error_code.eq(ErrorCode.NOT_LOADED)]

    def _finish(self, m: Module, done: Signal, error: Value, code: ValueLike) -> None:
        with m.If(self.read_error | self.write_error | error):
            bus_code = Mux(self.read_error, ErrorCode.AXI_READ, ErrorCode.AXI_WRITE)
            m.d.sync += [self.error_code.eq(Mux(error, code, bus_code)), self.wait.eq(0)]
            m.next = "ABORT"
        with m.Elif(done):
            m.d.sync += self.done.eq(1)
            m.next = "IDLE"

    def _load(self, m: Module) -> None:
        self._finish(m, self.loader_done, self.loader_error, ErrorCode.BAD_SECTION)
        with m.If(self.loader_done & ~self.read_error):
            m.d.sync += self.loaded.eq(1)

    def _run(self, m: Module) -> None:
        error: Value = self.sequencer_error
        code: ValueLike = ErrorCode.BAD_OPCODE
        if self.streaming:
            code = Mux(error, code, ErrorCode.BAD_SECTION)
            error = error | self.loader_error
        self._finish(m, self.sequencer_done, error, code)

    def _abort(self, m: Module) -> None:
        m.d.comb += [self.core_reset.eq(1), self.flush.eq(1)]
        m.d.sync += self.wait.eq(self.wait + (self.wait != RESET_CYCLES - 1))
        with m.If((self.wait == RESET_CYCLES - 1) & self.bus_idle):
            m.d.sync += self.wait.eq(0)
            m.next = "SETTLE"

    def _settle(self, m: Module) -> None:
        """Take no command before the reset, which reaches the core through registers, is gone."""
        m.d.comb += self.flush.eq(1)
        m.d.sync += self.wait.eq(self.wait + 1)
        with m.If(self.wait == RESET_CYCLES - 1):
            m.d.sync += [self.wait.eq(0), self.error.eq(self.error_code != ErrorCode.NONE)]
            m.next = "IDLE"
