"""Places sub-blocks either as Amaranth submodules (simulation) or as instances of separate Verilog modules.

Amaranth emits every submodule again for each use. PEs and branches are converted once and instantiated
instead: Verilog, build time and resource reports stay small, and one module name means one block.
"""

from __future__ import annotations

from typing import Any

from amaranth.hdl import ClockSignal, Const, Instance, Module, ResetSignal, Value
from amaranth.lib import wiring


class SeparateModules:
    """Passed as `platform` when Verilog is generated; collects the components still to be converted."""

    def __init__(self) -> None:
        self.components: dict[str, wiring.Component] = {}

    def place(self, m: Module, name: str, module: str, component: wiring.Component) -> None:
        """Instantiate `component` as Verilog module `module` and connect all ports of its signature."""
        if self.components.setdefault(module, component) is not component:
            # Only its ports are used; Amaranth would warn that it was never elaborated.
            component._MustUse__used = True
        ports: dict[str, Any] = {"i_clk": ClockSignal(), "i_rst": ResetSignal()}
        for path, member, port in component.signature.flatten(component):
            value = Value.cast(port)
            if len(value) == 0 or isinstance(value, Const):
                continue  # such ports do not exist in Verilog
            direction = "o" if member.flow == wiring.Out else "i"
            ports[f"{direction}_{'__'.join(str(part) for part in path)}"] = value
        m.submodules[name] = Instance(module, **ports)


def place(m: Module, platform: Any, name: str, module: str, component: wiring.Component) -> None:
    """Add `component` to `m` under `name`; `module` names the Verilog module of its kind."""
    if isinstance(platform, SeparateModules):
        platform.place(m, name, module, component)
    else:
        m.submodules[name] = component
