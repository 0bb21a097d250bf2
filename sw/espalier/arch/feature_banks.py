"""How a bank in block RAM is made of memories, and which of its words have a single read port."""

from __future__ import annotations

from espalier.arch.config import HardwareConfig
from espalier.arch.feature_layout import BANKS

# A block RAM of 36 Kbit with two ports that both read or write has 1024 words of 36 bits, one with a read and
# a write port also 512 words of 72 bits.
DUAL_WORDS, SIMPLE_WORDS = 1024, 512


def bank_parts(depth: int) -> list[int]:
    """Depths of the memories that together hold `depth` words: powers of two, largest first, then the rest.

    Synthesis would round a depth of 3072 up to 4096 words.
    """
    parts = []
    while depth >= DUAL_WORDS:
        parts.append(1 << (depth.bit_length() - 1))
        depth -= parts[-1]
    return [*parts, depth] if depth else parts


def small_start(depth: int) -> int | None:
    """First word of the small part of a bank in block RAM, None if it has none.

    That is its last memory if it has at most SIMPLE_WORDS words: it needs only half a block RAM for 36 bits,
    but has a single read port.
    """
    *others, last = bank_parts(depth)
    return sum(others) if last <= SIMPLE_WORDS else None


def small_parts(config: HardwareConfig) -> dict[int, int]:
    """Banks with a small part, and its first word; banks in UltraRAM have none."""
    starts = {bank: small_start(config.bank_depth(bank)) for bank in range(config.uram_banks, BANKS)}
    return {bank: start for bank, start in starts.items() if start is not None}
