"""What the stages of a simulated branch hand to each other."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import NamedTuple

from espalier.estimate.jobs import Job, Waiting, Walk
from espalier.estimate.work import BranchWork

NEVER = 1 << 60


@dataclass
class BranchCounts:
    """Where the cycles of a branch's PEs (summed) and of its word writer went in one layer.

    idle: from a PE's last operator of the layer before to the first block of this one.
    """

    operators: int = 0
    nulls: int = 0
    ring_empty: int = 0
    accumulators_full: int = 0
    idle: int = 0
    ring_full: int = 0
    window_wait: int = 0


@dataclass(frozen=True)
class BranchJob:
    """A layer as branch `number` sees it; `work` None: it rests."""

    number: int
    job: Job
    walk: Walk
    work: BranchWork | None
    count: BranchCounts = field(default_factory=BranchCounts)


class Block(NamedTuple):
    """A block that all PEs have in their rings.

    start, end: per PE, cycle of its first operator and of the one after its last. offset: per PE, place of
    the first operator in the loop. first: it is the first of its set.
    """

    work: BranchWork
    start: list[int]
    end: list[int]
    offset: list[int]
    first: bool


class BegunSet(NamedTuple):
    """A set that some PEs of the branch can begin while others wait for accumulators.

    block: number of its first block. operators, offset: per block and PE, operators and the place of the
    first one in the loop. free_from: per PE, end of its operators before. needed: per PE, accumulators that
    must have been freed.
    """

    work: BranchWork
    block: int
    operators: list[list[int]]
    offset: list[list[int]]
    free_from: list[int]
    needed: list[int]


@dataclass
class BranchState:
    """Queues between the stages; all numbers are cycles, the latest last.

    arrivals: per window, from when on it can leave the buffer. leaves: per window, when its place in the
    buffer was reported free. commits: per block, from when on operators can use it. blocks: what PEs made
    of it. released: per block, from when on its room in the rings can be used. sets: per set and PE,
    the end of its operators. freed: per PE and accumulator, from when on it can be used again. words: for
    the write port; turns: when they had their turn there. tiles: residual tiles asked for, tiles_read: when
    they were read. now: cycle of the latest event; wake: from when on the output stage can go on, even if
    nothing happens in this branch. begun: the set for which a PE waits for accumulators; drained: how many
    were freed. wants_turn, wants_tile: the output stage waits for a turn at the write port, or for a residual
    tile.
    """

    pes: int
    leaves: list[int]
    jobs: list[BranchJob] = field(default_factory=list)
    arrivals: list[int] = field(default_factory=list)
    commits: list[int] = field(default_factory=list)
    blocks: list[Block] = field(default_factory=list)
    released: list[int] = field(default_factory=list)
    sets: list[list[int]] = field(default_factory=list)
    words: list[Waiting] = field(default_factory=list)
    freed: list[list[int]] = field(init=False)
    turns: list[int] = field(default_factory=list)
    tiles: list[Waiting] = field(default_factory=list)
    tiles_read: list[int] = field(default_factory=list)
    begun: BegunSet | None = None
    drained: int = 0
    wants_turn: bool = False
    wants_tile: bool = False
    now: int = 0
    wake: int = NEVER

    def __post_init__(self) -> None:
        self.freed = [[] for _ in range(self.pes)]
