"""Verilog of a whole accelerator; equal configurations give equal bytes."""

from __future__ import annotations

from amaranth.back import verilog

from espalier.arch.config import HardwareConfig
from espalier_hw.hierarchy import SeparateModules
from espalier_hw.top import Espalier

TOP_MODULE = "espalier"


def generate_verilog(config: HardwareConfig, primitives: str = "behavioural") -> dict[str, str]:
    """Verilog text by module name: the top level, the branch, the PE. Each text may hold helper modules."""
    modules = SeparateModules()
    modules.components[TOP_MODULE] = Espalier(config, primitives)
    texts: dict[str, str] = {}
    while pending := [name for name in modules.components if name not in texts]:
        name = pending[0]
        texts[name] = _convert(name, modules)
    return texts


def _convert(name: str, modules: SeparateModules) -> str:
    text: str = verilog.convert(
        modules.components[name], name=name, platform=modules, emit_src=False, strip_internal_attrs=True
    )
    # Helper modules are called <name>.<submodule>, so that those of different texts never collide.
    return text
