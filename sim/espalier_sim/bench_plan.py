"""What `sim bench` runs: the built-in network, what each mechanism is worth, densities, other networks."""

from __future__ import annotations

import dataclasses
from collections.abc import Callable
from dataclasses import dataclass

from espalier.arch.config import HardwareConfig, load_config
from espalier.backend.compiler import DEFAULT_OPTIONS
from espalier.backend.options import CompileOptions
from espalier.ir.graph import IntegerGraph
from espalier.models.builtin import load_builtin
from espalier_sim import variants
from espalier_sim.bench_runs import Job

MODEL, TARGET = "resnet18", "zcu104"
# Parts of the page that runs belong to; the main run is always made.
SECTIONS = ("run", "ablation", "classic", "variant", "density", "shape")
CLASSIC = (
    ("neither", CompileOptions(reorder=False, pad=False)),
    ("padding", CompileOptions(reorder=False, pad=True)),
    ("reordering", CompileOptions(reorder=True, pad=False)),
    ("both", CompileOptions(reorder=True, pad=True)),
)
# Names of the compiler's options on the page; an option that is not here is shown by its own name.
_OPTION_NAMES = {
    "reorder": "operator reordering",
    "pad": "operator padding",
    "overlap": "overlapping layers",
    "skip": "skipped empty runs",
}
_FULL, _HALF = 64, 32  # channels of the first stage


@dataclass(frozen=True)
class Plan:
    """All runs. model: built-in name, empty if there is none. config, graph: those of the main run."""

    jobs: list[Job]
    config: HardwareConfig
    graph: Callable[[], IntegerGraph]
    model: str = ""


def full_plan() -> Plan:
    """Plan all that docs/performance.md shows."""
    config = load_config(TARGET)
    deep = dataclasses.replace(
        config,
        name=f"{config.name}-deep",
        stream_depth_words=16384,
        table_depth_words=16384,
        feature_depth_words=8192,
        feature_depth_rest_words=8192,
        device=None,
    )

    def graph() -> IntegerGraph:
        return load_builtin(MODEL)

    jobs = [Job("run", MODEL, graph, config), *_ablations(graph, config), *_classic(graph, config)]
    if config.lut_branches:
        jobs.insert(1, Job("ablation", "lut branches", graph, without_lut_branches(config)))
    jobs += [_masked(graph, 0.5, 0.1, config), _masked(graph, 0.3, 0.08, config)]
    jobs.append(_masked(graph, 0.5, 0.1, config, spread=0.0))
    jobs.append(_masked(graph, 0.5, 0.1, config, reorder=False))
    jobs.append(_distributed(graph, 0.5, 0.1, config))
    jobs += [_density(_FULL, density, config) for density in (0.05, 0.075, 0.1, 0.125)]
    jobs += [_density(_FULL, density, deep) for density in (0.2, 0.3, 0.5)]
    jobs += [_density(_HALF, density, config) for density in (0.05, 0.1, 0.2, 0.3, 0.4, 0.5)]
    jobs += [
        Job("shape", "first three stages of ResNet-18, 224x224, 50 %", _three_stages, config),
        Job("shape", "ResNet-34, 224x224, first layer 50 %, rest 8 %", _resnet34, deep),
        Job("shape", "VGG-16, 112x112, 10 %", lambda: variants.vgg(side=112, density=0.1), deep),
    ]
    return Plan(jobs, config, graph, MODEL)


def quick_plan() -> Plan:
    """Plan every kind of run once, on networks and hardware for tests."""
    config = load_config("tiny")

    def graph() -> IntegerGraph:
        return variants.resnet((1, 1), 8, 32, density=0.3, classes=10)

    def small(density: float) -> Callable[[], IntegerGraph]:
        return lambda: variants.resnet((1, 1), 4, 16, density, classes=10)

    jobs = [Job("run", "resnet6", graph, config), *_ablations(graph, config), *_classic(graph, config)]
    jobs.append(_masked(graph, 0.5, 0.1, config))
    jobs += [
        Job("density", "small", small(density), config, facts={"width": "small", "density": density})
        for density in (0.1, 0.5)
    ]
    jobs += [
        Job("shape", "VGG", lambda: variants.vgg((4, 0, 8, 0), 16, 0.3, 10), config),
        Job("shape", "too large", lambda: variants.vgg((128, 0), 48, 0.02), config),
    ]
    return Plan(jobs, config, graph)


def without_lut_branches(config: HardwareConfig) -> HardwareConfig:
    """Return the same hardware without its branches of kind `lut`.

    The others get memories twice as deep, to hold what the left out ones held.
    """
    return dataclasses.replace(
        config,
        name=f"{config.name}-dsp",
        branches=config.branches - config.lut_branches,
        lut_branches=0,
        lut_pes=0,
        lut_dsp_pairs=0,
        stream_depth_words=2 * config.stream_depth_words,
        table_depth_words=2 * config.table_depth_words,
    )


def _ablations(graph: Callable[[], IntegerGraph], config: HardwareConfig) -> list[Job]:
    """One run for each option of the compiler that is on, with that option off."""
    return [
        Job(
            "ablation",
            _OPTION_NAMES.get(option.name, option.name),
            graph,
            config,
            dataclasses.replace(DEFAULT_OPTIONS, **{option.name: False}),
        )
        for option in dataclasses.fields(CompileOptions)
        if getattr(DEFAULT_OPTIONS, option.name) is True
    ]


def _classic(graph: Callable[[], IntegerGraph], config: HardwareConfig) -> list[Job]:
    return [Job("classic", name, graph, config, options) for name, options in CLASSIC]


def _masked(
    graph: Callable[[], IntegerGraph],
    first: float,
    rest: float,
    config: HardwareConfig,
    spread: float = variants.SPREAD,
    reorder: bool = True,
) -> Job:
    name = f"first layer {100 * first:.0f} %, rest {100 * rest:.0f} %"
    if not spread:
        name += ", all filters and channels alike"
    if not reorder:
        name += f", without {_OPTION_NAMES['reorder']}"
    return Job(
        "variant",
        name,
        lambda: variants.masked(graph(), variants.first_and_rest(first, rest), spread=spread),
        config,
        dataclasses.replace(DEFAULT_OPTIONS, reorder=reorder),
    )


def _distributed(graph: Callable[[], IntegerGraph], first: float, rest: float, config: HardwareConfig) -> Job:
    """Make the same work, spread over the layers as the hardware wants it, in equally dense filters."""
    return Job(
        "variant",
        f"first layer {100 * first:.0f} %, rest {100 * rest:.0f} % of the MACs, spread for speed, refined",
        lambda: variants.redistributed(graph(), first, rest, variants.RESNET18_SHARES),
        config,
        dataclasses.replace(DEFAULT_OPTIONS, refine=True),
    )


def _density(width: int, density: float, config: HardwareConfig) -> Job:
    name = {_FULL: "full width", _HALF: "half width"}[width]
    if config.name != TARGET:
        name += f", {config.name}"
    return Job(
        "density",
        f"{name}, {100 * density:g} %",
        lambda: variants.resnet(width=width, density=density),
        config,
        facts={"width": name, "density": density},
    )


def _three_stages() -> IntegerGraph:
    """Make a network whose weights fit the preset's memories when half of them are kept."""
    return variants.resnet((2, 2, 2), density=0.5)


def _resnet34() -> IntegerGraph:
    return variants.resnet(variants.RESNET34_BLOCKS, density=0.08, first=0.5)
