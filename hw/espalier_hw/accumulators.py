"""Accumulator RAM of a PE: partial sums between the runs, read out by the output stage."""

from __future__ import annotations

from typing import Any

from amaranth.hdl import Module, Mux, Signal
from amaranth.lib import memory, wiring
from amaranth.lib.memory import MemoryData
from amaranth.lib.wiring import In, Out

from espalier.arch.config import HardwareConfig


class Accumulators(wiring.Component):
    """`accumulators` sums of `bits` bits in LUTRAM, written and drained in a circle.

    read_enable, read_address: a run starts; `read_data` in the same cycle (not registered).
    The drain port uses the read port in the other cycles; ports as in `interfaces.pe_signature`.
    freed: pulse, the oldest accumulator has been read for the drain port.
    """

    def __init__(self, config: HardwareConfig, bits: int) -> None:
        self._config, self._bits = config, bits
        address_bits = (config.accumulators - 1).bit_length()
        super().__init__(
            {
                "restart": In(1),
                "write_enable": In(1),
                "write_address": In(address_bits),
                "write_data": In(bits),
                "read_enable": In(1),
                "read_address": In(address_bits),
                "read_data": Out(bits),
                "drain_request": In(1),
                "drain_valid": Out(1),
                "drain_data": Out(bits),
                "freed": Out(1),
            }
        )

    def elaborate(self, platform: Any) -> Module:
        """One memory, its read port shared, run starts first."""
        m = Module()
        m.submodules.memory = storage = memory.Memory(
            MemoryData(shape=self._bits, depth=self._config.accumulators, init=[]),
            attrs={"ram_style": "distributed"},
        )
        write, read = storage.write_port(), storage.read_port(domain="comb")
        oldest = Signal(range(self._config.accumulators))
        pending = Signal()
        request = self.drain_request | pending
        drained = Signal(self._bits, reset_less=True)
        m.d.comb += [
            write.en.eq(self.write_enable),
            write.addr.eq(self.write_address),
            write.data.eq(self.write_data),
            read.addr.eq(Mux(self.read_enable, self.read_address, oldest)),
            self.read_data.eq(read.data),
            self.freed.eq(request & ~self.read_enable),
            self.drain_data.eq(drained),
        ]
        m.d.sync += [pending.eq(request & self.read_enable), self.drain_valid.eq(self.freed), drained.eq(0)]
        with m.If(self.freed):
            m.d.sync += [oldest.eq(oldest + 1), drained.eq(read.data)]
        with m.If(self.restart):
            m.d.sync += [oldest.eq(0), pending.eq(0)]
        return m
