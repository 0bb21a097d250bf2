"""Resource model: what it adds up, and what it refuses."""

from __future__ import annotations

import dataclasses

import pytest

from espalier.arch.config import Device, load_config, preset_names
from espalier.errors import CapacityError, ConfigError
from espalier.estimate.resource_memory import MemoryBlocks, block_ram, lutram, ultra_ram
from espalier.estimate.resources import LIMIT, RESOURCES, check_fits, estimate_resources, family_of

ZCU104 = load_config("zcu104")
TINY = load_config("tiny")


@pytest.mark.parametrize("name", preset_names())
def test_presets_fit(name):
    estimate = check_fits(load_config(name))
    assert all(share <= LIMIT for share in estimate.shares.values())


def test_rows_add_up():
    estimate = estimate_resources(TINY)
    rows = {block.name: block for block in estimate.blocks}
    assert rows["pe"].instances == 3
    assert rows["pe_lut"].instances == 2
    assert rows["branch"].instances == rows["branch_lut"].instances == 1
    for resource in RESOURCES:
        assert getattr(estimate.total, resource) == sum(
            getattr(block.total, resource) for block in estimate.blocks
        )
    assert estimate.shares == {}
    assert check_fits(TINY) == estimate


def test_exact_resources_of_the_large_preset():
    """By hand: 48 PEs of 25 pairs in slices and 16 of 7, 13 multipliers in an output stage, one for pools."""
    estimate = estimate_resources(ZCU104)
    rows = {block.name: block for block in estimate.blocks}
    assert (rows["pe"].instances, rows["pe"].each.dsp) == (48, 25)
    assert (rows["pe_lut"].instances, rows["pe_lut"].each.dsp) == (16, 7)
    assert estimate.total.dsp == 48 * 25 + 16 * 7 + 4 * 13 + 1
    assert estimate.total.uram == 64 + 2 * 6
    assert estimate.total.bram36 == 247


def test_streaming_is_logic_of_pes_and_loader():
    plain, streaming = (estimate_resources(dataclasses.replace(ZCU104, streaming=s)) for s in (False, True))
    rows = [{block.name: block.total for block in estimate.blocks} for estimate in (plain, streaming)]
    more = {name: rows[1][name].lut - rows[0][name].lut for name in rows[0]}
    assert {name for name, luts in more.items() if luts} == {"pe", "pe_lut", "dma"}
    assert more["pe"] / 48 == more["pe_lut"] / 16 == 89
    assert (streaming.total.uram, streaming.total.dsp) == (plain.total.uram, plain.total.dsp)


def test_more_lanes_in_slices_take_fewer_luts():
    few, many = (dataclasses.replace(ZCU104, dsp_pairs=pairs) for pairs in (10, 20))
    few_total, many_total = estimate_resources(few).total, estimate_resources(many).total
    assert many_total.dsp - few_total.dsp == 10 * 48
    assert many_total.lut < few_total.lut


@pytest.mark.parametrize(
    ("changes", "words"),
    [
        ({"lut_dsp_pairs": 9}, ["DSP slices of 1,728", "dsp_pairs"]),
        ({"branches": 8}, ["LUTs of 230,400", "pes_per_branch"]),
        ({"feature_depth_words": 8192}, ["block RAMs of 312", "uram_banks"]),
        ({"table_depth_words": 4096, "stream_depth_words": 8192}, ["UltraRAMs of 96", "stream_depth_words"]),
    ],
)
def test_an_over_full_configuration_is_refused(changes, words):
    config = dataclasses.replace(ZCU104, **changes)
    with pytest.raises(CapacityError, match=r"needs more than 80% of xczu7ev") as caught:
        check_fits(config)
    for word in words:
        assert word in str(caught.value)


def test_family_and_devices_without_ultra_ram():
    device = Device(part="xc7z020clg400-1", lut=53200, ff=106400, bram36=140, uram=0, dsp=220)
    config = dataclasses.replace(TINY, device=device, pair_spacing_bits=16)
    assert family_of(config) == "xc7"
    assert family_of(TINY) == family_of(ZCU104) == "xcup"
    estimate = estimate_resources(config)
    assert estimate.total.uram == 0
    assert estimate.shares["uram"] == 0
    assert estimate.total.bram36 > estimate_resources(TINY).total.bram36
    # UltraScale+ with and without UltraRAM: a stream of 4,096 words of 72 bits is one, or eight block RAMs.
    small = Device(part="xczu3eg-sbva484-1-i", lut=70560, ff=141120, bram36=216, uram=0, dsp=360)
    without = estimate_resources(dataclasses.replace(TINY, device=small))
    assert without.family == "xcup"
    with_ultra = estimate_resources(TINY).total
    assert with_ultra.uram == TINY.pes and without.total.uram == 0
    assert without.total.bram36 == with_ultra.bram36 + 8 * TINY.pes
    deep = dataclasses.replace(TINY, device=small, table_depth_words=4096)
    assert not deep.table_in_ultra and estimate_resources(deep).total.uram == 0
    with pytest.raises(ConfigError, match=r"xczu3eg.* has no UltraRAM"):
        dataclasses.replace(TINY, device=small, uram_banks=1)


def test_memories():
    assert lutram(200, 32, "xcup") == 8 * 15
    assert lutram(200, 32, "xc7") == 4 * 34
    assert lutram(129, 64, "xcup") == 8 * 19
    assert block_ram(128, 512) == MemoryBlocks(bram36=2)
    assert block_ram(32, 512) == MemoryBlocks(bram36=0.5)
    assert block_ram(32, 512, dual=True) == MemoryBlocks(bram36=1)
    assert ultra_ram(72, 4096, "xcup") == MemoryBlocks(uram=1)
    assert ultra_ram(73, 4097, "xcup") == MemoryBlocks(uram=4)
    assert ultra_ram(72, 4096, "xc7") == MemoryBlocks(bram36=8)


def test_rings_take_a_few_luts():
    config = load_config("zcu104")
    without, with_rings = (
        estimate_resources(dataclasses.replace(config, feature_rings=rings)) for rings in (0, 1)
    )
    assert 0 < with_rings.total.lut - without.total.lut < 300
    assert with_rings.total.bram36 == without.total.bram36
