"""Window ring of a PE: the last words its branch has broadcast, and the choice of a vertical tap."""

from __future__ import annotations

from typing import Any

from amaranth.hdl import Module, Signal
from amaranth.lib import memory, wiring
from amaranth.lib.memory import MemoryData
from amaranth.lib.wiring import In, Out

from espalier.arch.config import HardwareConfig
from espalier.arch.operators import WORD_TAPS
from espalier_hw.interfaces import memory_write, tile_bits, word_bits


class WindowRing(wiring.Component):
    """`ring_words` window words in LUTRAM.

    address, tap: of the operator issued in this cycle. pixels: its tile (byte row * T + column), one cycle
    later, combinational from the word register; the lanes register it.
    """

    def __init__(self, config: HardwareConfig) -> None:
        self._config = config
        address_bits = (config.ring_words - 1).bit_length()
        super().__init__(
            {
                "write": In(memory_write(address_bits, word_bits(config))),
                "address": In(address_bits),
                "tap": In(2),
                "pixels": Out(tile_bits(config)),
            }
        )

    def elaborate(self, platform: Any) -> Module:
        """Asynchronous read, word register, row multiplexer."""
        m = Module()
        config = self._config
        m.submodules.memory = storage = memory.Memory(
            MemoryData(shape=word_bits(config), depth=config.ring_words, init=[]),
            attrs={"ram_style": "distributed"},
        )
        write, read = storage.write_port(), storage.read_port(domain="comb")
        word = Signal(word_bits(config), reset_less=True)
        tap = Signal(2, reset_less=True)
        m.d.comb += [
            write.en.eq(self.write.enable),
            write.addr.eq(self.write.address),
            write.data.eq(self.write.data),
            read.addr.eq(self.address),
        ]
        m.d.sync += [word.eq(read.data), tap.eq(self.tap)]
        with m.Switch(tap):
            for first_row in range(WORD_TAPS):
                with m.Case(first_row):
                    offset = first_row * config.tile_size * 8
                    m.d.comb += self.pixels.eq(word[offset : offset + tile_bits(config)])
        return m
