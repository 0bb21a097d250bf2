"""Records what happens between driver and device, and plays it back without the device."""

from __future__ import annotations

import base64
import gzip
import hashlib
import json
import zlib
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt

from espalier.errors import DeviceError
from espalier.runtime.device import Access, Buffer, Device

Bytes = npt.NDArray[np.uint8]
_FORMAT = "espalier recording 1"


class Recorder:
    """A `Device` that hands everything to another one and keeps a log of it."""

    def __init__(self, device: Device) -> None:
        self.device = device
        self.log: list[list[Any]] = []
        self.name, self.clock_mhz, self.patience = device.name, device.clock_mhz, device.patience
        self.has_interrupt, self.has_counters = device.has_interrupt, device.has_counters
        self._buffers = 0

    @property
    def owner(self) -> object | None:
        """Whoever loaded the program, see `Device`."""
        return self.device.owner

    @owner.setter
    def owner(self, owner: object | None) -> None:
        self.device.owner = owner

    def accesses(self) -> int:
        """Count the register accesses so far."""
        return sum(entry[0] in ("read", "write") for entry in self.log)

    def save(self, path: str | Path) -> None:
        """Write the log for a `Replayer`."""
        facts = [self.name, self.clock_mhz, self.patience, self.has_interrupt, self.has_counters]
        with gzip.open(path, "wt", encoding="utf-8") as stream:
            for line in [[_FORMAT, *facts], *self.log]:
                stream.write(json.dumps(line) + "\n")

    def learn(self, model: Any) -> None:
        """Hand a model on to an integer model."""
        if (learn := getattr(self.device, "learn", None)) is not None:
            learn(model)

    def read(self, offset: int) -> int:
        """Read a register."""
        value = self.device.read(offset)
        self.log.append(["read", offset, value])
        return value

    def write(self, offset: int, value: int) -> None:
        """Write a register."""
        self.log.append(["write", offset, int(value)])
        self.device.write(offset, value)

    def allocate(self, count: int, access: Access) -> Buffer:
        """Reserve memory; what is flushed and invalidated is kept too."""
        buffer = self.device.allocate(count, access)
        self.log.append(["allocate", count, access, buffer.address])
        self._buffers += 1
        return _RecordedBuffer(self, buffer, self._buffers)

    def wait(self, seconds: float) -> bool:
        """Wait for the interrupt."""
        came = self.device.wait(seconds)
        self.log.append(["wait", came])
        return came

    async def wait_async(self, seconds: float) -> bool:
        """Wait for the interrupt, while other coroutines run."""
        came = await self.device.wait_async(seconds)
        self.log.append(["wait", came])
        return came

    def sleep(self, seconds: float) -> None:
        """Let time pass."""
        self.device.sleep(seconds)

    async def sleep_async(self, seconds: float) -> None:
        """Let time pass, while other coroutines run."""
        await self.device.sleep_async(seconds)

    def now(self) -> float:
        """Seconds of the device's clock."""
        seconds = self.device.now()
        self.log.append(["now", seconds])
        return seconds

    def close(self) -> None:
        """Close the device; the log stays."""
        self.device.close()


class _RecordedBuffer:
    def __init__(self, recorder: Recorder, buffer: Buffer, number: int) -> None:
        self._recorder, self._buffer, self._number = recorder, buffer, number
        self.address, self.array = buffer.address, buffer.array

    def flush(self) -> None:
        self._recorder.log.append(["flush", self._number, _digest(self.array)])
        self._buffer.flush()

    def invalidate(self) -> None:
        self._buffer.invalidate()
        content = base64.b64encode(zlib.compress(self.array.tobytes())).decode()
        self._recorder.log.append(["invalidate", self._number, content])

    def free(self) -> None:
        self._buffer.free()


class Replayer:
    """A `Device` that answers as a recorded one did, and insists on being used in the same way."""

    def __init__(self, path: str | Path) -> None:
        try:
            with gzip.open(path, "rt", encoding="utf-8") as stream:
                self._log = [json.loads(line) for line in stream]
        except (OSError, ValueError) as error:
            raise DeviceError(f"cannot read recording {path}: {error}") from error
        if not self._log or self._log[0][0] != _FORMAT:
            raise DeviceError(f"{path} is no recording of an accelerator")
        _, self.name, self.clock_mhz, self.patience, self.has_interrupt, self.has_counters = self._log[0]
        self.owner: object | None = None
        self._position, self._buffers = 1, 0

    def next(self, kind: str, *expected: Any) -> Any:
        """Go on by one entry, which must be of this kind and begin with `expected`; return its last value.

        Raises:
            DeviceError: something else was recorded there.

        """
        entry = self._log[self._position] if self._position < len(self._log) else ["the end"]
        if entry[: 1 + len(expected)] != [kind, *expected]:
            raise DeviceError(
                f"replay of {self.name}: entry {self._position} of the recording is {str(entry)[:80]},"
                f" now comes {[kind, *expected]}"
            )
        self._position += 1
        return entry[-1]

    def finished(self) -> bool:
        """Whether everything recorded has been used."""
        return self._position == len(self._log)

    def read(self, offset: int) -> int:
        """Read a register."""
        return int(self.next("read", offset))

    def write(self, offset: int, value: int) -> None:
        """Write a register."""
        self.next("write", offset, int(value))

    def allocate(self, count: int, access: Access) -> Buffer:
        """Make a buffer with the recorded address."""
        self._buffers += 1
        return _ReplayedBuffer(self, self.next("allocate", count, access), count, self._buffers)

    def wait(self, seconds: float) -> bool:
        """Return whether the interrupt came then."""
        return bool(self.next("wait"))

    async def wait_async(self, seconds: float) -> bool:
        """Return whether the interrupt came then."""
        return self.wait(seconds)

    def sleep(self, seconds: float) -> None:
        """Return at once."""

    async def sleep_async(self, seconds: float) -> None:
        """Return at once."""

    def now(self) -> float:
        """Seconds as recorded."""
        return float(self.next("now"))

    def close(self) -> None:
        """Nothing to close."""


class _ReplayedBuffer:
    def __init__(self, replayer: Replayer, address: int, count: int, number: int) -> None:
        self._replayer, self.address, self._number = replayer, address, number
        self.array: Bytes = np.zeros(count, np.uint8)

    def flush(self) -> None:
        self._replayer.next("flush", self._number, _digest(self.array))

    def invalidate(self) -> None:
        content = self._replayer.next("invalidate", self._number)
        self.array[:] = np.frombuffer(zlib.decompress(base64.b64decode(content)), np.uint8)

    def free(self) -> None:
        pass


def _digest(array: Bytes) -> str:
    return hashlib.sha256(array.tobytes()).hexdigest()
