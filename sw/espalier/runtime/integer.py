"""The integer model as a device: registers and memory in Python, tensors by `espalier.numerics`."""

from __future__ import annotations

import time

import numpy as np
import numpy.typing as npt

from espalier.arch.config import ARCH_VERSION, HardwareConfig
from espalier.arch.registers import MAGIC, REGISTERS, Control, ErrorCode, Status
from espalier.errors import DeviceError
from espalier.runtime.device import Access
from espalier.runtime.model import Model, Reference
from espalier.runtime.tiles import TileBuffer

Bytes = npt.NDArray[np.uint8]
_OFFSETS = {register.name: register.offset for register in REGISTERS}
_NAMES = {register.offset: register.name for register in REGISTERS}
_FIRST_ADDRESS = 0x1_0000_0000  # above 4 GiB, so that the high address registers are used
_PAGE = 4096


class IntegerBuffer:
    """Host memory that only the integer model reads and writes; nothing to flush."""

    def __init__(self, device: IntegerDevice, address: int, count: int) -> None:
        self._device, self.address = device, address
        self.array: Bytes = np.zeros(count, np.uint8)

    def flush(self) -> None:
        """Nothing: there is one copy."""

    def invalidate(self) -> None:
        """Nothing: there is one copy."""

    def free(self) -> None:
        """Forget the memory."""
        self._device.memory.pop(self.address, None)


class IntegerDevice:
    """Computes what the accelerator of `config` computes, bit for bit, without one; a `Device`.

    It knows a program by its bytes: every model that may be loaded is told to `learn` first. Nothing is
    counted: cycles, beats and counters of layers read as zero.
    """

    def __init__(self, config: HardwareConfig) -> None:
        self.config = config
        self.owner: object | None = None
        self.name = f"the integer model of '{config.name}'"
        self.clock_mhz, self.patience = None, 1.0
        self.has_interrupt = self.has_counters = False
        self.memory: dict[int, IntegerBuffer] = {}
        self._next_address = _FIRST_ADDRESS
        self._models: dict[bytes, Model] = {}
        self._loaded: tuple[Model, Reference] | None = None
        constants = {"MAGIC": MAGIC, "VERSION": ARCH_VERSION, "CONFIG_HASH": config.hash}
        self._registers = {name: constants.get(name, 0) for name in _OFFSETS}

    def learn(self, model: Model) -> None:
        """Make a model known, so that its program can be loaded."""
        self._models[model.image.program[: model.image.load_bytes]] = model

    def read(self, offset: int) -> int:
        """Read a register; counters are zero."""
        return self._registers.get(_NAMES.get(offset, ""), 0)

    def write(self, offset: int, value: int) -> None:
        """Write a register; a command is over when this returns."""
        register = next((item for item in REGISTERS if item.offset == offset), None)
        if register is not None and register.access == "rw":
            self._registers[register.name] = value
        elif register is not None and register.name == "CONTROL":
            self._command(Control(value))

    def allocate(self, count: int, access: Access) -> IntegerBuffer:
        """Reserve memory of the host."""
        buffer = IntegerBuffer(self, self._next_address, count)
        self._next_address += (count // _PAGE + 2) * _PAGE
        self.memory[buffer.address] = buffer
        return buffer

    def wait(self, seconds: float) -> bool:
        """Return at once: there is no interrupt."""
        return False

    async def wait_async(self, seconds: float) -> bool:
        """Return at once: there is no interrupt."""
        return False

    def sleep(self, seconds: float) -> None:
        """Return at once: a command is over when it has been written."""

    async def sleep_async(self, seconds: float) -> None:
        """Return at once: a command is over when it has been written."""

    def now(self) -> float:
        """Seconds of the host's clock."""
        return time.perf_counter()

    def close(self) -> None:
        """Forget everything."""
        self.memory.clear()
        self._models.clear()
        self._loaded = None

    def _command(self, command: Control) -> None:
        if command & Control.RESET:
            self._loaded = None
            self._end(Status(0))
        elif command & Control.CLEAR_INTERRUPT:
            self._end(Status(self._registers["STATUS"]) & Status.LOADED)
        elif command & Control.LOAD:
            self._load()
        elif command & Control.START and self._loaded is None:
            self._end(Status.ERROR, ErrorCode.NOT_LOADED)
        elif command & Control.START:
            self._run()

    def _end(self, status: Status, code: ErrorCode = ErrorCode.NONE) -> None:
        loaded = Status.LOADED if self._loaded else Status(0)
        self._registers["STATUS"], self._registers["ERROR_CODE"] = int(status | loaded), int(code)

    def _load(self) -> None:
        """Find the model whose program lies in the memory."""
        content = self._buffer("PROGRAM").array[: self._registers["PROGRAM_BYTES"]].tobytes()
        found = next((m for program, m in self._models.items() if content.startswith(program)), None)
        self._loaded = None if found is None else (found, found.reference())
        self._end(
            *((Status.ERROR, ErrorCode.BAD_SECTION) if found is None else (Status.DONE, ErrorCode.NONE))
        )

    def _run(self) -> None:
        assert self._loaded is not None, "checked by the caller"
        model, reference = self._loaded
        size = model.config.tile_size
        tensor = TileBuffer(self._buffer("INPUT").array, model.image.input, size).read()
        target = TileBuffer(self._buffer("OUTPUT").array, model.image.output, size)
        target.write(reference(tensor))
        self._end(Status.DONE)

    def _buffer(self, name: str) -> IntegerBuffer:
        address = self._registers[f"{name}_ADDRESS"] | self._registers[f"{name}_ADDRESS_HIGH"] << 32
        if address not in self.memory:
            raise DeviceError(
                f"{self.name}: no buffer lies at {name}_ADDRESS 0x{address:x}; was it freed too early?"
            )
        return self.memory[address]
