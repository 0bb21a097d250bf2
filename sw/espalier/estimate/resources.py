"""Resource model: LUTs, flip-flops, DSP slices and memories of a configuration, without synthesis.

Memories and DSP slices follow from formulas; LUTs and flip-flops are terms with coefficients fitted to counts
of yosys (`espalier_hw.resource_fit`), see docs/resources.md for the errors.
"""

from __future__ import annotations

import functools
import json
from dataclasses import dataclass, fields
from pathlib import Path
from typing import Any

from espalier.arch.config import Device, HardwareConfig
from espalier.errors import CapacityError
from espalier.estimate.resource_terms import BLOCKS, ROWS, Site

# More of a device than this is neither placed nor routed at the clock that the presets name.
LIMIT = 0.80

FIT_FILE = Path(__file__).with_name("resource_fit.json")

_LABELS = {
    "lut": ("LUTs", "fewer PEs (pes_per_branch, lut_pes), or more lane pairs in DSP slices (dsp_pairs)"),
    "ff": ("flip-flops", "fewer PEs (pes_per_branch, lut_pes) or branches"),
    "dsp": ("DSP slices", "fewer lane pairs in DSP slices (dsp_pairs, lut_dsp_pairs) or fewer PEs"),
    "bram36": (
        "block RAMs",
        "smaller feature_depth_words and feature_depth_rest_words, or more banks in UltraRAM (uram_banks)",
    ),
    "uram": ("UltraRAMs", "fewer uram_banks, or smaller stream_depth_words and table_depth_words"),
}
RESOURCES = tuple(_LABELS)
RESOURCE_NAMES = {resource: label for resource, (label, _) in _LABELS.items()}  # for people


@dataclass(frozen=True)
class ResourceCount:
    """Primitives of a block, distributed RAM counted as LUTs; a RAMB18 is half a BRAM36."""

    lut: int = 0
    ff: int = 0
    dsp: int = 0
    bram36: float = 0.0
    uram: int = 0

    def __add__(self, other: ResourceCount) -> ResourceCount:
        return ResourceCount(*(getattr(self, f.name) + getattr(other, f.name) for f in fields(self)))

    def __mul__(self, times: int) -> ResourceCount:
        return ResourceCount(*(getattr(self, f.name) * times for f in fields(self)))


@dataclass(frozen=True)
class BlockEstimate:
    """One row of an estimate: a block, how often the design has it, and what each of them takes."""

    name: str
    instances: int
    each: ResourceCount

    @property
    def total(self) -> ResourceCount:
        """All instances together."""
        return self.each * self.instances


@dataclass(frozen=True)
class ResourceEstimate:
    """Blocks of a configuration; `family` is yosys's name of the device family ("xcup" or "xc7")."""

    family: str
    blocks: tuple[BlockEstimate, ...]
    device: Device | None

    @property
    def total(self) -> ResourceCount:
        """The whole accelerator."""
        return sum((block.total for block in self.blocks), ResourceCount())

    @property
    def shares(self) -> dict[str, float]:
        """Part of the device by resource, 1.0 is all of it; empty without a device."""
        return {} if self.device is None else _shares(self.total, self.device)


def family_of(config: HardwareConfig) -> str:
    """Family of the configuration's device; UltraScale+ if it names none."""
    return "xc7" if config.device is not None and config.device.series_7 else "xcup"


def estimate_resources(config: HardwareConfig, family: str | None = None) -> ResourceEstimate:
    """Estimate the resources of a configuration, for the family of its device unless another is named."""
    family = family or family_of(config)
    rows = []
    for row in ROWS:
        instances = row.instances(config)
        if instances:
            site = row.site(config, family)
            each = ResourceCount()
            for name, times in row.blocks.items():
                each += estimate_block(name, site) * times
            rows.append(BlockEstimate(row.name, instances, each))
    return ResourceEstimate(family, tuple(rows), config.device)


def estimate_block(name: str, site: Site) -> ResourceCount:
    """Estimate one block of `resource_terms.BLOCKS` at its place in a configuration."""
    block, coefficients = BLOCKS[name], _fit()["coefficients"][name]
    fitted = {
        resource: max(
            0,
            round(
                sum(c * t for c, t in zip(coefficients[resource], block.terms(resource, site), strict=True))
            ),
        )
        for resource in ("lut", "ff")
    }
    memory, config = block.memory(site), site.config
    more_luts, more_ffs = block.streaming if config.streaming else (0, 0)
    return ResourceCount(
        lut=fitted["lut"] + block.lutram(site) + block.ring_lut * config.feature_rings + more_luts,
        ff=fitted["ff"] + block.ring_ff * config.feature_rings + more_ffs,
        dsp=block.dsp(site),
        bram36=memory.bram36,
        uram=memory.uram,
    )


def check_fits(config: HardwareConfig) -> ResourceEstimate:
    """Estimate a configuration and compare it with its device, if it names one.

    Raises:
        CapacityError: it takes more than LIMIT of a resource.
    """
    estimate = estimate_resources(config)
    complaints = []
    for resource, share in estimate.shares.items():
        if share > LIMIT:
            label, remedy = _LABELS[resource]
            needed, available = getattr(estimate.total, resource), getattr(config.device, resource)
            complaints.append(
                f"{needed:,g} {label} of {available:,} ({share:.0%}), mostly in"
                f" {_largest(estimate, resource)}; take {remedy}"
            )
    if complaints:
        assert config.device is not None, "without a device there are no shares"
        raise CapacityError(
            f"configuration '{config.name}' needs more than {LIMIT:.0%} of {config.device.part}: "
            + ". ".join(complaints)
        )
    return estimate


def _largest(estimate: ResourceEstimate, resource: str) -> str:
    block = max(estimate.blocks, key=lambda block: float(getattr(block.total, resource)))
    return f"{block.instances} x {block.name}"


def _shares(total: ResourceCount, device: Device) -> dict[str, float]:
    shares = {}
    for resource in RESOURCES:
        used, available = getattr(total, resource), getattr(device, resource)
        shares[resource] = used / available if available else (float("inf") if used else 0.0)
    return shares


@functools.cache
def _fit() -> dict[str, Any]:
    found: dict[str, Any] = json.loads(FIT_FILE.read_text(encoding="utf-8"))
    return found
