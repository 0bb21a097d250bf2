"""The accelerator's RTL in the compiled simulator, as a device for the driver."""

from __future__ import annotations

import asyncio
import random
from pathlib import Path

import numpy as np
from numpy.typing import NDArray

from espalier.arch.config import HardwareConfig
from espalier.arch.registers import offset_of
from espalier.errors import DeviceTimeout
from espalier.runtime.device import Access
from espalier_sim.build import BuiltSimulator, build_simulator
from espalier_sim.heap import Heap
from espalier_sim.progress import Progress, silent
from espalier_sim.simulator import CHUNK_CYCLES, Outcome, Simulator
from espalier_sim.verilog import accelerator_verilog

PATIENCE_CYCLES = 50_000  # without any transfer or write: the accelerator hangs
_CONTROL = offset_of("CONTROL")
_UNDEFINED = 0xA5  # what new buffers hold, on either side
_MEMORY_BYTES = 1 << 30  # address space only; the host allocates pages that are touched
_UNALIGNED = 0xFD0  # where buffers lie in a page in simulations with stalls
_KINDS = {"read": ("readable",), "write": ("writable",), "both": ("readable", "writable")}


class SimulatedBuffer:
    """A buffer with two copies, the host's and one in the simulated DDR: only flush and invalidate copy."""

    def __init__(self, device: SimulatedDevice, address: int, count: int, access: Access) -> None:
        self._device, self.address, self._access = device, address, access
        self.array: NDArray[np.uint8] = np.full(count, _UNDEFINED, np.uint8)
        self.live = True
        self.memory[:] = _UNDEFINED
        for kind in _KINDS[access]:
            device.simulator.open_range(kind, address, count)

    @property
    def memory(self) -> NDArray[np.uint8]:
        """The accelerator's copy, uint8[bytes]."""
        start = self.address - self._device.simulator.memory_base
        return self._device.simulator.memory[start : start + len(self.array)]

    def flush(self) -> None:
        """Copy the host's bytes into the DDR."""
        self.memory[:] = self.array

    def invalidate(self) -> None:
        """Copy the DDR's bytes to the host."""
        self.array[:] = self.memory

    def free(self) -> None:
        """Give the range back: from now on an access of the accelerator is a violation."""
        if self.live and self._device.is_open:
            for kind in _KINDS[self._access]:
                self._device.simulator.open_range(kind, self.address, 0)
            self._device.heap.release(self.address)
        self.live = False


class SimulatedDevice:
    """The accelerator of `config` in the compiled simulator; a `Device`, and a context manager.

    stalls: seed of random stalls on every AXI channel; None: none. With stalls the buffers also lie at
    addresses that are not page aligned. host_latency: cycles before each register access,
    (lowest, highest). waves: .vcd or .fst file to write. built: a simulator built before;
    otherwise it is taken from the cache or built. Time is simulated: cycles at the clock of `config`.

    Raises:
        HardwareFault: the accelerator breaks a bus rule or accesses memory outside the live buffers.

    """

    def __init__(
        self,
        config: HardwareConfig,
        stalls: int | None = None,
        host_latency: tuple[int, int] = (0, 0),
        waves: Path | None = None,
        progress: Progress = silent,
        built: BuiltSimulator | None = None,
    ) -> None:
        self.config, self.progress = config, progress
        if built is None:
            kind = waves.suffix[1:] if waves else ""
            built = build_simulator(accelerator_verilog(config, progress), config, kind, progress)
        self.simulator = Simulator(built.library, config, _MEMORY_BYTES)
        self.is_open = True
        self.owner: object | None = None
        self.name, self.clock_mhz = f"the simulated '{config.name}'", float(config.clock_mhz)
        self.has_interrupt = self.has_counters = True
        self.patience = self._seconds(2 * PATIENCE_CYCLES)
        shift = 0 if stalls is None else _UNALIGNED
        self.heap = Heap(self.simulator.memory_base, self.simulator.memory_bytes, shift)
        self._host_latency, self._random = host_latency, random.Random(stalls)
        try:
            if waves:
                self.simulator.open_waves(waves)
            self.simulator.start_trace(False)
            self.simulator.seed_stalls(stalls)
            self.simulator.reset()
        except BaseException:
            self.close()
            raise

    def __enter__(self) -> SimulatedDevice:
        return self

    def __exit__(self, *error: object) -> None:
        self.close()

    def close(self) -> None:
        """End the simulation and free its memory."""
        self.is_open = False
        self.simulator.close()

    def read(self, offset: int) -> int:
        """Read a register through the AXI4-Lite port."""
        self._delay()
        return self.simulator.read(offset)

    def write(self, offset: int, value: int) -> None:
        """Write a register through the AXI4-Lite port."""
        self._delay()
        if offset == _CONTROL:
            self.simulator.begin_ddr()  # equal commands take equal times
        self.simulator.write(offset, value)

    def allocate(self, count: int, access: Access) -> SimulatedBuffer:
        """Reserve DDR; the accelerator may access it as `access` says, and nothing outside such buffers."""
        return SimulatedBuffer(self, self.heap.reserve(count), count, access)

    def wait(self, seconds: float) -> bool:
        """Clock until the interrupt line is high; whether it is.

        Raises:
            DeviceTimeout: nothing moves any more.

        """
        left = self._cycles(seconds)
        while left > 0:
            outcome = self.clock(min(CHUNK_CYCLES, left))
            if outcome is not Outcome.RUNNING:
                return True
            left -= CHUNK_CYCLES
        return self.simulator.interrupt

    async def wait_async(self, seconds: float) -> bool:
        """Clock until the interrupt line is high; other coroutines run in between."""
        left = self._cycles(seconds)
        while left > 0:
            if self.clock(min(CHUNK_CYCLES, left)) is not Outcome.RUNNING:
                return True
            left -= CHUNK_CYCLES
            await asyncio.sleep(0)
        return self.simulator.interrupt

    def sleep(self, seconds: float) -> None:
        """Clock for so long."""
        self.simulator.idle(self._cycles(seconds))
        self.simulator.check_protocol()

    async def sleep_async(self, seconds: float) -> None:
        """Clock for so long; other coroutines run afterwards."""
        self.sleep(seconds)
        await asyncio.sleep(0)

    def now(self) -> float:
        """Seconds that have been simulated."""
        return self._seconds(self.simulator.cycle)

    def clock(self, cycles: int) -> Outcome:
        """Clock until the interrupt line is high, but for so many cycles at most.

        Raises:
            DeviceTimeout: nothing moves any more.

        """
        outcome = self.simulator.advance(cycles, PATIENCE_CYCLES)
        self.simulator.check_protocol()
        if outcome is Outcome.STUCK:
            raise DeviceTimeout(
                f"{self.name} makes no progress for {PATIENCE_CYCLES} cycles"
                f" ({self.simulator.channels()}; cycle {self.simulator.cycle})"
            )
        if outcome is Outcome.RUNNING:
            self.progress(f"cycle {self.simulator.cycle}")
        return outcome

    def _delay(self) -> None:
        if self._host_latency[1]:
            self.simulator.idle(self._random.randint(*self._host_latency))

    def _seconds(self, cycles: int) -> float:
        return cycles / (1e6 * self.clock_mhz)

    def _cycles(self, seconds: float) -> int:
        return max(1, round(seconds * 1e6 * self.clock_mhz))
