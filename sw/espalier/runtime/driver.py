"""The driver of the accelerator's registers: identity, program, commands, time-outs. Knows no pictures."""

from __future__ import annotations

import warnings
from collections.abc import Generator, Sequence
from dataclasses import dataclass

from espalier.arch.config import ARCH_VERSION, HardwareConfig
from espalier.arch.registers import (
    COUNTER_BASE,
    COUNTERS,
    MAGIC,
    REGISTERS,
    Control,
    ErrorCode,
    Status,
)
from espalier.errors import DeviceError, DeviceFault, DeviceTimeout
from espalier.runtime.device import Buffer, Device

OFFSETS = {register.name: register.offset for register in REGISTERS}
_ENDED = Status.DONE | Status.ERROR
# A command may take this many times the time that was predicted, and the device's patience besides.
PATIENCE_FACTOR = 20
_PREMATURE = 3  # interrupts that came too early after which a command is polled
_RESET_POLLS = 12  # waits between them double, and are the device's patience together

# A wait of the driver: for the interrupt, or just for seconds to pass. Answered with whether it came.
Wait = tuple[bool, float]


@dataclass(frozen=True)
class Counts:
    """What the accelerator counted in its last command."""

    cycles: int
    read_beats: int
    write_beats: int


class Driver:
    """Gives commands to one device.

    config: what the hardware must be. interrupt: wait for interrupts; otherwise, or if they get lost, poll.
    layers: names of the layers of the loaded program, for reports.
    """

    def __init__(self, device: Device, config: HardwareConfig, interrupt: bool) -> None:
        self.device, self.config = device, config
        self.interrupt = interrupt and device.has_interrupt
        self.layers: Sequence[str] = ()
        self.idle = False  # known to run nothing
        self._written: dict[str, int] = {}
        self._command = ""

    def identify(self) -> None:
        """Check the identification registers.

        Raises:
            DeviceError: no accelerator answers, or another one than expected.

        """
        found = self.read("MAGIC")
        if found != MAGIC:
            raise DeviceError(
                f"no accelerator answers at {self.device.name}: register MAGIC reads 0x{found:08x}, expected"
                f" 0x{MAGIC:08x}; is its bitstream loaded, and its address right?"
            )
        if (version := self.read("VERSION")) != ARCH_VERSION:
            raise DeviceError(
                f"{self.device.name} has architecture version {version}, this software needs {ARCH_VERSION}:"
                " build the bitstream again"
            )
        if (found := self.read("CONFIG_HASH")) != self.config.hash:
            raise DeviceError(
                f"{self.device.name} has configuration {found:08x}, the model is compiled for"
                f" '{self.config.name}' ({self.config.hash:08x}): load its bitstream, or compile the model"
                " again"
            )

    def read(self, register: str) -> int:
        """Read a register by name."""
        return self.device.read(OFFSETS[register])

    def write(self, register: str, value: int) -> None:
        """Write a register by name."""
        self.device.write(OFFSETS[register], value)

    def point(self, name: str, buffer: Buffer) -> None:
        """Set the address register pair `name`, as far as it has changed."""
        for suffix, value in (("", buffer.address & 0xFFFFFFFF), ("_HIGH", buffer.address >> 32)):
            self._set(f"{name}_ADDRESS{suffix}", value)

    def _set(self, register: str, value: int) -> None:
        if self._written.get(register) != value:
            self.write(register, value)
            self._written[register] = value

    def reset(self) -> None:
        """Abort whatever runs and forget the program; afterwards every command works.

        Raises:
            DeviceTimeout: the accelerator waits for its memory and does not come out of the reset.

        """
        self._written.clear()
        self.device.owner, self.idle = None, False
        self.write("CONTROL", Control.RESET)
        seconds = self.device.patience / (1 << _RESET_POLLS)
        for _ in range(_RESET_POLLS):
            if not self.read("STATUS") & Status.BUSY:
                self.idle = True
                return
            self.device.sleep(seconds)
            seconds *= 2
        raise DeviceTimeout(
            f"{self.device.name} does not come out of a reset: its memory owes it answers"
            f" ({self.describe()}); if the next call fails too, load the bitstream again"
        )

    def load(self, program: Buffer, count: int, owner: object, timeout: float | None = None) -> None:
        """Let the accelerator read a program image of `count` bytes, which then belongs to `owner`.

        Raises:
            DeviceFault: it reports an error, or has not finished in time.

        """
        self.device.owner = None
        self._written.clear()  # others may have used the device
        self._set("INTERRUPT_ENABLE", int(self.interrupt))
        self.point("PROGRAM", program)
        self.write("PROGRAM_BYTES", count)
        self.start(Control.LOAD, "loading the program")
        expected = self.seconds(2 * count // self.config.axi_bytes)
        self.finish(expected, timeout)
        if not self.read("STATUS") & Status.LOADED:
            raise DeviceFault(f"{self.device.name}: no program after it was loaded: {self.describe()}")
        self.device.owner = owner

    def start(self, command: Control, what: str) -> None:
        """Give a command; `what` it does is for reports."""
        self._command, self.idle = what, False
        self.write("CONTROL", command)

    def seconds(self, cycles: int) -> float:
        """Time of a number of clock cycles; 0 without a clock."""
        return cycles / (1e6 * self.device.clock_mhz) if self.device.clock_mhz else 0.0

    def finish(self, expected: float, timeout: float | None = None) -> None:
        """Wait for the end of a command.

        expected: seconds that it was predicted to take. timeout: seconds; None: from `expected` and device.

        Raises:
            DeviceFault: the accelerator reports an error, or has not finished in time; it was reset.

        """
        steps = self._steps(expected, timeout)
        try:
            wait = next(steps)
            while True:
                try:
                    came = self._do(*wait)
                except DeviceTimeout as error:
                    wait = steps.throw(error)
                else:
                    wait = steps.send(came)
        except StopIteration:
            return

    async def finish_async(self, expected: float, timeout: float | None = None) -> None:
        """Do as `finish`, while other coroutines run."""
        steps = self._steps(expected, timeout)
        try:
            wait = next(steps)
            while True:
                try:
                    came = await self._do_async(*wait)
                except DeviceTimeout as error:
                    wait = steps.throw(error)
                else:
                    wait = steps.send(came)
        except StopIteration:
            return

    def _do(self, for_interrupt: bool, seconds: float) -> bool:
        if for_interrupt:
            return self.device.wait(seconds)
        self.device.sleep(seconds)
        return False

    async def _do_async(self, for_interrupt: bool, seconds: float) -> bool:
        if for_interrupt:
            return await self.device.wait_async(seconds)
        await self.device.sleep_async(seconds)
        return False

    def _steps(self, expected: float, timeout: float | None) -> Generator[Wait, bool, None]:
        """All that waits for the end of a command; whoever runs this does the waiting."""
        if timeout is None:
            timeout = self.device.patience + PATIENCE_FACTOR * expected
        try:
            status = yield from self._ended(expected, timeout)
        except DeviceTimeout as error:
            state = self.describe()
            raise DeviceTimeout(f"{error} while {self._command}: {state}; {self._recovered()}") from None
        if status & Status.ERROR:
            code = self.read("ERROR_CODE")
            name = ErrorCode(code).name if code in ErrorCode._value2member_map_ else str(code)
            state = self.describe(status)
            raise DeviceFault(
                f"{self.device.name} reports error {name} while {self._command}: {state}; {self._recovered()}"
            )
        if self.interrupt:
            self.write("CONTROL", Control.CLEAR_INTERRUPT)
        self.idle = True

    def _ended(self, expected: float, timeout: float) -> Generator[Wait, bool, Status]:
        # Interrupts can be lost or come too early, so that STATUS alone decides.
        begin = self.device.now()
        for _ in range(_PREMATURE if self.interrupt else 0):
            hang = None
            try:
                came = yield True, min(timeout, 4 * expected + self.device.patience)
            except DeviceTimeout as error:
                came, hang = False, error
            status = self._status()
            if status & _ENDED:
                if not came:
                    self._poll_from_now_on()
                return status
            if hang is not None:
                raise hang
            if not came:
                break
        else:
            yield False, min(timeout, expected)
        wait = max(expected / 32, self.seconds(32))
        while True:
            status = self._status()
            if status & _ENDED:
                return status
            if self.device.now() - begin >= timeout:
                raise DeviceTimeout(f"{self.device.name} has not finished in {timeout:.3g} s")
            yield False, wait
            wait *= 1.5

    def _status(self) -> Status:
        status = Status(self.read("STATUS"))
        if not status & (_ENDED | Status.BUSY):
            raise DeviceFault(
                f"{self.device.name} is idle while {self._command}: somebody else has reset it or loaded its"
                " bitstream; the next call loads the program again"
            )
        return status

    def _poll_from_now_on(self) -> None:
        self.interrupt = False
        self._set("INTERRUPT_ENABLE", 0)
        warnings.warn(
            f"{self.device.name}: no interrupt has come although the command is done; polling from now on",
            RuntimeWarning,
            stacklevel=2,
        )

    def _recovered(self) -> str:
        """Reset after a failure and say how that went."""
        try:
            self.reset()
        except DeviceTimeout as error:
            return str(error)
        return "it was reset, and the next call loads the program again"

    def counts(self) -> Counts:
        """Read what the last command took."""
        return Counts(*(self.read(name) for name in ("CYCLES", "READ_BEATS", "WRITE_BEATS")))

    def layer_counters(self, layer: int) -> dict[str, int]:
        """Read the counters of a layer, by the names in `espalier.arch.registers.COUNTERS`."""
        base = COUNTER_BASE + 4 * len(COUNTERS) * layer
        return {name: self.device.read(base + 4 * index) for index, (name, _) in enumerate(COUNTERS)}

    def describe(self, status: Status | None = None) -> str:
        """Say what the hardware is doing, from its diagnosis registers."""
        status = Status(self.read("STATUS")) if status is None else status
        state, layer = self.read("STATE"), self.read("LAYER")
        counts = self.counts()
        name = f" ({self.layers[layer]})" if layer < len(self.layers) else ""
        return (
            f"STATUS {_flags(status)}, LAYER {layer}{name}, STATE 0x{state:04x} (sequencer {state & 0xFF},"
            f" DMA {state >> 8 & 0xFF}), {counts.cycles} cycles, {counts.read_beats} beats read and"
            f" {counts.write_beats} written"
        )


def _flags(status: Status) -> str:
    return "+".join(flag.name or "" for flag in Status if flag & status) or "idle"
