"""Places sub-blocks either as Amaranth submodules (simulation) or as instances of separate Verilog modules.

Amaranth emits every submodule again for each use. PEs and branches are converted once and instantiated
instead: Verilog, build time and resource reports stay small, and one module name means one block.
"""

from __future__ import annotations

from typing import Any

from amaranth.hdl import ClockSignal, Instance, Module, ResetSignal
from amaranth.lib import wiring


class SeparateModules:
    """Passed as `platform` when Verilog is generated; collects the components still to be converted."""

    def __init__(self) -> None:
        self.components: dict[str, wiring.Component] = {}

    def place(self, m: Module, name: str, module: str, component: wiring.Component) -> None:
        """Instantiate `component` as Verilog module `module` and connect all ports of its signature."""
        self.components.setdefault(module, component)
        ports: dict[str, Any] = {"i_clk": ClockSignal(), "i_rst": ResetSignal()}
        for path, member, value in component.signature.flatten(component):
            direction = "o" if member.flow == wiring.Out else "i"
            ports[f"{direction}_{'__'.join(str(part) for part in path)}"] = value
        m.submodules[name] = Instance(module, **ports)


def place(m: Module, platform: Any, name: str, module: str, component: wiring.Component) -> None:
    """Add `component` to `m` under `name`; `module` names the Verilog module of its kind."""
    if isinstance(platform, SeparateModules):
        platform.place(m, name, module, component)
    else:
        m.submodules[name] = component
