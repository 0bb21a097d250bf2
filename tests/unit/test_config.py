"""Presets load, invalid configurations are refused with one message, field packing round-trips."""

import dataclasses

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from espalier.arch.config import PRESET_FOLDER, Device, load_config, preset_names, with_ddr
from espalier.arch.fields import pack, unpack
from espalier.arch.operators import MAX_WIDE_WEIGHT, OPERATOR_FIELDS, split_digits
from espalier.arch.program import BRANCH_FIELDS, COMMON_FIELDS, TABLE_FIELDS
from espalier.errors import ConfigError, InternalError


@pytest.mark.parametrize("name", preset_names())
def test_preset_loads(name):
    config = load_config(name)
    assert config.name == name
    assert config.output_beats * config.output_pairs >= config.pairs


def test_zcu104_has_the_lanes_it_promises():
    assert load_config("zcu104").lanes == 3136


def test_banks_of_two_depths():
    config = dataclasses.replace(load_config("tiny"), feature_depth_words=700, feature_depth_rest_words=600)
    assert [config.bank_depth(bank) for bank in range(9)] == [700] * 3 + [600] * 6
    assert dataclasses.replace(config, feature_depth_words=500).bank_depth(8) == 500


def test_only_deep_tables_lie_in_ultra_ram():
    depths = (2560, 4096)
    tables = [dataclasses.replace(load_config("tiny"), table_depth_words=d).table_in_ultra for d in depths]
    assert tables == [False, True]


def test_hash_depends_on_hardware_only():
    config = load_config("tiny")
    assert dataclasses.replace(config, clock_mhz=50, name="x").hash == config.hash
    assert dataclasses.replace(config, accumulators=16).hash != config.hash
    assert dataclasses.replace(config, pair_spacing_bits=16).hash != config.hash


def test_the_defaults_of_later_fields_leave_the_hash_as_it_was():
    """Program images from before there were these fields name it; it changes with ARCH_VERSION."""
    assert load_config("tiny").hash == 0x390C73FB
    config = dataclasses.replace(load_config("tiny"), pair_spacing_bits=18, feature_rings=0)
    assert config.hash == 0x390C73FB
    assert dataclasses.replace(config, feature_rings=1).hash != config.hash


@pytest.mark.parametrize(("spacing", "bound"), [(18, 514), (16, 128)])
def test_sums_of_the_largest_pixels_fit_their_field(spacing, bound):
    config = dataclasses.replace(load_config("tiny"), pair_spacing_bits=spacing)
    assert config.max_weight_sum == bound
    assert bound * 255 < 1 << spacing - 1 <= (bound + 1) * 255
    assert config.pair_bits == 2 * spacing


@pytest.mark.parametrize(
    ("part", "spacing", "message"),
    [
        (
            "xc7z020clg400-1",
            18,
            "DSP48E2 slices, but xc7z020clg400-1 has DSP48E1: write pair_spacing_bits: 16",
        ),
        ("xczu7ev-ffvc1156-2-e", 16, "xczu7ev-ffvc1156-2-e has DSP48E2: write pair_spacing_bits: 18"),
    ],
)
def test_spacings_that_the_device_has_no_slices_for(part, spacing, message):
    device = Device(part=part, lut=53200, ff=106400, bram36=140, uram=0, dsp=220)
    config = dataclasses.replace(load_config("tiny"), pair_spacing_bits=34 - spacing, device=device)
    assert config.device == device
    with pytest.raises(ConfigError, match=message):
        dataclasses.replace(config, pair_spacing_bits=spacing)


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("tile_size: 7", "missing field"),
        ("[1, 2]", "expected a mapping"),
        ("{unclosed", "cannot read"),
        ("{1: 2, tile: 3}", "unknown field '1', unknown field 'tile'"),
    ],
)
def test_bad_file(tmp_path, text, message):
    path = tmp_path / "bad.yaml"
    path.write_text(text)
    with pytest.raises(ConfigError, match=message):
        load_config(str(path))


def test_unknown_target_lists_the_known():
    with pytest.raises(ConfigError, match=r"tiny, .*zcu104"):
        load_config("zcu999")


@pytest.mark.parametrize(
    "change",
    [
        {"tile_size": 3},
        {"ring_words": 48},
        {"branches": True},
        {"dsp_pairs": 9},
        {"name": "a/../b"},
        {"pair_spacing_bits": 17},
    ],
)
def test_out_of_range(change):
    with pytest.raises(ConfigError, match=next(iter(change))):
        dataclasses.replace(load_config("tiny"), **change)


@pytest.mark.parametrize("fields", [OPERATOR_FIELDS, COMMON_FIELDS, BRANCH_FIELDS, TABLE_FIELDS])
@given(data=st.data())
def test_fields_round_trip(fields, data):
    values = {f.name: data.draw(st.integers(f.low, f.high)) for f in fields}
    assert unpack(fields, pack(fields, values)) == values


def test_value_that_does_not_fit():
    with pytest.raises(InternalError, match="weight"):
        pack(OPERATOR_FIELDS, {"weight": 8})


def test_digits():
    weights = np.arange(-MAX_WIDE_WEIGHT, MAX_WIDE_WEIGHT + 1)
    high, low = split_digits(weights)
    assert np.array_equal(16 * high + low, weights)
    for digits in (high, low):
        assert digits.min() >= -8 and digits.max() <= 7


def test_the_memory_is_no_part_of_the_hardware(tmp_path):
    text = (PRESET_FOLDER / "tiny.yaml").read_text(encoding="utf-8")
    path = tmp_path / "board.yaml"
    path.write_text(text + "ddr: latency=80,beat=2\n", encoding="utf-8")
    config, tiny = load_config(str(path)), load_config("tiny")
    assert (config.ddr.latency_low, config.ddr.beat_cycles) == (80, 2)
    assert config.hash == tiny.hash
    assert with_ddr(config, None, seed=3).ddr == dataclasses.replace(config.ddr, seed=3)
    assert with_ddr(config, "slow").ddr == with_ddr(tiny, "slow").ddr
    path.write_text(text + f"ddr: {dataclasses.asdict(config.ddr)}\n", encoding="utf-8")
    assert load_config(str(path)) == config
    path.write_text(text + "ddr: quick\n", encoding="utf-8")
    with pytest.raises(ConfigError, match=r"board\.yaml: memory 'quick'"):
        load_config(str(path))
