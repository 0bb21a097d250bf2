"""The nine banks of the feature memory."""

from __future__ import annotations

from amaranth.hdl import Const, Module, Mux, Signal, Value
from amaranth.lib import wiring
from amaranth.lib.memory import Memory
from amaranth.lib.wiring import In, Out

from espalier.arch.config import HardwareConfig
from espalier.arch.feature_layout import BANKS
from espalier_hw.arbitration import delay
from espalier_hw.hierarchy import place
from espalier_hw.interfaces import tile_bits
from espalier_hw.tile_address import ADDRESS_BITS

# Words of the smallest block RAM that is as wide as it can be: splitting further would gain nothing.
_SMALLEST_PART = 512


def block_ram_parts(depth: int) -> list[int]:
    """Depths of the memories that together hold `depth` words: powers of two, largest first, then the rest.

    Synthesis would round a depth of 3072 up to 4096 words.
    """
    parts = []
    while depth > _SMALLEST_PART:
        parts.append(1 << (depth.bit_length() - 1))
        depth -= parts[-1]
    return [*parts, depth] if depth else parts


class FeatureBank(wiring.Component):
    """One bank: one read and one write a cycle.

    `read_data` follows `read_enable` and `read_address` after LATENCY cycles and then keeps its value
    until the next read; an address outside the bank reads as anything. A word that is written in the cycle
    of its read reads as before.
    """

    LATENCY = 3

    def __init__(self, depth: int, width: int, ultra: bool) -> None:
        """`depth` words of `width` bits, in UltraRAM if `ultra`, else in block RAM."""
        self.depth, self.width, self.ultra = depth, width, ultra
        super().__init__(
            {
                "read_enable": In(1),
                "read_address": In(ADDRESS_BITS),
                "read_data": Out(width),
                "write_enable": In(1),
                "write_address": In(ADDRESS_BITS),
                "write_data": In(width),
            }
        )

    def _part(self, m: Module, name: str, start: int, size: int) -> tuple[Signal, Signal]:
        """Words start..start+size-1. Returns the word and whether it was meant, both two cycles late."""
        memory = m.submodules[name] = Memory(
            shape=self.width, depth=size, init=[], attrs={"ram_style": "ultra" if self.ultra else "block"}
        )
        read, write = memory.read_port(), memory.write_port()
        read_here, write_here = Signal(name=f"{name}_read_here"), Signal(name=f"{name}_write_here")
        reading = Signal(name=f"{name}_reading", reset_less=True)
        chosen = Signal(name=f"{name}_chosen", reset_less=True)
        output = Signal(self.width, name=f"{name}_output", reset_less=True)
        m.d.comb += [
            read_here.eq(self.read_enable & self._inside(self.read_address, start, size)),
            write_here.eq(self.write_enable & self._inside(self.write_address, start, size)),
            read.en.eq(read_here),
            read.addr.eq(self.read_address),
            write.en.eq(write_here),
            write.addr.eq(self.write_address),
            write.data.eq(self.write_data),
        ]
        m.d.sync += [reading.eq(read_here), chosen.eq(reading)]
        with m.If(reading):
            m.d.sync += output.eq(read.data)
        return output, chosen

    def _inside(self, address: Signal, start: int, size: int) -> Value:
        return (address >= start) & (address < start + size)

    def elaborate(self, platform: object) -> Module:
        """Memory, its output register, and a register after the choice between the parts."""
        m = Module()
        data = Signal(self.width, reset_less=True)
        start = 0
        parts = [self.depth] if self.ultra else block_ram_parts(self.depth)
        word: Value = Const(0, self.width)
        for index, size in enumerate(parts):
            output, chosen = self._part(m, f"part_{index}", start, size)
            word = Mux(chosen, output, word) if index else output
            start += size
        with m.If(delay(m, self.read_enable, self.LATENCY - 1)):
            m.d.sync += data.eq(word)
        m.d.comb += self.read_data.eq(data)
        return m


class FeatureMemory(wiring.Component):
    """Nine banks: reads have an address each, a write goes to one bank. See `FeatureBank` for the timing."""

    def __init__(self, config: HardwareConfig) -> None:
        self.config = config
        width = tile_bits(config)
        super().__init__(
            {
                "read_enable": In(1),
                "read_address": In(ADDRESS_BITS).array(BANKS),
                "read_data": Out(width).array(BANKS),
                "write_enable": In(BANKS),
                "write_address": In(ADDRESS_BITS),
                "write_data": In(width),
            }
        )

    def elaborate(self, platform: object) -> Module:
        """Put the first banks into UltraRAM, as many as the configuration says."""
        m = Module()
        for index in range(BANKS):
            ultra = index < self.config.uram_banks
            bank = FeatureBank(self.config.feature_depth_words, tile_bits(self.config), ultra)
            kind = "feature_bank_ultra" if ultra else "feature_bank_block"
            place(m, platform, f"bank_{index}", kind, bank)
            m.d.comb += [
                bank.read_enable.eq(self.read_enable),
                bank.read_address.eq(self.read_address[index]),
                self.read_data[index].eq(bank.read_data),
                bank.write_enable.eq(self.write_enable[index]),
                bank.write_address.eq(self.write_address),
                bank.write_data.eq(self.write_data),
            ]
        return m
