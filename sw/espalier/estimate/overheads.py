"""Fixed costs of the cycle model in clock cycles, in one place so that they can be fitted to measurements."""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(frozen=True)
class Overheads:
    """Latencies that do not depend on the amount of work."""

    start: int = 30  # START to the first descriptor, with the reset of the stream pointers
    descriptor: int = 12  # reading and decoding one descriptor
    patterns_per_cycle: int = 4  # window patterns handed to the branches per cycle
    first_word: int = 14  # layer start to the first window word in the rings
    block_commit: int = 4  # last word of a block through the ring to the first operator of the block
    block_release: int = 4  # last operator of a block to the first word that takes its place
    set_done: int = 6  # last operator of a set to its first drained accumulator
    layer_end: int = 16  # last drained word through requantisation and feature memory
    dma_latency: int = 60  # request to first beat of a burst on the AXI port
    dma_burst_gap: int = 2  # cycles without data between bursts that follow each other
    pool_tap: int = 1  # cycles per vertical tap in the pool unit
    end: int = 10  # last descriptor to DONE


DEFAULT_OVERHEADS = Overheads()
