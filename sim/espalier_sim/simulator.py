"""The built shared library as a Python object: clock, DDR, registers, trace. No knowledge of programs."""

from __future__ import annotations

import ctypes
import dataclasses
from enum import IntEnum
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from espalier.arch.config import HardwareConfig
from espalier.arch.registers import offset_of
from espalier.errors import InternalError, UserError, VerificationMismatch

_POINTER, _U32, _U64, _INT = ctypes.c_void_p, ctypes.c_uint32, ctypes.c_uint64, ctypes.c_int
_FUNCTIONS: dict[str, tuple[Any, tuple[Any, ...]]] = {
    "create": (_POINTER, (_POINTER,)),
    "begin": (None, (_POINTER,)),
    "destroy": (None, (_POINTER,)),
    "open_waves": (_INT, (_POINTER, ctypes.c_char_p)),
    "reset": (None, (_POINTER,)),
    "seed": (None, (_POINTER, _U64)),
    "memory": (_POINTER, (_POINTER,)),
    "cycle": (_U64, (_POINTER,)),
    "interrupt": (_INT, (_POINTER,)),
    "range": (None, (_POINTER, _INT, _U64, _U64)),
    "open": (None, (_POINTER, _INT, _U64, _U64)),
    "silence": (None, (_POINTER, _INT)),
    "write": (_INT, (_POINTER, _U32, _U32)),
    "read": (_INT, (_POINTER, _U32, ctypes.POINTER(_U32))),
    "idle": (None, (_POINTER, _U64)),
    "run": (_INT, (_POINTER, _U64, _U64)),
    "violations": (_U64, (_POINTER,)),
    "violation_text": (ctypes.c_char_p, (_POINTER,)),
    "clear_violations": (None, (_POINTER,)),
    "channels": (ctypes.c_char_p, (_POINTER,)),
    "tracing": (None, (_POINTER, _INT)),
    "trace_length": (_U64, (_POINTER,)),
    "trace": (_POINTER, (_POINTER,)),
    "trace_entry_bytes": (_U32, ()),
}


class _MemorySettings(ctypes.Structure):
    """The same as in `verilator/memory.hpp`."""

    _fields_ = (
        *(("base", _U64), ("bytes", _U64), ("latency_low", _U32), ("latency_high", _U32)),
        *(("beat_cycles", _U32), ("pause_cycles", _U32), ("pause_every", _U32), ("seed", _U64)),
        *(("outstanding", _U32), ("burst_beats", _U32)),
    )


# Cycles simulated per call into the library: Ctrl-C is noticed in between.
CHUNK_CYCLES = 5000
RANGE_KINDS = {"readable": 0, "writable": 1, "faulty": 2}


class Outcome(IntEnum):
    """Why clocking ended, as the harness numbers it."""

    INTERRUPT = 0
    RUNNING = 1
    STUCK = 2


class HardwareFault(VerificationMismatch):
    """The simulated hardware hangs, breaks a bus rule or reports an error."""


def _load(path: Path) -> ctypes.CDLL:
    library = ctypes.CDLL(str(path))
    for name, (result, arguments) in _FUNCTIONS.items():
        function = getattr(library, f"espalier_{name}")
        function.restype, function.argtypes = result, list(arguments)
    return library


class Simulator:
    """One running accelerator with its DDR. Addresses are byte addresses on the AXI bus.

    memory_base, memory_bytes: where the DDR lies. outstanding: bursts that the memory accepts ahead, reads
    and writes each.
    """

    def __init__(
        self, library: Path, config: HardwareConfig, memory_bytes: int, outstanding: int = 8
    ) -> None:
        self._library = _load(library)
        # Above 4 GiB where the bus reaches that far, so that the high address registers are used.
        self.memory_base = 0x1_4000_0000 if config.axi_address_bits > 33 else 0x4000_0000
        self.memory_bytes = memory_bytes
        settings = _MemorySettings(
            base=self.memory_base,
            bytes=memory_bytes,
            outstanding=outstanding,
            burst_beats=config.burst_beats,
            **dataclasses.asdict(config.ddr),
        )
        self._handle = self._call("create", ctypes.byref(settings), handle=False)
        if not self._handle:
            raise InternalError(f"cannot reserve {memory_bytes} bytes for the simulated memory")
        entry = self._call("trace_entry_bytes", handle=False)
        lanes = config.lanes_per_pe
        self._trace_type = np.dtype(
            {
                "names": ["cycle", "address", "bank", "layer", "data"],
                "formats": ["<u4", "<u2", "u1", "u1", (np.uint8, lanes)],
                "offsets": [0, 4, 6, 7, 8],
                "itemsize": entry,
            }
        )

    def _call(self, name: str, *arguments: Any, handle: bool = True) -> Any:
        function = getattr(self._library, f"espalier_{name}")
        return function(self._handle, *arguments) if handle else function(*arguments)

    def close(self) -> None:
        """Free everything; further calls are not allowed."""
        if self._handle:
            self._call("destroy")
            self._handle = None

    def open_waves(self, path: Path) -> None:
        """Write waves to `path` from now on; the library must have been built for its kind."""
        if self._call("open_waves", str(path).encode()):
            raise UserError(f"cannot write waves to {path}: name a file in a folder that can be written")

    def reset(self) -> None:
        """Pull the reset line and release it."""
        self._call("reset")

    def begin_ddr(self) -> None:
        """Let latencies and pauses of the DDR start over, so that they depend on nothing before."""
        self._call("begin")

    def seed_stalls(self, seed: int | None) -> None:
        """Stall every AXI channel at random from now on; None: never."""
        self._call("seed", 0 if seed is None else seed + 1)

    @property
    def memory(self) -> NDArray[np.uint8]:
        """The DDR, uint8[memory_bytes]; valid until `close`."""
        pointer = ctypes.cast(self._call("memory"), ctypes.POINTER(ctypes.c_uint8))
        return np.ctypeslib.as_array(pointer, (self.memory_bytes,))

    @property
    def cycle(self) -> int:
        """Clock cycles since the simulator was made."""
        return int(self._call("cycle"))

    @property
    def interrupt(self) -> bool:
        """Level of the interrupt line."""
        return bool(self._call("interrupt"))

    def allow(self, kind: str, address: int, count: int) -> None:
        """Set the bytes that may be read or written ("readable", "writable") or fail ("faulty")."""
        self._call("range", RANGE_KINDS[kind], address, count)

    def open_range(self, kind: str, address: int, count: int) -> None:
        """Let `count` more bytes be "readable" or "writable"; 0: those at `address` no longer."""
        self._call("open", RANGE_KINDS[kind], address, count)

    def silence_memory(self, on: bool) -> None:
        """Let the memory accept and answer nothing from now on, or answer again: a bus that hangs."""
        self._call("silence", int(on))

    def write(self, register: str | int, value: int) -> None:
        """Write a 32-bit register, by name or offset, through the AXI4-Lite port."""
        offset = offset_of(register) if isinstance(register, str) else register
        if code := self._call("write", offset, value):
            raise HardwareFault(f"write to register {register}: {_ACCESS_FAULTS[code]}")

    def read(self, register: str | int) -> int:
        """Read a 32-bit register, by name or offset, through the AXI4-Lite port."""
        offset = offset_of(register) if isinstance(register, str) else register
        value = ctypes.c_uint32()
        if code := self._call("read", offset, ctypes.byref(value)):
            raise HardwareFault(f"read of register {register}: {_ACCESS_FAULTS[code]}")
        return value.value

    def idle(self, cycles: int) -> None:
        """Clock without waiting for anything."""
        self._call("idle", cycles)

    def run(self, cycles: int, patience: int) -> bool:
        """Clock until the interrupt line is high or `cycles` have passed; tell whether it is high.

        Raises:
            HardwareFault: nothing moved for `patience` cycles.

        """
        result = self.advance(cycles, patience)
        if result is Outcome.STUCK:
            raise HardwareFault(f"no progress for {patience} cycles: {self.describe()}")
        return result is Outcome.INTERRUPT

    def advance(self, cycles: int, patience: int) -> Outcome:
        """Clock until the interrupt, for `cycles`, or until nothing moved for `patience` cycles."""
        return Outcome(self._call("run", cycles, patience))

    def channels(self) -> str:
        """State of the bus channels."""
        text: str = self._call("channels").decode()
        return text

    def describe(self) -> str:
        """State of all channels and of the diagnosis registers."""
        channels = self.channels()
        try:
            registers = ", ".join(
                f"{n} 0x{self.read(n):x}" for n in ("STATUS", "ERROR_CODE", "LAYER", "STATE")
            )
        except HardwareFault as fault:
            registers = str(fault)
        return f"{registers}; {channels}; cycle {self.cycle}"

    def check_protocol(self) -> None:
        """Raise HardwareFault if a bus rule was broken since the last check; lists the first cases."""
        count = int(self._call("violations"))
        if count:
            text = self._call("violation_text").decode().rstrip()
            self._call("clear_violations")
            raise HardwareFault(f"{count} violations of the AXI protocol:\n{text}")

    def start_trace(self, on: bool = True) -> None:
        """Forget the recorded feature memory writes, and record from now on or not."""
        self._call("tracing", int(on))

    def trace(self) -> NDArray[Any]:
        """Copy the recorded feature memory writes, in order: fields cycle, address, bank, layer, data."""
        length = int(self._call("trace_length"))
        if length == 0:
            return np.zeros(0, self._trace_type)
        raw = ctypes.string_at(self._call("trace"), length * self._trace_type.itemsize)
        return np.frombuffer(raw, self._trace_type)


_ACCESS_FAULTS = {1: "no answer within 10,000 cycles", 2: "answered with an error"}
