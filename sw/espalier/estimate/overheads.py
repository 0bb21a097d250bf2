"""Fixed costs of the cycle model in clock cycles, in one place so that they can be fitted to measurements."""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(frozen=True)
class Overheads:
    """Latencies that do not depend on the amount of work."""

    first_word: int = 24  # descriptor read to the first window word in the rings
    block_commit: int = 3  # last word of a block through the ring to the first operator of the block
    block_release: int = 2  # last operator of a block to the first word that takes its place
    window_latency: int = 19  # request of a window until its place in the branch's buffer is free again
    set_done: int = 6  # last operator of a set to its first drained accumulator
    layer_end: int = 20  # last drained word through requantisation and feature memory
    pool: int = 8  # first word of a channel through the pool unit
    load_latency: int = 60  # LOAD descriptor to the first beat
    burst_gap: int = 2  # cycles without data between bursts that follow each other
    store_latency: int = 40  # STORE descriptor to the end, without the words
    store_word: int = 2  # cycles per stored tile word, at least


DEFAULT_OVERHEADS = Overheads()
