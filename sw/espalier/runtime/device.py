"""What the driver needs of an accelerator, wherever it is: on a board, simulated, or a model in Python."""

from __future__ import annotations

from typing import Literal, Protocol

import numpy as np
import numpy.typing as npt

Bytes = npt.NDArray[np.uint8]
# What the accelerator does with a buffer. Boards do not care, simulated memories check it.
Access = Literal["read", "write", "both"]


class Buffer(Protocol):
    """Memory that host and accelerator share. The host's copy and the accelerator's may differ: see below."""

    @property
    def address(self) -> int:
        """Where the accelerator finds it; a multiple of 16 bytes."""

    @property
    def array(self) -> Bytes:
        """The host's copy, uint8[bytes]; valid until `free`."""

    def flush(self) -> None:
        """Make what the host has written visible to the accelerator."""

    def invalidate(self) -> None:
        """Make what the accelerator has written visible to the host."""

    def free(self) -> None:
        """Give the memory back; the accelerator must not use it any more. A second call does nothing."""


class Device(Protocol):
    """An accelerator with its memory. Registers are those of `espalier.arch.registers`, by byte offset.

    owner: whoever loaded the program that is in the accelerator; None: nobody. Users of the same device
    notice by it that theirs was replaced.
    """

    owner: object | None

    @property
    def name(self) -> str:
        """For messages."""

    @property
    def clock_mhz(self) -> float | None:
        """Clock of the accelerator in MHz; None: it has none."""

    @property
    def has_interrupt(self) -> bool:
        """Whether `wait` works; otherwise the driver polls."""

    @property
    def has_counters(self) -> bool:
        """Whether cycles, beats and the counters of layers are counted."""

    @property
    def patience(self) -> float:
        """Seconds beyond the predicted time after which a command counts as hanging."""

    def read(self, offset: int) -> int:
        """Read a 32-bit register."""

    def write(self, offset: int, value: int) -> None:
        """Write a 32-bit register."""

    def allocate(self, count: int, access: Access) -> Buffer:
        """Reserve `count` bytes; their content is undefined.

        Raises:
            DeviceError: there is not so much memory.

        """

    def wait(self, seconds: float) -> bool:
        """Wait for the interrupt, at most so long; whether it came. It may come too early, or get lost."""

    async def wait_async(self, seconds: float) -> bool:
        """Do as `wait`, while other coroutines run."""

    def sleep(self, seconds: float) -> None:
        """Let time pass between two polls."""

    async def sleep_async(self, seconds: float) -> None:
        """Do as `sleep`, while other coroutines run."""

    def now(self) -> float:
        """Seconds since some moment; simulated ones for a simulated clock."""

    def close(self) -> None:
        """Give the accelerator free for others; buffers are freed before."""
