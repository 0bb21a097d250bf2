"""The DDR memory behind the AXI port, as the simulator models it and the cycle model predicts it."""

from __future__ import annotations

import re
from dataclasses import dataclass

from espalier.errors import UserError

LARGEST = 100_000  # of any of the numbers below
_MASK = (1 << 64) - 1

# name: what `parse_ddr` reads for it.
NAMED = {
    "default": "",
    "slow": "latency=50-500,beat=2",
    "bursty": "latency=50-200,pause=64/128",
    "stalling": "latency=50-500,beat=2,pause=400/4000",
}


@dataclass(frozen=True)
class Ddr:
    """Latency and bandwidth of the memory, in cycles of the accelerator's clock.

    latency_low, latency_high: from a burst's accepted address to its first beat, or from its last written
    beat to the answer; drawn for every burst from `seed`. beat_cycles: from a beat to the next of the same
    direction, at least. pause_cycles: no beat moves in the first ones of every `pause_every` (0: no pauses).
    """

    latency_low: int = 30
    latency_high: int = 30
    beat_cycles: int = 1
    pause_cycles: int = 0
    pause_every: int = 0
    seed: int = 0

    def latency(self, burst: int) -> int:
        """Draw the latency of burst number `burst` of a direction, in cycles.

        A splitmix64 of seed and number, as in `verilator/memory.hpp`.
        """
        value = (self.seed * 0x9E3779B97F4A7C15 + (burst + 1) * 0xD1B54A32D192ED03) & _MASK
        value = ((value ^ value >> 30) * 0xBF58476D1CE4E5B9) & _MASK
        value = ((value ^ value >> 27) * 0x94D049BB133111EB) & _MASK
        value ^= value >> 31
        return self.latency_low + (value >> 32) % (self.latency_high - self.latency_low + 1)

    def open_from(self, cycle: int) -> int:
        """First cycle from `cycle` on in which a beat may move."""
        if not self.pause_every:
            return cycle
        return cycle + max(0, self.pause_cycles - cycle % self.pause_every)


DEFAULT_DDR = Ddr()


def parse_ddr(text: str, seed: int = 0) -> Ddr:
    """Read a memory's name in `NAMED`, or its numbers: "latency=50-500,beat=2,pause=64/128", each optional.

    Raises:
        UserError: it is neither.

    """
    values = {"seed": seed}
    for part in filter(None, NAMED.get(text, text).split(",")):
        name, _, value = part.partition("=")
        numbers = [int(number) for number in re.findall(r"\d+", value)]
        if name == "latency" and re.fullmatch(r"\d+(-\d+)?", value):
            values |= {"latency_low": numbers[0], "latency_high": numbers[-1]}
        elif name == "beat" and re.fullmatch(r"\d+", value):
            values |= {"beat_cycles": numbers[0]}
        elif name == "pause" and re.fullmatch(r"\d+/\d+", value):
            values |= {"pause_cycles": numbers[0], "pause_every": numbers[1]}
        else:
            raise _refusal(text, f"'{part}' is not known")
    ddr = Ddr(**values)
    if max(values.values()) > LARGEST:
        raise _refusal(text, f"the largest number is {LARGEST:,}")
    if ddr.latency_low > ddr.latency_high or ddr.latency_low < 1 or ddr.beat_cycles < 1:
        raise _refusal(text, "a latency is LOW-HIGH or one number, from one cycle on, as is a beat")
    if ddr.pause_cycles and ddr.pause_cycles >= ddr.pause_every:
        raise _refusal(text, "a pause must be shorter than the time from one to the next")
    return ddr


def _refusal(text: str, reason: str) -> UserError:
    return UserError(
        f"memory '{text}': {reason}; write one of {', '.join(NAMED)}, or for example"
        " latency=50-500,beat=2,pause=64/128 (cycles to a burst's first beat, cycles a beat, and no beat in"
        " the first 64 of every 128 cycles)"
    )
