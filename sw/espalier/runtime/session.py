"""A model on a device: its program, its buffers, and the picture that is at work."""

from __future__ import annotations

import warnings
from collections.abc import Iterable

import numpy as np
import numpy.typing as npt

from espalier.arch.registers import Control
from espalier.errors import DeviceError, DeviceFault, DeviceTimeout
from espalier.runtime.device import Buffer, Device
from espalier.runtime.driver import Driver
from espalier.runtime.model import BufferSpec, Model
from espalier.runtime.tiles import TileBuffer

Bytes = npt.NDArray[np.uint8]
# Buffers of accelerators that did not come out of a reset: they may still write there.
_STRANDED: list[Buffer] = []


class Slot:
    """The buffers of one picture, used again and again."""

    def __init__(self, device: Device, specs: Iterable[BufferSpec], model: Model) -> None:
        self.buffers = {spec.register: device.allocate(spec.count, spec.access) for spec in specs}
        size = model.config.tile_size
        self.input = TileBuffer(self.buffers["INPUT"].array, model.image.input, size)
        self.output = TileBuffer(self.buffers["OUTPUT"].array, model.image.output, size)
        self.input.clear()


class Session:
    """Runs one model on one device, a picture at a time; each picture has a slot.

    interrupt, timeout: see `espalier.runtime.accelerator.Accelerator`.

    Raises:
        DeviceError: other hardware than the model is compiled for, or none.

    """

    def __init__(self, device: Device, model: Model, interrupt: bool, timeout: float | None) -> None:
        self.device, self.model = device, model
        self.timeout = timeout
        self.driver = Driver(device, model.config, interrupt)
        self.driver.layers = [layer.name for layer in model.image.metadata.layers]
        self.shared: dict[str, Buffer] = {}  # by name of the address register
        self._slots: list[Slot] = []
        self._running: Slot | None = None
        self.last_cycles = 0
        self.driver.identify()
        if (learn := getattr(device, "learn", None)) is not None:
            learn(model)
        self.driver.reset()

    def check_idle(self) -> None:
        """Raise DeviceError while a picture is at work."""
        if self._running is not None:
            raise DeviceError(
                f"{self.model.name} on {self.device.name}: a picture is still running; take the outputs of"
                " `run_many` first"
            )

    def ready(self) -> None:
        """Make sure that nothing runs and that the own program is loaded.

        Raises:
            DeviceFault: the accelerator cannot be reset, or the program not be loaded.

        """
        if not self.driver.idle:
            self.driver.reset()
            self._free_slots()  # whatever went wrong, it was not with new buffers
        if self.device.owner is not self:
            self.driver.reset()  # whoever has the device may have left something running
            self._load_program()

    def slot(self, number: int) -> Slot:
        """Return a picture's buffers, which are made when first asked for."""
        while len(self._slots) <= number:
            specs = [spec for spec in self.model.buffers() if spec.per_picture]
            self._slots.append(Slot(self.device, specs, self.model))
        return self._slots[number]

    def start(self, slot: Slot) -> None:
        """Start the picture in a slot."""
        slot.buffers["INPUT"].flush()
        for register, buffer in slot.buffers.items():
            self.driver.point(register, buffer)
        self._running = slot
        self.driver.start(Control.START, f"running {self.model.name}")

    def finish(self) -> None:
        """Wait for the picture at work.

        Raises:
            DeviceFault: the accelerator reports an error or does not answer in time.

        """
        try:
            self._check_owner()
            self.driver.finish(self._expected(), self.timeout)
        finally:
            self._ended()

    async def finish_async(self) -> None:
        """Do as `finish`, while other coroutines run."""
        try:
            self._check_owner()
            await self.driver.finish_async(self._expected(), self.timeout)
        finally:
            self._ended()

    def finish_running(self) -> None:
        """Wait for the picture at work, if there is one."""
        if self._running is not None:
            self.finish()

    def output(self, slot: Slot) -> Bytes:
        """Copy a picture's output out: uint8[channels, height, width]."""
        slot.buffers["OUTPUT"].invalidate()
        return slot.output.read()

    def close(self) -> None:
        """Abort what runs and free the buffers."""
        try:
            if not self.driver.idle:
                self.driver.reset()
        except DeviceTimeout as error:
            _STRANDED.extend([*self.shared.values(), *(b for s in self._slots for b in s.buffers.values())])
            self._slots.clear()
            self.shared.clear()
            warnings.warn(str(error), RuntimeWarning, stacklevel=3)
        self._running = None
        self._free_slots()
        for buffer in self.shared.values():
            buffer.free()
        self.shared.clear()
        if self.device.owner is self:
            self.device.owner = None

    def _load_program(self) -> None:
        for spec in self.model.buffers():
            if not spec.per_picture and spec.register not in self.shared:
                self.shared[spec.register] = self.device.allocate(spec.count, spec.access)
        content, program = self.model.image.program, self.shared["PROGRAM"]
        program.array[: len(content)] = np.frombuffer(content, np.uint8)
        program.array[len(content) :] = 0
        program.flush()
        self.driver.load(program, self.model.image.load_bytes, self)
        for register, buffer in self.shared.items():
            self.driver.point(register, buffer)

    def _check_owner(self) -> None:
        if self.device.owner is not self:
            raise DeviceFault(
                f"{self.device.name} was given to another model while running {self.model.name}; the next"
                " call loads the program again"
            )

    def _expected(self) -> float:
        return self.driver.seconds(self.model.image.metadata.predicted_cycles)

    def _ended(self) -> None:
        self._running = None
        if self.driver.idle and self.device.has_counters:
            self.last_cycles = self.driver.read("CYCLES")

    def _free_slots(self) -> None:
        for slot in self._slots:
            for buffer in slot.buffers.values():
                buffer.free()
        self._slots.clear()
