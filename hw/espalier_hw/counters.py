"""Performance counters of the layers, read through the register bank."""

from __future__ import annotations

from typing import Any

from amaranth.hdl import Cat, Module, Mux, Signal
from amaranth.lib import memory, wiring
from amaranth.lib.wiring import In, Out

from espalier.arch.config import HardwareConfig
from espalier.arch.registers import COUNTERS
from espalier_hw.csr import counter_address_bits
from espalier_hw.interfaces import EVENTS

COUNTER_BITS = 32


class LayerCounters(wiring.Component):
    """Counts cycles and branch events from `begin` or the last `end` to `end`, stores them under `layer`.

    begin: pulse; the cycle counts as the first one. end: pulse; the cycle counts for what follows.
    busy: level, a finished layer is being stored; no `end` may come meanwhile (len(COUNTERS) cycles).
    address, data: read port, data one cycle after the address (layer * len(COUNTERS) + counter).
    """

    def __init__(self, config: HardwareConfig) -> None:
        self.config = config
        super().__init__(
            {
                "begin": In(1),
                "end": In(1),
                "layer": In(8),
                "busy": Out(1),
                "events": In(EVENTS).array(config.branches),
                "address": In(counter_address_bits(config)),
                "data": Out(COUNTER_BITS),
            }
        )

    def elaborate(self, platform: Any) -> Module:
        """Count; at the end of a layer shift a copy into the memory, one counter a cycle."""
        m = Module()
        depth = self.config.max_layers * len(COUNTERS)
        m.submodules.memory = store = memory.Memory(shape=COUNTER_BITS, depth=depth, init=[])
        counters = [Signal(COUNTER_BITS, name=name, reset_less=True) for name, _ in COUNTERS]
        for (name, _), counter in zip(COUNTERS, counters, strict=True):
            step = Signal(range(self.config.branches * 64), name=f"{name}_step", reset_less=True)
            if name == "cycles":
                m.d.comb += step.eq(1)
            else:
                m.d.sync += step.eq(sum(events[name] for events in self.events))
            m.d.sync += counter.eq(Mux(self.begin | self.end, step, counter + step))

        copy = Signal(COUNTER_BITS * len(COUNTERS), reset_less=True)
        index, layer = Signal(range(len(COUNTERS))), Signal(8, reset_less=True)
        write, read = store.write_port(), store.read_port()
        m.d.comb += [
            write.en.eq(self.busy & (layer < self.config.max_layers)),
            write.addr.eq(Cat(index, layer)),
            write.data.eq(copy[:COUNTER_BITS]),
            read.en.eq(1),
            read.addr.eq(self.address),
            self.data.eq(read.data),
        ]
        with m.If(self.end):
            m.d.sync += [copy.eq(Cat(counters)), layer.eq(self.layer), self.busy.eq(1), index.eq(0)]
        with m.Elif(self.busy):
            m.d.sync += [copy.eq(copy[COUNTER_BITS:]), index.eq(index + 1)]
            with m.If(index == len(COUNTERS) - 1):
                m.d.sync += self.busy.eq(0)
        return m
