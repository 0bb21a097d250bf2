"""A point of the design space: what decides the cycles, and how lanes are made, which does not."""

from __future__ import annotations

import dataclasses
import json
from dataclasses import dataclass
from typing import Any

from espalier.arch.config import HardwareConfig
from espalier.estimate.resources import RESOURCES, ResourceCount, ResourceEstimate, estimate_resources

# The output stage takes this many cycles per tile word unless a design says otherwise.
OUTPUT_BEATS = 4


@dataclass(frozen=True)
class Lanes:
    """How the lanes of a design are made. Fields as in `HardwareConfig`; cycles do not depend on them."""

    dsp_pairs: int
    lut_branches: int
    lut_dsp_pairs: int


@dataclass(frozen=True)
class Design:
    """The fields of `HardwareConfig` that a search varies and that cycles depend on.

    odd_branches, odd_pes: the last branches have another number of PEs than the others; 0 if all are equal.
    """

    tile_size: int
    branches: int
    pes_per_branch: int
    odd_branches: int
    odd_pes: int
    ring_words: int
    accumulators: int
    stream_depth_words: int
    table_depth_words: int
    feature_depth_words: int
    feature_depth_rest_words: int
    uram_banks: int
    output_pairs: int
    window_fifo_depth: int

    @property
    def pairs(self) -> int:
        """Lane pairs of a PE."""
        return (self.tile_size**2 + 1) // 2

    @property
    def pes(self) -> int:
        """PEs of all branches."""
        return (self.branches - self.odd_branches) * self.pes_per_branch + self.odd_branches * self.odd_pes

    @property
    def output_beats(self) -> int:
        """Cycles that the output stage spends on one tile word."""
        return -(-self.pairs // self.output_pairs)

    @property
    def key(self) -> str:
        """Identity of the design in state files."""
        return json.dumps(dataclasses.asdict(self))

    def config(self, base: HardwareConfig, lanes: Lanes | None = None) -> HardwareConfig:
        """Build the configuration; what a design does not say is as in `base`.

        lanes: all in DSP slices if None. Raises ConfigError if a field is out of its range.
        """
        lanes = lanes or Lanes(self.pairs, self.odd_branches, self.pairs if self.odd_branches else 0)
        values = dataclasses.asdict(self)
        odd, odd_pes = values.pop("odd_branches"), values.pop("odd_pes")
        values |= dataclasses.asdict(lanes)
        if lanes.lut_branches:
            values["lut_pes"] = odd_pes if odd else self.pes_per_branch
        else:
            values["lut_pes"] = 0
        return dataclasses.replace(base, **values)


def output_pairs(tile_size: int, beats: int) -> int:
    """Lane pairs that an output stage needs to write a tile word in so many cycles."""
    return -(-((tile_size**2 + 1) // 2) // beats)


@dataclass(frozen=True)
class Limits:
    """Most of each resource that a design may take; `reason` says where the limits come from."""

    most: dict[str, float]
    reason: str

    def allow(self, total: ResourceCount) -> bool:
        """Whether all resources stay within the limits."""
        return all(getattr(total, name) <= self.most[name] for name in RESOURCES)


def resource_limits(base: HardwareConfig, share: float) -> Limits:
    """Limit designs to a share of the target's device, or to what the target takes if it names none."""
    if base.device is None:
        total = estimate_resources(base).total
        most = {name: float(getattr(total, name)) for name in RESOURCES}
        return Limits(most, f"what '{base.name}' takes itself, as it names no device")
    most = {name: share * getattr(base.device, name) for name in RESOURCES}
    return Limits(most, f"{share:.0%} of {base.device.part}")


def plain(estimate: ResourceEstimate) -> dict[str, Any]:
    """Resources as plain values for JSON."""
    return dataclasses.asdict(estimate.total)
