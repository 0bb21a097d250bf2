"""Why a network fits no design at all: the resource that even the design that comes closest lacks."""

from __future__ import annotations

from dataclasses import replace

from espalier.arch.config import HardwareConfig
from espalier.errors import CapacityError
from espalier.estimate.resources import RESOURCE_NAMES, RESOURCES, ResourceCount, estimate_resources
from espalier.explore.design import Design, Limits
from espalier.explore.facts import NetworkFacts
from espalier.explore.lanes import lane_choices
from espalier.explore.memories import bank_choices, least_memories


def misfit(
    network: str, shapes: list[Design], facts: dict[int, NetworkFacts], base: HardwareConfig, limits: Limits
) -> CapacityError:
    """Make the error: the scarcest resource of the shape that comes closest. facts: by tile size."""
    closest: tuple[float, str, float] | None = None
    for shape in shapes:
        filled = least_memories(shape, facts[shape.tile_size], base)
        if filled is None:
            continue
        for banks in bank_choices(base):
            choices = lane_choices(shape)
            for lanes in (choices[0], choices[-1]):
                total = estimate_resources(replace(filled, uram_banks=banks).config(base, lanes)).total
                share, name = max((_share(total, name, limits), name) for name in RESOURCES)
                if closest is None or share < closest[0]:
                    closest = share, name, getattr(total, name)
    if closest is None:
        return CapacityError(f"network '{network}' has more weights than the deepest memories hold")
    _, name, needed = closest
    return CapacityError(
        f"no configuration for network '{network}' stays within {limits.reason}: even the one that comes"
        f" closest needs {needed:,g} {RESOURCE_NAMES[name]} where {limits.most[name]:,g} may be used; prune"
        " the network further, take a smaller one, or a larger device"
    )


def _share(total: ResourceCount, name: str, limits: Limits) -> float:
    """Part of the limit, as a number that can be compared even where the limit is zero."""
    return float(getattr(total, name)) / max(limits.most[name], 0.5)
