"""What the blocks of the accelerator consist of, in terms of the configuration."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

from espalier.arch.config import HardwareConfig
from espalier.arch.feature_banks import bank_parts, small_start
from espalier.arch.feature_layout import BANK_SIDE, BANKS
from espalier.arch.operators import STREAM_WORD_BITS
from espalier.arch.program import (
    ACCUMULATOR_BITS,
    PROGRAM_WORD_BITS,
    TABLE_WORD_BITS,
    descriptor_words,
)
from espalier.arch.registers import COUNTERS
from espalier.estimate.resource_memory import MemoryBlocks, block_ram, lutram, ultra_ram


@dataclass(frozen=True)
class Site:
    """A place in a configuration that a block is made for.

    family: "xcup" or "xc7". lut_kind: the block belongs to a branch of kind `lut`, if to any. bank: number of
    the feature bank, if it is one.
    """

    config: HardwareConfig
    family: str
    lut_kind: bool = False
    bank: int = 0

    @property
    def pes(self) -> int:
        """PEs of the branch."""
        return self.config.lut_pes if self.lut_kind else self.config.pes_per_branch

    @property
    def dsp_pairs(self) -> int:
        """Lane pairs in DSP slices of every PE of the branch."""
        return self.config.lut_dsp_pairs if self.lut_kind else self.config.dsp_pairs

    @property
    def tile_bits(self) -> int:
        """Bits of a tile word."""
        return 8 * self.config.lanes_per_pe

    @property
    def word_bits(self) -> int:
        """Bits of a window word."""
        return 8 * self.config.word_rows * self.config.tile_size

    @property
    def window_bits(self) -> int:
        """Bits of a window."""
        return 8 * self.config.word_rows * self.config.window_columns

    @property
    def drain_bits(self) -> int:
        """Bits of the sums of a tile."""
        return self.config.pair_bits * self.config.pairs

    @property
    def fabric_lanes(self) -> int:
        """Lanes of a PE that are not in DSP slices."""
        return max(0, self.config.lanes_per_pe - 2 * self.dsp_pairs)

    @property
    def accumulator_bits(self) -> int:
        """Bits of the sums of a tile that can be other than zero."""
        return self.config.pair_spacing_bits * (2 * self.dsp_pairs + self.fabric_lanes)

    @property
    def output_lanes(self) -> int:
        """Lanes that the output stage works on in a cycle; see `espalier_hw.beats.beat_slots`."""
        config, pairs = self.config, self.config.output_pairs
        single = config.lanes_per_pe % 2 == 1 and config.pairs - 1 == config.output_beats * (pairs - 1)
        return 2 * pairs - single

    @property
    def bank_parts(self) -> int:
        """Memories of the feature bank if it is in block RAM."""
        return len(bank_parts(self.config.bank_depth(self.bank)))


Term = Callable[[Site], float]


def _no_luts(site: Site) -> int:
    return 0


def _no_memory(site: Site) -> MemoryBlocks:
    return MemoryBlocks()


@dataclass(frozen=True)
class Block:
    """What a block takes. lut, ff: terms to which coefficients are fitted, beside a constant per family.

    lutram: LUTs of its large distributed RAMs; dsp, memory: exact. ring_lut, ring_ff: more with rings,
    streaming: LUTs and flip-flops more with `streaming`, as counted for zcu104; they depend on next to
    nothing.
    """

    lut: tuple[Term, ...] = ()
    ff: tuple[Term, ...] = ()
    lutram: Callable[[Site], int] = _no_luts
    dsp: Callable[[Site], int] = _no_luts
    memory: Callable[[Site], MemoryBlocks] = _no_memory
    ring_lut: int = 0
    ring_ff: int = 0
    streaming: tuple[int, int] = (0, 0)

    def terms(self, resource: str, site: Site) -> list[float]:
        """Values of the terms of "lut" or "ff": the constants of the two families, then the block's own."""
        constants = [1.0, float(site.family == "xc7")]
        return constants + [float(term(site)) for term in (self.lut if resource == "lut" else self.ff)]


@dataclass(frozen=True)
class Row:
    """Blocks that an estimate shows together. instances: how often; blocks: how many of each in one.

    lut_kind, bank: see `Site`. suffix: tells the blocks of the row from those of the same name in others.
    """

    name: str
    instances: Callable[[HardwareConfig], int]
    blocks: dict[str, int]
    lut_kind: bool = False
    bank: int = 0
    suffix: str = ""

    def site(self, config: HardwareConfig, family: str) -> Site:
        """Place of the row's blocks."""
        return Site(config, family, self.lut_kind, self.bank)


def _strip_bits(site: Site) -> int:
    """Bits of T rows of a window."""
    return 8 * site.config.tile_size * site.config.window_columns


def _branches(site: Site) -> int:
    return site.config.branches


def _multipliers(site: Site) -> int:
    """DSP slices of a multiplication of sums: the slices of the 7 series take 25 bits, not 27."""
    return 1 if site.family == "xcup" else 2


def _tile_words(site: Site) -> int:
    """Bits of all words of feature banks that meet at the port for single tiles."""
    banks = (Site(site.config, site.family, bank=bank) for bank in range(BANKS))
    return site.tile_bits * sum(1 if b.bank < b.config.uram_banks else b.bank_parts for b in banks)


def _deep_memory(site: Site, bits: int, words: int, dual: bool = False) -> MemoryBlocks:
    """Count a memory in UltraRAM, or in block RAM if the device has none."""
    if site.config.has_ultra_ram:
        return ultra_ram(bits, words, site.family, dual)
    return block_ram(bits, words, dual)


def _table_memory(site: Site) -> MemoryBlocks:
    if site.config.table_in_ultra:
        return _deep_memory(site, TABLE_WORD_BITS, site.config.table_depth_words)
    return block_ram(TABLE_WORD_BITS, site.config.table_depth_words)


def _bank_memory(site: Site) -> MemoryBlocks:
    """Count a bank in block RAM, whose last part needs no second port that reads if it is small."""
    parts = bank_parts(site.config.bank_depth(site.bank))
    small = small_start(site.config.bank_depth(site.bank)) is not None
    return sum(
        (
            block_ram(site.tile_bits, words, dual=not (small and part == len(parts) - 1))
            for part, words in enumerate(parts)
        ),
        MemoryBlocks(),
    )


_TILES_AHEAD = 16  # residual tiles that an output stage has room for

BLOCKS: dict[str, Block] = {
    "pe": Block(
        lut=(lambda s: s.tile_bits, lambda s: s.fabric_lanes),
        ff=(lambda s: s.word_bits + s.accumulator_bits, lambda s: s.fabric_lanes),
        lutram=lambda s: (
            lutram(s.word_bits, s.config.ring_words, s.family)
            + lutram(s.accumulator_bits, s.config.accumulators, s.family)
        ),
        dsp=lambda s: s.dsp_pairs,
        memory=lambda s: _deep_memory(s, STREAM_WORD_BITS, s.config.stream_depth_words),
        streaming=(89, 27),
    ),
    "window_walker": Block(lut=(_branches,), ff=(_branches,)),
    "word_writer": Block(
        lut=(lambda s: s.pes, lambda s: s.word_bits, lambda s: s.word_bits * s.config.tile_size),
        ff=(lambda s: s.pes, lambda s: s.window_bits, lambda s: s.word_bits),
        lutram=lambda s: lutram(s.window_bits, s.config.window_fifo_depth, s.family),
    ),
    "output_stage": Block(
        lut=(
            lambda s: s.pes * s.drain_bits,
            lambda s: s.drain_bits,
            lambda s: s.output_lanes,
            lambda s: s.pes,
        ),
        ff=(lambda s: s.drain_bits, lambda s: s.output_lanes, lambda s: s.tile_bits, lambda s: s.pes),
        lutram=lambda s: (
            lutram(s.tile_bits, _TILES_AHEAD, s.family)
            + lutram(s.output_lanes * ACCUMULATOR_BITS, s.config.output_beats, s.family)
        ),
        dsp=lambda s: s.output_lanes * _multipliers(s),
        memory=lambda s: _table_memory(s) + MemoryBlocks(bram36=s.output_lanes / 2),
    ),
    "branch_frame": Block(lut=(lambda s: s.pes,), ff=(lambda s: s.pes.bit_length(),)),
    "pool_unit": Block(
        lut=(_branches, _strip_bits, lambda s: s.tile_bits),
        ff=(_branches, _strip_bits, lambda s: s.tile_bits),
        lutram=lambda s: lutram(s.window_bits, s.config.window_fifo_depth, s.family),
        dsp=_multipliers,
    ),
    "read_arbiter": Block(lut=(_branches, lambda s: s.config.branches**2), ff=(_branches,)),
    "window_reader": Block(
        lut=(_branches, lambda s: s.window_bits, lambda s: s.tile_bits),
        ff=(_branches, lambda s: s.window_bits, lambda s: s.tile_bits),
        ring_lut=79,
        ring_ff=20,
    ),
    "tile_reader": Block(lut=(_branches,), ff=(_branches,), ring_lut=31, ring_ff=22),
    "write_port": Block(
        lut=(_branches, lambda s: s.config.branches * s.tile_bits, lambda s: s.tile_bits),
        ff=(_branches, lambda s: s.config.branches * s.tile_bits, lambda s: s.tile_bits),
        ring_lut=31,
        ring_ff=19,
    ),
    "second_write_port": Block(
        lut=(lambda s: s.tile_bits,), ff=(lambda s: s.tile_bits,), ring_lut=31, ring_ff=19
    ),
    "feature_frame": Block(
        lut=(lambda s: s.tile_bits, _tile_words),
        ff=(lambda s: s.tile_bits, _tile_words),
    ),
    "feature_bank_ultra": Block(
        ff=(lambda s: s.tile_bits,),
        memory=lambda s: _deep_memory(s, s.tile_bits, s.config.bank_depth(s.bank), dual=True),
    ),
    "feature_bank_block": Block(
        lut=(lambda s: s.bank_parts, lambda s: s.tile_bits * (s.bank_parts - 1)),
        ff=(lambda s: s.bank_parts, lambda s: s.tile_bits * s.bank_parts, lambda s: s.tile_bits),
        memory=_bank_memory,
    ),
    "loader": Block(lut=(_branches,), ff=(_branches,), streaming=(154, 12)),
    "load_walker": Block(
        lut=(lambda s: s.config.word_beats,), ff=(lambda s: s.tile_bits, lambda s: s.config.word_beats)
    ),
    "store_walker": Block(
        lut=(lambda s: s.tile_bits, lambda s: s.config.word_beats),
        ff=(lambda s: s.tile_bits, lambda s: s.config.word_beats),
        lutram=lambda s: lutram(s.tile_bits, 8, s.family),
    ),
    "axi_read": Block(
        lut=(lambda s: s.config.axi_address_bits, lambda s: s.config.burst_beats.bit_length()),
        ff=(lambda s: s.config.axi_address_bits, lambda s: s.config.burst_beats.bit_length()),
        lutram=lambda s: lutram(s.config.axi_data_bits + 1, 4 * s.config.burst_beats, s.family),
    ),
    "axi_write": Block(
        lut=(lambda s: s.config.axi_address_bits, lambda s: s.config.burst_beats.bit_length()),
        ff=(lambda s: s.config.axi_address_bits, lambda s: s.config.burst_beats.bit_length()),
    ),
    "sequencer": Block(
        ff=(lambda s: PROGRAM_WORD_BITS * descriptor_words(s.config),),
        memory=lambda s: block_ram(PROGRAM_WORD_BITS, s.config.program_depth_words),
    ),
    "scoreboard": Block(lut=(_branches,), ff=(_branches,)),
    "counters": Block(
        lut=(_branches,),
        ff=(_branches,),
        memory=lambda s: block_ram(32, s.config.max_layers * len(COUNTERS)),
    ),
    "csr": Block(),
    "control": Block(),
    "top_frame": Block(lut=(_branches, lambda s: s.tile_bits), ff=(_branches,)),
}


_BRANCH = {"window_walker": 1, "word_writer": 1, "output_stage": 1, "branch_frame": 1}


_FIRST = BANK_SIDE  # banks of the first tile row of three, which are deeper than the others


def _one(config: HardwareConfig) -> int:
    return 1


ROWS = (
    Row("pe", lambda c: (c.branches - c.lut_branches) * c.pes_per_branch, {"pe": 1}),
    Row("pe_lut", lambda c: c.lut_branches * c.lut_pes, {"pe": 1}, lut_kind=True, suffix="_lut"),
    Row("branch", lambda c: c.branches - c.lut_branches, _BRANCH),
    Row("branch_lut", lambda c: c.lut_branches, _BRANCH, lut_kind=True, suffix="_lut"),
    Row("pool_unit", _one, {"pool_unit": 1}),
    Row("feature_bank_ultra", lambda c: min(c.uram_banks, _FIRST), {"feature_bank_ultra": 1}),
    Row("feature_bank_block", lambda c: _FIRST - min(c.uram_banks, _FIRST), {"feature_bank_block": 1}),
    Row(
        "feature_bank_ultra_rest",
        lambda c: max(0, c.uram_banks - _FIRST),
        {"feature_bank_ultra": 1},
        bank=_FIRST,
        suffix="_rest",
    ),
    Row(
        "feature_bank_block_rest",
        lambda c: BANKS - max(_FIRST, c.uram_banks),
        {"feature_bank_block": 1},
        bank=_FIRST,
        suffix="_rest",
    ),
    Row(
        "feature_access",
        _one,
        {
            "read_arbiter": 1,
            "window_reader": 1,
            "tile_reader": 1,
            "write_port": 1,
            "second_write_port": 1,
            "feature_frame": 1,
        },
    ),
    Row("dma", _one, {"loader": 1, "load_walker": 1, "store_walker": 1, "axi_read": 1, "axi_write": 1}),
    Row(
        "control",
        _one,
        {"sequencer": 1, "scoreboard": 1, "counters": 1, "csr": 1, "control": 1, "top_frame": 1},
    ),
)
