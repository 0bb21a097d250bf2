"""Fixed costs of the cycle model in clock cycles, in one place so that they can be fitted to measurements."""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(frozen=True)
class Overheads:
    """Latencies that do not depend on the amount of work."""

    block_commit: int = 3  # last word of a block through the ring to the first operator of the block
    block_release: int = 2  # last operator of a block to the first word that takes its place
    window_latency: int = 19  # request of a window until its place in the branch's buffer is free again
    set_done: int = 6  # last operator of a set to its first drained accumulator


DEFAULT_OVERHEADS = Overheads()
