"""What a check finds: a verdict per node, memories, time; and the same as plain values."""

from __future__ import annotations

import dataclasses
from dataclasses import dataclass, field
from typing import Any

SCHEMA = 1


@dataclass(frozen=True)
class Problem:
    """Why something does not run. what: the reason with the limit; advice: what to do."""

    what: str
    advice: str


@dataclass(frozen=True)
class NodeVerdict:
    """One node of the network as the user wrote it.

    runs: None if it could not be judged. unit: "conv" or "pool" (a layer of its own in branches or pool
    unit), "fused" (nodes `into` do its work), "none" (no work: a view, a constant, left out), "" if it does
    not run or was not judged. how: the same in words. cycles: predicted, None if unknown or no layer.
    """

    name: str
    operator: str
    runs: bool | None
    unit: str
    how: str
    into: tuple[str, ...] = ()
    problems: tuple[Problem, ...] = ()
    cycles: int | None = None


@dataclass(frozen=True)
class MemoryVerdict:
    """One kind of on-chip memory, in words of each; `part` says of which, where they differ.

    needed: a lower bound with `at_least`. detail: where most is needed.
    """

    memory: str
    needed: int
    available: int
    part: str = ""
    at_least: bool = False
    detail: str = ""

    @property
    def fits(self) -> bool | None:
        """Whether there is room; None if that is not known."""
        if self.needed > self.available:
            return False
        return None if self.at_least else True

    @property
    def name(self) -> str:
        """Memory and part in words."""
        return f"{self.memory} memory" + (f" ({self.part})" if self.part else "")


@dataclass(frozen=True)
class Assumption:
    """Weights that a float network was sized with: share other than zero, bits.

    uniform: the same share in every layer; otherwise shares as compression would choose them.
    """

    density: float
    bits: int
    uniform: bool


@dataclass(frozen=True)
class CheckReport:
    """The verdict for a network on a target.

    source: "onnx", "espalier" (compressed), "image" (compiled) or "builtin". problems: of the network as a
    whole, memories included. cycles: predicted, None unless everything runs. assumption: None unless weights
    had to be made up.
    """

    model: str
    source: str
    target: str
    clock_mhz: int
    clock_source: str
    nodes: tuple[NodeVerdict, ...] = ()
    problems: tuple[Problem, ...] = ()
    memories: tuple[MemoryVerdict, ...] = ()
    cycles: int | None = None
    assumption: Assumption | None = None
    notes: tuple[str, ...] = field(default=())

    @property
    def runs(self) -> bool:
        """Whether everything runs on the target."""
        return not self.problems and all(node.runs for node in self.nodes)

    @property
    def milliseconds(self) -> float | None:
        """Latency of `cycles` at the target's clock."""
        return None if self.cycles is None else self.cycles / (1000 * self.clock_mhz)

    def values(self) -> dict[str, Any]:
        """All of it as plain values for JSON."""
        return {
            "schema": SCHEMA,
            "model": self.model,
            "source": self.source,
            "target": self.target,
            "runs": self.runs,
            "problems": [dataclasses.asdict(problem) for problem in self.problems],
            "nodes": [dataclasses.asdict(node) for node in self.nodes],
            "memory": [{**dataclasses.asdict(memory), "fits": memory.fits} for memory in self.memories],
            "cycles": self.cycles,
            "latency_ms": self.milliseconds,
            "clock_mhz": self.clock_mhz,
            "clock_source": self.clock_source,
            "assumption": None if self.assumption is None else dataclasses.asdict(self.assumption),
            "notes": list(self.notes),
        }
