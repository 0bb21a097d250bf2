"""A PYNQ board as a device: registers through MMIO, buffers of `pynq.allocate`, PYNQ's interrupt."""

from __future__ import annotations

import asyncio
import time
from typing import TYPE_CHECKING, Any

import numpy as np
import numpy.typing as npt
import pynq

from espalier.arch.registers import INTERRUPT_PIN
from espalier.errors import DeviceError
from espalier.runtime.device import Access
from espalier.runtime.event_loop import wait_in_board_thread

if TYPE_CHECKING:
    from espalier.runtime.overlay import EspalierOverlay

_PATIENCE = 0.25  # seconds
_BEAT = 16  # bytes that addresses are a multiple of


class PynqBuffer:
    """A buffer of `pynq.allocate`, cached: flush and invalidate are needed, and copies are fast."""

    def __init__(self, device: Any, count: int) -> None:
        try:
            self._buffer = pynq.allocate(shape=(count,), dtype="u1", target=device, cacheable=True)
        except (RuntimeError, MemoryError) as error:
            raise DeviceError(
                f"no contiguous memory of {count} bytes: {error}; free other buffers"
            ) from error
        self.address = int(self._buffer.physical_address)
        self.array: npt.NDArray[np.uint8] = self._buffer.view(np.ndarray)
        if self.address % _BEAT:
            raise DeviceError(f"buffer at 0x{self.address:x}: the accelerator needs a multiple of {_BEAT}")

    def flush(self) -> None:
        """Write the host's cache back."""
        self._buffer.flush()

    def invalidate(self) -> None:
        """Forget the host's cache."""
        self._buffer.invalidate()

    def free(self) -> None:
        """Let go of it; PYNQ frees the memory when nobody looks at it any more."""
        self._buffer = None
        self.array = np.empty(0, np.uint8)


class PynqDevice:
    """The accelerator of an `EspalierOverlay`; a `Device`. free_overlay: with `close`."""

    def __init__(self, overlay: EspalierOverlay, free_overlay: bool) -> None:
        self.overlay, self._free_overlay = overlay, free_overlay
        self.owner: object | None = None
        self._ip = overlay.accelerator
        self.name = f"the accelerator of {overlay.bitfile_name}"
        self.clock_mhz: float | None = overlay.clock_mhz
        # A simulated board has a clock of its own, and everything takes longer for whoever waits.
        is_simulated = getattr(overlay.device, "is_simulated", False)
        self._simulated = overlay.device.simulated if is_simulated else None
        self.patience = _PATIENCE if self._simulated is None else float(self._simulated.patience)
        self._pin = getattr(self._ip, INTERRUPT_PIN, None)
        self.has_interrupt, self.has_counters = self._pin is not None, True
        self.read, self.write = self._ip.mmio.read, self._write

    def _write(self, offset: int, value: int) -> None:
        self._ip.mmio.write(offset, int(value))  # PYNQ takes nothing but int

    def allocate(self, count: int, access: Access) -> PynqBuffer:
        """Reserve contiguous memory."""
        return PynqBuffer(self.overlay.device, count)

    def wait(self, seconds: float) -> bool:
        """Wait for the interrupt; works in notebooks too."""
        return wait_in_board_thread(self._interrupted(seconds)).result()

    async def wait_async(self, seconds: float) -> bool:
        """Wait for the interrupt in another thread, while other coroutines run."""
        return await asyncio.wrap_future(wait_in_board_thread(self._interrupted(seconds)))

    async def _interrupted(self, seconds: float) -> bool:
        assert self._pin is not None, "the driver waits for interrupts only where there are some"
        waiting = asyncio.ensure_future(self._pin.wait())
        end = self.now() + seconds
        try:
            while not waiting.done() and (left := end - self.now()) > 0:
                await asyncio.wait({waiting}, timeout=left if self._simulated is None else 0)
            done: bool = waiting.done()
            return done
        finally:
            waiting.cancel()

    def sleep(self, seconds: float) -> None:
        """Sleep."""
        (time.sleep if self._simulated is None else self._simulated.sleep)(seconds)

    async def sleep_async(self, seconds: float) -> None:
        """Sleep, while other coroutines run."""
        if self._simulated is None:
            await asyncio.sleep(seconds)
        else:
            self._simulated.sleep(seconds)
            await asyncio.sleep(0)

    def now(self) -> float:
        """Seconds of the host's clock, or simulated ones."""
        return time.perf_counter() if self._simulated is None else float(self._simulated.now())

    def close(self) -> None:
        """Give the board free if this device was made with it."""
        if self._free_overlay:
            self._free_overlay = False
            self.overlay.free()
