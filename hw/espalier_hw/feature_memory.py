"""The nine banks of the feature memory."""

from __future__ import annotations

from collections.abc import Sequence
from functools import reduce
from operator import or_

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
_LUT_INPUTS = 6


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
    """One bank with two ports: one for windows, one for single words, written or read.

    `read_data` follows `read_enable` and `read_address` after LATENCY cycles. `tile_words` follow
    `tile_enable` and `tile_address` after TILE_LATENCY cycles: one word for each memory of the bank, all
    zero but the one that holds the address, and all zero in cycles to which no read belongs, so that they
    can be ORed. An address outside the bank reads as anything. A word that is written in the cycle of its
    read reads as before. `tile_enable` and `write_enable` share a port: never both in one cycle.
    """

    LATENCY = 3
    TILE_LATENCY = 2

    def __init__(self, depth: int, width: int, ultra: bool) -> None:
        """`depth` words of `width` bits, in UltraRAM if `ultra`, else in block RAM."""
        self.depth, self.width, self.ultra = depth, width, ultra
        self.parts = [depth] if ultra else block_ram_parts(depth)
        super().__init__(
            {
                "read_enable": In(1),
                "read_address": In(ADDRESS_BITS),
                "read_data": Out(width),
                "tile_enable": In(1),
                "tile_address": In(ADDRESS_BITS),
                "tile_words": Out(width).array(len(self.parts)),
                "write_enable": In(1),
                "write_address": In(ADDRESS_BITS),
                "write_data": In(width),
            }
        )

    def _part(self, m: Module, index: int, start: int, address: Value) -> tuple[Signal, Signal]:
        """Words from `start`; `address` is that of the shared port.

        Returns the word for the window and whether it was meant, both two cycles late.
        """
        name, size = f"part_{index}", self.parts[index]
        memory = m.submodules[name] = Memory(
            shape=self.width, depth=size, init=[], attrs={"ram_style": "ultra" if self.ultra else "block"}
        )
        read, tile, write = memory.read_port(), memory.read_port(), memory.write_port()
        read_here, shared_here = Signal(name=f"{name}_read_here"), Signal(name=f"{name}_shared_here")
        m.d.comb += [
            read_here.eq(self.read_enable & _inside(self.read_address, start, size)),
            shared_here.eq(_inside(address, start, size)),
            read.en.eq(read_here),
            read.addr.eq(self.read_address),
            tile.addr.eq(address),
            write.en.eq(self.write_enable & shared_here),
            write.addr.eq(address),
            write.data.eq(self.write_data),
        ]
        # What this port reads while it writes is never used. Said in the way in which the RAMs do it, so that
        # both fit into one port: block RAM always reads, UltraRAM does not while it writes.
        either = Mux(self.ultra, self.tile_enable & ~self.write_enable, self.tile_enable | self.write_enable)
        m.d.comb += tile.en.eq(either & shared_here)

        reading = Signal(name=f"{name}_reading", reset_less=True)
        chosen = Signal(name=f"{name}_chosen", reset_less=True)
        tile_reading = Signal(name=f"{name}_tile_reading", reset_less=True)
        output = Signal(self.width, name=f"{name}_output", reset_less=True)
        word = Signal(self.width, name=f"{name}_word", reset_less=True)
        m.d.sync += [reading.eq(read_here), chosen.eq(reading)]
        m.d.sync += tile_reading.eq(self.tile_enable & shared_here)
        with m.If(reading):
            m.d.sync += output.eq(read.data)
        with m.If(tile_reading):
            m.d.sync += word.eq(tile.data)
        with m.Else():
            m.d.sync += word.eq(0)
        m.d.comb += self.tile_words[index].eq(word)
        return output, chosen

    def elaborate(self, platform: object) -> Module:
        """Memories, their output registers, and for windows a register after the choice between them."""
        m = Module()
        data = Signal(self.width, reset_less=True)
        address = Signal(ADDRESS_BITS)
        m.d.comb += address.eq(Mux(self.write_enable, self.write_address, self.tile_address))
        start = 0
        word: Value = Const(0, self.width)
        for index, size in enumerate(self.parts):
            output, chosen = self._part(m, index, start, address)
            word = Mux(chosen, output, word) if index else output
            start += size
        with m.If(delay(m, self.read_enable, self.LATENCY - 1)):
            m.d.sync += data.eq(word)
        m.d.comb += self.read_data.eq(data)
        return m


def _inside(address: Value, start: int, size: int) -> Value:
    """Whether an address belongs to the `size` words from `start`."""
    return (address >= start) & (address < start + size)


class FeatureMemory(wiring.Component):
    """Nine banks: a window read has an address in each, a write or a single read goes to one of them.

    read_data: LATENCY cycles after `read_enable`. tile_data: TILE_LATENCY cycles after a bit of `tile_enable`
    was set, zero when there is no read. A bank may not be written and tile-read in the same cycle. See
    `FeatureBank` for the rest.
    """

    LATENCY = FeatureBank.LATENCY
    TILE_LATENCY = FeatureBank.TILE_LATENCY + 2

    def __init__(self, config: HardwareConfig) -> None:
        self.config = config
        width = tile_bits(config)
        super().__init__(
            {
                "read_enable": In(1),
                "read_address": In(ADDRESS_BITS).array(BANKS),
                "read_data": Out(width).array(BANKS),
                "tile_enable": In(BANKS),
                "tile_address": In(ADDRESS_BITS),
                "tile_data": Out(width),
                "write_enable": In(BANKS),
                "write_address": In(ADDRESS_BITS),
                "write_data": In(width),
            }
        )

    def elaborate(self, platform: object) -> Module:
        """Put the first banks into UltraRAM, as many as the configuration says."""
        m = Module()
        words: list[Value] = []
        for index in range(BANKS):
            ultra = index < self.config.uram_banks
            bank = FeatureBank(self.config.feature_depth_words, tile_bits(self.config), ultra)
            kind = "feature_bank_ultra" if ultra else "feature_bank_block"
            place(m, platform, f"bank_{index}", kind, bank)
            m.d.comb += [
                bank.read_enable.eq(self.read_enable),
                bank.read_address.eq(self.read_address[index]),
                self.read_data[index].eq(bank.read_data),
                bank.tile_enable.eq(self.tile_enable[index]),
                bank.tile_address.eq(self.tile_address),
                bank.write_enable.eq(self.write_enable[index]),
                bank.write_address.eq(self.write_address),
                bank.write_data.eq(self.write_data),
            ]
            words.extend(bank.tile_words)
        m.d.comb += self.tile_data.eq(_or_in_two_cycles(m, words))
        return m


def _or_in_two_cycles(m: Module, words: list[Value]) -> Signal:
    """OR of words, two cycles later: as many groups of six first as make the rest six, or fewer."""
    groups = max(0, -(-(len(words) - _LUT_INPUTS) // (_LUT_INPUTS - 1)))
    parts = [words[index * _LUT_INPUTS :][:_LUT_INPUTS] for index in range(groups)]
    parts += [[word] for word in words[groups * _LUT_INPUTS :]]
    return _registered_or(
        m, [_registered_or(m, part, f"tile_part_{index}") for index, part in enumerate(parts)], "tile"
    )


def _registered_or(m: Module, words: Sequence[Value], name: str) -> Signal:
    """OR of words, one cycle later."""
    result = Signal(len(words[0]), name=name, reset_less=True)
    m.d.sync += result.eq(reduce(or_, words))
    return result
