"""The blocks of the resource model as hardware, to be counted one by one."""

from __future__ import annotations

import functools
from collections.abc import Callable
from typing import Any

from amaranth.back import verilog
from amaranth.hdl import Module, Signal
from amaranth.lib import wiring

from espalier.arch.feature_banks import small_parts
from espalier.estimate.resource_terms import Site
from espalier_hw.axi_read import AxiRead
from espalier_hw.axi_write import AxiWrite
from espalier_hw.branch import Branch
from espalier_hw.control import CommandControl
from espalier_hw.counters import LayerCounters
from espalier_hw.csr import Csr
from espalier_hw.feature_dma import LoadWalker, StoreWalker
from espalier_hw.feature_memory import FeatureBank, FeatureMemory
from espalier_hw.hierarchy import SeparateModules
from espalier_hw.interfaces import tile_bits, writers
from espalier_hw.loader import Loader
from espalier_hw.output_stage import OutputStage
from espalier_hw.pe import PE
from espalier_hw.pool_unit import PoolUnit
from espalier_hw.read_arbiter import ReadArbiter
from espalier_hw.scoreboard import Scoreboard
from espalier_hw.sequencer import Sequencer
from espalier_hw.synthesis import Synthesis, synthesise
from espalier_hw.tile_reader import TileReader
from espalier_hw.top import Espalier
from espalier_hw.window_reader import WindowReader
from espalier_hw.window_walker import WindowWalker
from espalier_hw.word_writer import WordWriter
from espalier_hw.write_port import WritePort

_TOP = "block"


def _branch(site: Site) -> Branch:
    return Branch(site.config, site.config.branches - 1 if site.lut_kind else 0, _PRIMITIVES)


def _bank(ultra: bool, site: Site) -> FeatureBank:
    return FeatureBank(site.config.bank_depth(site.bank), tile_bits(site.config), ultra)


# Primitives of both families; only the DSP slice is one that the 7 series does not have, so its
# configurations are counted without lane pairs in slices.
_PRIMITIVES = "xilinx"

_COMPONENTS: dict[str, Callable[[Site], wiring.Component]] = {
    "pe": lambda s: PE(s.config, s.dsp_pairs, _PRIMITIVES),
    "window_walker": lambda s: WindowWalker(s.config),
    "word_writer": lambda s: WordWriter(s.config, s.pes),
    "output_stage": lambda s: OutputStage(s.config, s.pes, s.dsp_pairs, _PRIMITIVES),
    "branch_frame": _branch,
    "pool_unit": lambda s: PoolUnit(s.config),
    "read_arbiter": lambda s: ReadArbiter(s.config.branches + 1),
    "window_reader": lambda s: WindowReader(s.config),
    "tile_reader": lambda s: TileReader(
        s.config.branches, small_parts(s.config), bool(s.config.feature_rings)
    ),
    "write_port": lambda s: WritePort(s.config, s.config.branches),
    "second_write_port": lambda s: WritePort(s.config, writers(s.config) - s.config.branches, yields=True),
    "feature_frame": lambda s: FeatureMemory(s.config),
    "feature_bank_ultra": functools.partial(_bank, True),
    "feature_bank_block": functools.partial(_bank, False),
    "loader": lambda s: Loader(s.config),
    "load_walker": lambda s: LoadWalker(s.config),
    "store_walker": lambda s: StoreWalker(s.config),
    "axi_read": lambda s: AxiRead(s.config),
    "axi_write": lambda s: AxiWrite(s.config),
    "sequencer": lambda s: Sequencer(s.config),
    "scoreboard": lambda s: Scoreboard(s.config.branches),
    "counters": lambda s: LayerCounters(s.config),
    "csr": lambda s: Csr(s.config),
    "control": lambda s: CommandControl(s.config.streaming),
    "top_frame": lambda s: Espalier(s.config, _PRIMITIVES),
}
# Submodules that are blocks of their own, so that a frame has only what is around them.
_BOXED: dict[str, tuple[str, ...]] = {
    "branch_frame": ("walker", "writer", "output"),
    "top_frame": (
        *("csr", "commands", "axi_read", "axi_write"),
        *(
            f"core.{name}"
            for name in ("sequencer", "loader", "load", "store", "counters", "features", "scoreboard", "pool")
        ),
    ),
}


def block_names() -> tuple[str, ...]:
    """Names of all blocks, those of `resource_terms.BLOCKS`."""
    return tuple(_COMPONENTS)


def count_block(name: str, site: Site) -> Synthesis:
    """Synthesise one block for its place in a configuration.

    UltraRAM becomes block RAM in a family that has none.
    """
    modules = SeparateModules()
    text = _verilog(_COMPONENTS[name](site), _TOP, modules)
    boxes = "\n".join(_verilog(_Shell(part), module, None) for module, part in modules.components.items())
    if site.family == "xc7":
        text = text.replace('ram_style = "ultra"', 'ram_style = "block"')
    boxed = tuple(f"{_TOP}.{part}" for part in _BOXED.get(name, ()))
    return synthesise(text, _TOP, boxes, site.family, boxed)


class _Shell(wiring.Component):
    """The ports of another component, and next to nothing in it."""

    def __init__(self, component: wiring.Component) -> None:
        # The component itself is never elaborated, of which Amaranth would warn.
        component._MustUse__used = True
        super().__init__(dict(component.signature.members.items()))

    def elaborate(self, platform: Any) -> Module:
        """One register, so that there are a clock and a reset to connect."""
        m = Module()
        toggle = Signal()
        m.d.sync += toggle.eq(~toggle)
        return m


def _verilog(component: wiring.Component, name: str, platform: Any) -> str:
    text: str = verilog.convert(
        component, name=name, platform=platform, emit_src=False, strip_internal_attrs=True
    )
    return text
