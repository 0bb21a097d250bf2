"""The prediction for a program: cycles of every layer, and where the cycles go."""

from __future__ import annotations

import dataclasses
import gc
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from functools import lru_cache

from espalier.arch.config import HardwareConfig
from espalier.arch.program import Opcode
from espalier.backend.decode import load_sections
from espalier.estimate.branch_state import BranchJob
from espalier.estimate.jobs import Job
from espalier.estimate.machine import Machine
from espalier.estimate.work import LayerWork, read_memories

# A layer is bound by something that alone would keep it busy for this share of its cycles.
_BOUND_SHARE = 0.7


@dataclass(frozen=True)
class LayerEstimate:
    """One layer; `index` is its number in status register and counters.

    cycles: from the end of the layer that ended before, to its last written word, as the hardware counts.
    operators, nulls, ring_empty, accumulators_full, idle: PE cycles, over all PEs of branches that take part;
    idle are those from a PE's last operator of the layer before to the layer's first words. ring_full,
    window_wait: branch cycles. windows: reads. words: window words of the busiest branch. needs: cycles that
    each resource alone would need, and of these `bound` is the one that decides.
    """

    index: int
    kind: str
    cycles: int
    end: int
    operators: int = 0
    nulls: int = 0
    ring_empty: int = 0
    accumulators_full: int = 0
    idle: int = 0
    ring_full: int = 0
    window_wait: int = 0
    windows: int = 0
    bound: str = ""
    needs: dict[str, int] = dataclasses.field(default_factory=dict)


@dataclass(frozen=True)
class Estimate:
    """A program. cycles: from START to DONE; layers in the order of the program; bytes: of one inference.

    pe_cycles: where the cycles of all PEs went; they add up to PEs * cycles.
    """

    cycles: int
    layers: list[LayerEstimate]
    ddr_read_bytes: int
    ddr_write_bytes: int
    pe_cycles: dict[str, int]


@lru_cache(maxsize=2)  # the compiler and whoever prints its result ask for the same
def estimate_program(program: bytes, config: HardwareConfig) -> Estimate:
    """Predict the cycles of the DDR sections of a program image.

    Raises:
        InternalError: the program is inconsistent, or waits for something that never comes.

    """
    memories = load_sections(program, config)
    layers = read_memories(memories, config)
    machine = Machine(layers, config, memories.batches)
    with _no_garbage():
        machine.run()
    starts = [0, *(report for report, _ in machine.ends)]
    cycles = {id(job): report - start for start, (report, job) in zip(starts, machine.ends, strict=False)}
    strips: dict[tuple[bool, int], list[tuple[Job, list[BranchJob]]]] = {}
    for job, branches in zip(machine.jobs, machine.branch_jobs, strict=True):
        strips.setdefault((job.is_pool, job.work.fields["layer"]), []).append((job, branches))
    found = [_layer(own, cycles[id(own[-1][0])], config) for own in strips.values()]
    used = {
        name: sum(getattr(layer, name) for layer in found)
        for name in ("operators", "nulls", "ring_empty", "accumulators_full")
    }
    rest = config.pes * machine.cycles - sum(used.values())
    return Estimate(
        machine.cycles,
        found,
        _bytes(layers, Opcode.LOAD, config) + sum(own.beats for own in memories.batches) * config.axi_bytes,
        _bytes(layers, Opcode.STORE, config),
        {**used, "layer_ends": rest},
    )


@contextmanager
def _no_garbage() -> Iterator[None]:
    """Pause the garbage collector: the machine's queues grow to the end, so that it would search in vain."""
    enabled = gc.isenabled()
    gc.disable()
    try:
        yield
    finally:
        if enabled:
            gc.enable()


def _bytes(layers: list[LayerWork], opcode: Opcode, config: HardwareConfig) -> int:
    beats = 0
    for layer in layers:
        if layer.opcode == opcode:
            per_word = config.word_beats if opcode == Opcode.LOAD else layer.fields["store_beats"]
            beats += layer.fields["dram_words"] * per_word
    return beats * config.axi_bytes


def _layer(strips: list[tuple[Job, list[BranchJob]]], cycles: int, config: HardwareConfig) -> LayerEstimate:
    """Add up the strips of a layer, mostly one."""
    job = strips[-1][0]
    fields = job.work.fields
    common = {"index": fields["layer"], "cycles": cycles, "end": job.reported}
    if job.is_pool:
        needs = _add([_pool_needs(own.work) for own, _ in strips])
        kind = "global" if fields["reduce"] else "max"
        return LayerEstimate(
            **common, kind=kind, windows=needs["windows"], needs=needs, bound=_bound(needs, cycles)
        )
    needs = _add([_conv_needs(branches, config) for _, branches in strips])
    sums = {
        name: sum(getattr(own.count, name) for _, branches in strips for own in branches)
        for name in (
            "operators", "nulls", "ring_empty", "accumulators_full", "idle", "ring_full", "window_wait"
        )
    }  # fmt: skip
    return LayerEstimate(
        **common, kind="conv", windows=needs["windows"], needs=needs, bound=_bound(needs, cycles), **sums
    )


def _add(needs: list[dict[str, int]]) -> dict[str, int]:
    return {name: sum(own[name] for own in needs) for name in needs[0]}


def _conv_needs(branches: list[BranchJob], config: HardwareConfig) -> dict[str, int]:
    needs = dict.fromkeys(("operators", "words", "windows", "output"), 0)
    for own in branches:
        if own.work is None:
            continue
        walk, work, tiles = own.walk, own.work, len(own.work.tile_y)
        per_set = walk.channels * sum(walk.plan.sizes)
        operators = int(work.operators.sum(axis=(0, 1)).max())
        needs["operators"] = max(needs["operators"], tiles * operators)
        needs["words"] = max(needs["words"], tiles * walk.passes * per_set)
        needs["output"] = max(needs["output"], tiles * len(work.pe) * config.output_beats)
        if not walk.group_mask & ((1 << own.number) - 1):  # the lowest of a group asks for all
            needs["windows"] += tiles * walk.passes * walk.channels * len(walk.plan.sizes)
    return needs


def _pool_needs(work: LayerWork) -> dict[str, int]:
    fields = work.branch_fields[0]
    words = fields["tiles"] * fields["channels"]
    fetches = sum(pattern["fetch"] for pattern in work.patterns)
    taps = sum(pattern["taps"].bit_count() for pattern in work.patterns)
    return {
        "windows": words * fetches,
        "pool steps": words * max(taps, len(work.patterns) - fetches),
    }


def _bound(needs: dict[str, int], cycles: int) -> str:
    name = max(needs, key=lambda key: needs[key])
    return name if needs[name] >= _BOUND_SHARE * cycles else "dependency"
