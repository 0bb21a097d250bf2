"""What an exploration found: as a table, as plain values, as a plot, as a configuration file."""

from __future__ import annotations

import dataclasses
import math
from pathlib import Path
from typing import Any

import yaml

from espalier.arch.config import HardwareConfig
from espalier.estimate.resources import RESOURCES
from espalier.explore.pareto import Point
from espalier.explore.search import COMPLETE, ENOUGH, Search
from espalier.explore.space import DesignSpace
from espalier.report.figure import LOSS, OURS, figure

SCHEMA = 2


def kinds(config: HardwareConfig) -> str:
    """Branches of a configuration by kind, for people."""
    plain = config.branches - config.lut_branches
    groups = [(plain, config.pes_per_branch, config.dsp_pairs)] if plain else []
    if config.lut_branches:
        groups.append((config.lut_branches, config.lut_pes, config.lut_dsp_pairs))
    return " + ".join(f"{count} x {pes} PEs ({pairs} DSP pairs)" for count, pes, pairs in groups)


def values(search: Search) -> dict[str, Any]:
    """All results for JSON.

    target_cycles: on the target as it is, None if the network does not run there. end: why the search ended.
    failed, crashed: why designs do not run the network, and which evaluations ended with an unexpected error.
    lanes_wasted: share of the pixels computed that lie outside the map.
    """
    space = search.space
    return {
        "schema": SCHEMA,
        "target": space.base.name,
        "limits": {"most": space.limits.most, "reason": space.limits.reason},
        "cycles_are": "predicted",
        "target_cycles": search.target.cycles,
        "target_failed": search.target.reason,
        "end": search.end,
        "evaluated": search.evaluated,
        "failed": search.failed,
        "crashed": search.crashed,
        "tile_sizes_left_out": space.excluded,
        "front": [_row(point, space) for point in search.front],
    }


def _row(point: Point, space: DesignSpace) -> dict[str, Any]:
    config = point.design.config(space.base, point.lanes)
    return {
        "cycles": point.cycles,
        "latency_ms": point.cycles / config.clock_mhz / 1000,
        "lanes": config.lanes,
        "tile_size": config.tile_size,
        "branches": kinds(config),
        "lanes_wasted": space.facts[config.tile_size].waste,
        "resources": dataclasses.asdict(point.total),
        "configuration": configuration(point, space),
    }


def configuration(point: Point, space: DesignSpace) -> dict[str, Any]:
    """Fields of the configuration as a target file has them, without its name."""
    fields = dataclasses.asdict(point.design.config(space.base, point.lanes))
    return {name: value for name, value in fields.items() if name != "name" and value is not None}


def write_configuration(search: Search, path: Path, command: str) -> None:
    """Write the fastest configuration as a target file of that name, with the command that found it."""
    point = search.front[0]
    text = yaml.safe_dump({"name": path.stem, **configuration(point, search.space)}, sort_keys=False)
    head = f"# Found by `{command}`:\n# {point.cycles} cycles (predicted)"
    head += "" if search.end in (COMPLETE, ENOUGH) else f"; the search ended early ({search.end})"
    path.write_text(f"{head}.\n{text}", encoding="utf-8")


def rows(result: dict[str, Any], device: dict[str, float], most: int) -> list[list[str]]:
    """Table of the front, header first. device: what there is of every resource, empty if unknown.

    most: rows beside the header; of more designs those that spread evenly over the logarithm of the cycles.
    """
    table = [["cycles", "ms", "lanes", "tile", "branches", "wasted", *(name.upper() for name in RESOURCES)]]
    for row in _spread(result["front"], most):
        share = {
            name: f"{row['resources'][name] / device[name]:.1%}"
            if device.get(name)
            else f"{row['resources'][name]:,}"
            for name in RESOURCES
        }
        table.append(
            [
                f"{row['cycles']:,}",
                f"{row['latency_ms']:.3f}",
                f"{row['lanes']:,}",
                str(row["tile_size"]),
                row["branches"],
                f"{row['lanes_wasted']:.1%}",
                *share.values(),
            ]
        )
    return table


def _spread(front: list[dict[str, Any]], most: int) -> list[dict[str, Any]]:
    """Choose rows from the fastest to the slowest one; the same ones in the same order if there are few."""
    if len(front) <= most:
        return front
    low, high = (math.log(row["cycles"]) for row in (front[0], front[-1]))
    chosen = {0}
    for step in range(1, most):
        wanted = low + (high - low) * step / (most - 1)
        left = [index for index in range(len(front)) if index not in chosen]
        chosen.add(min(left, key=lambda index: abs(math.log(front[index]["cycles"]) - wanted)))
    return [front[index] for index in sorted(chosen)]


def plot(result: dict[str, Any], path: Path) -> None:
    """Draw the front: latency over LUTs and over DSP slices."""
    with figure(path, 4.0, columns=2) as axes:
        for own, name, unit, color in zip(axes, ("lut", "dsp"), (1000, 1), (OURS, LOSS), strict=True):
            own.plot(
                [row["resources"][name] / unit for row in result["front"]],
                [row["latency_ms"] for row in result["front"]],
                "o",
                color=color,
            )
            own.set_xlabel("thousand LUTs" if name == "lut" else "DSP slices")
            own.set_ylabel("latency, ms (predicted)")
            own.set_yscale("log")
            own.yaxis.set_major_formatter("{x:g}")
            own.yaxis.set_minor_formatter("{x:g}")
        axes[0].set_title(f"Designs for {result['target']} that no other one beats", loc="left")
