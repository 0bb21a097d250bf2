"""The interrupt controller (AXI INTC) as PYNQ drives it, and the kernel's side of its line."""

from __future__ import annotations

import asyncio
from typing import Any, Protocol

from espalier.errors import DeviceTimeout, EspalierError
from espalier_sim.rtl_device import SimulatedDevice
from espalier_sim.simulator import CHUNK_CYCLES

_STATUS, _PENDING, _ENABLE, _ACKNOWLEDGE, _SET, _CLEAR, _MASTER = 0x00, 0x04, 0x08, 0x0C, 0x10, 0x14, 0x1C
_ENTRY_CYCLES = 200  # until the host has noticed


class Event(Protocol):
    """What PYNQ waits for."""

    def set(self) -> None:
        """Tell that the interrupt is there."""


class InterruptController:
    """One input, level-sensitive: it stays pending as long as the accelerator's line is high."""

    def __init__(self, rtl: SimulatedDevice) -> None:
        self._rtl = rtl
        self._pending = self._enabled = self._master = 0

    @property
    def output(self) -> bool:
        """Level of the line to the processing system."""
        self._pending |= int(self._rtl.simulator.interrupt)
        return bool(self._master & 1 and self._pending & self._enabled)

    def read(self, offset: int) -> int:
        """Read a register."""
        self._pending |= int(self._rtl.simulator.interrupt)
        values = {
            _STATUS: self._pending,
            _PENDING: self._pending & self._enabled,
            _ENABLE: self._enabled,
            _MASTER: self._master,
        }
        return values.get(offset, 0)

    def write(self, offset: int, value: int) -> None:
        """Write a register."""
        if offset == _ENABLE:
            self._enabled = value
        elif offset == _ACKNOWLEDGE:
            self._pending &= ~value
        elif offset == _SET:
            self._enabled |= value
        elif offset == _CLEAR:
            self._enabled &= ~value
        elif offset == _MASTER:
            self._master = value


class InterruptLine:
    """Stands for PYNQ's file of the kernel: clocks the RTL while somebody waits, until the line is high."""

    def __init__(self, rtl: SimulatedDevice, controller: InterruptController) -> None:
        self._rtl, self._controller = rtl, controller
        self._events: list[Event] = []
        self._task: asyncio.Task[None] | None = None
        self.error: EspalierError | None = None  # that simulating met; whoever reads a register next gets it

    def add_event(self, event: Any, number: int) -> None:
        """Remember an event and let time pass; called from a coroutine."""
        self._events.append(event)
        if self._task is None or self._task.done():
            self._task = asyncio.get_running_loop().create_task(self._clock())

    async def _clock(self) -> None:
        while self._events:
            if self._controller.output:
                events, self._events = self._events, []
                for event in events:
                    event.set()
                self._rtl.simulator.idle(_ENTRY_CYCLES)
            else:
                self._step()
            await asyncio.sleep(0)

    def _step(self) -> None:
        try:
            if self._rtl.simulator.interrupt:  # masked: only time passes
                self._rtl.simulator.idle(CHUNK_CYCLES)
            else:
                self._rtl.clock(CHUNK_CYCLES)
        except DeviceTimeout:
            self._rtl.simulator.idle(CHUNK_CYCLES)  # whoever waits has a time-out of its own
        except EspalierError as error:
            self.error = error
