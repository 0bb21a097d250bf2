"""The nine banks of the feature memory."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from functools import reduce
from operator import or_

from amaranth.hdl import Cat, Const, Module, Mux, Signal, Value
from amaranth.lib import wiring
from amaranth.lib.memory import Memory
from amaranth.lib.wiring import In, Out

from espalier.arch.config import HardwareConfig
from espalier.arch.feature_banks import DUAL_WORDS, bank_parts, small_start
from espalier.arch.feature_layout import BANKS
from espalier_hw.arbitration import delay
from espalier_hw.hierarchy import place
from espalier_hw.interfaces import tile_bits
from espalier_hw.tile_address import ADDRESS_BITS

_LUT_INPUTS = 6


class FeatureBank(wiring.Component):
    """One bank with two ports: one for windows, one for single words, written or read.

    `read_data` follows `read_enable` and `read_address` after LATENCY cycles. `tile_words` follow
    `tile_enable` and `tile_address` after TILE_LATENCY cycles: one word for each memory of the bank, all
    zero but the one that holds the address, and all zero in cycles to which no read belongs, so that they
    can be ORed. An address outside the bank reads as anything. A word that is written in the cycle of its
    read reads as before. `tile_enable` and `write_enable` share a port: never both in one cycle, unless
    `tile_address` lies in the small part.

    The last words of a bank in block RAM are its small part if they are at most 512 beyond a multiple of
    1024: memories of half the size, with a write port and only one read port. There a tile read gives way
    to a window read: `tile_refused`, combinational, says that both came in one cycle, so that the tile is
    not read.
    """

    LATENCY = 3
    TILE_LATENCY = 2

    def __init__(self, depth: int, width: int, ultra: bool) -> None:
        """`depth` words of `width` bits, in UltraRAM if `ultra`, else in block RAM."""
        self.depth, self.width, self.ultra = depth, width, ultra
        self.parts = [depth] if ultra else bank_parts(depth)
        self.small = not ultra and small_start(depth) is not None
        super().__init__(
            {
                "read_enable": In(1),
                "read_address": In(ADDRESS_BITS),
                "read_data": Out(width),
                "tile_enable": In(1),
                "tile_address": In(ADDRESS_BITS),
                "tile_words": Out(width).array(len(self.parts)),
                "tile_refused": Out(1),
                "write_enable": In(1),
                "write_address": In(ADDRESS_BITS),
                "write_data": In(width),
            }
        )

    def _dual(self, m: Module, memory: Memory, start: int, shared: Value) -> _Reads:
        """Memory with two ports; `shared`: address of the second, which writes or reads tiles."""
        read, tile, write = memory.read_port(), memory.read_port(), memory.write_port()
        read_here, shared_here = Signal(), Signal()
        m.d.comb += [
            read_here.eq(self.read_enable & _inside(self.read_address, start, memory.depth)),
            shared_here.eq(_inside(shared, start, memory.depth)),
            read.en.eq(read_here),
            read.addr.eq(self.read_address),
            tile.addr.eq(shared),
            write.en.eq(self.write_enable & shared_here),
            write.addr.eq(shared),
            write.data.eq(self.write_data),
        ]
        # What this port reads while it writes is never used. Said in the way in which the RAMs do it, so that
        # both fit into one port: block RAM always reads, UltraRAM does not while it writes.
        reading = self.tile_enable & ~self.write_enable
        m.d.comb += tile.en.eq(
            (reading if self.ultra else self.tile_enable | self.write_enable) & shared_here
        )
        return _Reads(read_here, read.data, reading & shared_here, tile.data)

    def _simple(self, m: Module, memory: Memory, start: int) -> _Reads:
        """Memory with a write port and a read port, which windows have before tiles."""
        read, write = memory.read_port(), memory.write_port()
        window_here, tile_here = Signal(), Signal()
        # Few levels, as the tile reader waits for it in the same cycle: nothing of the bank lies above.
        m.d.comb += [
            window_here.eq(self.read_enable & at_least(self.read_address, start)),
            tile_here.eq(self.tile_enable & at_least(self.tile_address, start)),
            self.tile_refused.eq(window_here & tile_here),
            read.en.eq(window_here | tile_here),
            read.addr.eq(Mux(window_here, self.read_address, self.tile_address)),
            write.en.eq(self.write_enable & _inside(self.write_address, start, memory.depth)),
            write.addr.eq(self.write_address),
            write.data.eq(self.write_data),
        ]
        return _Reads(window_here, read.data, tile_here & ~window_here, read.data)

    def _part(self, m: Module, index: int, start: int, shared: Value) -> tuple[Signal, Signal]:
        """Words from `start`; `shared`: address of the port that two-port memories write and read tiles with.

        Returns the word for the window and whether it was meant, both two cycles late.
        """
        name, size = f"part_{index}", self.parts[index]
        memory = m.submodules[name] = Memory(
            shape=self.width, depth=size, init=[], attrs={"ram_style": "ultra" if self.ultra else "block"}
        )
        small = self.small and index == len(self.parts) - 1
        reads = self._simple(m, memory, start) if small else self._dual(m, memory, start, shared)
        reading = Signal(name=f"{name}_reading", reset_less=True)
        chosen = Signal(name=f"{name}_chosen", reset_less=True)
        tile_reading = Signal(name=f"{name}_tile_reading", reset_less=True)
        output = Signal(self.width, name=f"{name}_output", reset_less=True)
        word = Signal(self.width, name=f"{name}_word", reset_less=True)
        m.d.sync += [reading.eq(reads.window), chosen.eq(reading), tile_reading.eq(reads.tile)]
        with m.If(reading):
            m.d.sync += output.eq(reads.window_data)
        with m.If(tile_reading):
            m.d.sync += word.eq(reads.tile_data)
        with m.Else():
            m.d.sync += word.eq(0)
        m.d.comb += self.tile_words[index].eq(word)
        return output, chosen

    def elaborate(self, platform: object) -> Module:
        """Memories, their output registers, and for windows a register after the choice between them."""
        m = Module()
        data = Signal(self.width, reset_less=True)
        shared = Signal(ADDRESS_BITS)
        m.d.comb += shared.eq(Mux(self.write_enable, self.write_address, self.tile_address))
        start = 0
        word: Value = Const(0, self.width)
        for index, size in enumerate(self.parts):
            output, chosen = self._part(m, index, start, shared)
            word = Mux(chosen, output, word) if index else output
            start += size
        with m.If(delay(m, self.read_enable, self.LATENCY - 1)):
            m.d.sync += data.eq(word)
        m.d.comb += self.read_data.eq(data)
        return m


@dataclass(frozen=True)
class _Reads:
    """Whether a memory is read for a window and for a tile, and what it answers one cycle later."""

    window: Value
    window_data: Value
    tile: Value
    tile_data: Value


def _inside(address: Value, start: int, size: int) -> Value:
    """Whether an address belongs to the `size` words from `start`."""
    return (address >= start) & (address < start + size)


def at_least(address: Value, start: int) -> Value:
    """Whether an address is `start`, a multiple of 1024, or more."""
    return address[DUAL_WORDS.bit_length() - 1 :] >= start // DUAL_WORDS


class FeatureMemory(wiring.Component):
    """Nine banks: a window read has an address in each, two writes and a single read go to one of them each.

    The two writes of a cycle are never for the same bank.

    read_data: LATENCY cycles after `read_enable`. tile_data: TILE_LATENCY cycles after a bit of `tile_enable`
    was set, zero when there is no read. tile_refused: in this cycle no tile is read. See `FeatureBank` for
    the rest.
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
                "tile_refused": Out(1),
                "write_enable": In(BANKS).array(2),
                "write_address": In(ADDRESS_BITS).array(2),
                "write_data": In(width).array(2),
            }
        )

    def elaborate(self, platform: object) -> Module:
        """Put the first banks into UltraRAM, as many as the configuration says."""
        m = Module()
        words: list[Value] = []
        refused: list[Value] = []
        for index in range(BANKS):
            ultra = index < self.config.uram_banks
            bank = FeatureBank(self.config.bank_depth(index), tile_bits(self.config), ultra)
            kind = "feature_bank_ultra" if ultra else "feature_bank_block"
            kind += "_rest" * (bank.depth != self.config.feature_depth_words)
            place(m, platform, f"bank_{index}", kind, bank)
            second = self.write_enable[1][index]
            m.d.comb += [
                bank.read_enable.eq(self.read_enable),
                bank.read_address.eq(self.read_address[index]),
                self.read_data[index].eq(bank.read_data),
                bank.tile_enable.eq(self.tile_enable[index]),
                bank.tile_address.eq(self.tile_address),
                bank.write_enable.eq(Cat(enable[index] for enable in self.write_enable).any()),
                bank.write_address.eq(Mux(second, self.write_address[1], self.write_address[0])),
                bank.write_data.eq(Mux(second, self.write_data[1], self.write_data[0])),
            ]
            words.extend(bank.tile_words)
            refused.append(bank.tile_refused)
        m.d.comb += self.tile_refused.eq(Cat(refused).any())
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
