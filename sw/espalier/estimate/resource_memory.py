"""How many primitives a memory takes: LUTs of distributed RAM, block RAMs, UltraRAMs."""

from __future__ import annotations

from dataclasses import dataclass

# Distributed RAM with one write and one other read port: bits by words in so many LUTs.
_LUTRAM = {"xcup": {32: (14, 8), 64: (7, 8)}, "xc7": {32: (6, 4), 64: (3, 4)}}
# Widths of a RAMB18 by depth, with a read and a write port and with two ports that do either.
_BRAM18_SIMPLE = {512: 36, 1024: 18, 2048: 9, 4096: 4, 8192: 2, 16384: 1}
_BRAM18_DUAL = {depth: width for depth, width in _BRAM18_SIMPLE.items() if depth > 512}
_URAM_BITS, _URAM_WORDS = 72, 4096


@dataclass(frozen=True)
class MemoryBlocks:
    """Block RAMs (in units of 36 Kbit) and UltraRAMs."""

    bram36: float = 0.0
    uram: int = 0

    def __add__(self, other: MemoryBlocks) -> MemoryBlocks:
        return MemoryBlocks(self.bram36 + other.bram36, self.uram + other.uram)


def lutram(bits: int, words: int, family: str) -> int:
    """LUTs of a distributed RAM of `words` words (at most 64 without a multiplexer behind)."""
    shape = 32 if words <= 32 else 64
    width, luts = _LUTRAM[family][shape]
    return luts * -(-bits // width) * -(-words // shape)


def block_ram(bits: int, words: int, dual: bool = False) -> MemoryBlocks:
    """Block RAMs of a memory; `dual`: two ports that both read or write, otherwise one of each kind.

    A depth that is no power of two is made of parts that are, and a rest that is rounded up.
    """
    shapes = _BRAM18_DUAL if dual else _BRAM18_SIMPLE
    total, smallest = MemoryBlocks(), min(shapes)
    while words > 0:
        part = 1 << (words.bit_length() - 1) if words > smallest else smallest
        halves = min(-(-part // depth) * -(-bits // width) for depth, width in shapes.items())
        total += MemoryBlocks(bram36=halves / 2)
        words -= part
    return total


def ultra_ram(bits: int, words: int, family: str, dual: bool = False) -> MemoryBlocks:
    """UltraRAMs of a memory, or block RAMs in a family that has none."""
    if family == "xcup":
        return MemoryBlocks(uram=-(-bits // _URAM_BITS) * -(-words // _URAM_WORDS))
    return block_ram(bits, words, dual)
