"""The AXI4-Lite register map: the RTL, the driver and the documentation are generated from it."""

from __future__ import annotations

from dataclasses import dataclass
from enum import IntEnum, IntFlag

MAGIC = 0x4C505345  # "ESPL"
ADDRESS_BITS = 16
VLNV = "espalier:user:espalier:1.0"  # vendor, library, name and version of the packaged IP
INTERRUPT_PIN = "interrupt"
CLOCK_PARAMETER = "CLOCK_MHZ"  # of the packaged IP: the clock that timing was closed for
COUNTER_BASE = 0x8000  # per-layer counters: COUNTER_BASE + 32 * layer + 4 * counter


class Control(IntFlag):
    """Bits of CONTROL; all of them act once when written as one."""

    LOAD = 1  # read the program image at PROGRAM_ADDRESS into the on-chip memories
    START = 2  # run the loaded program on the input at INPUT_ADDRESS
    CLEAR_INTERRUPT = 4
    RESET = 8  # abort, forget the program, return to idle


class Status(IntFlag):
    """Bits of STATUS."""

    BUSY = 1
    DONE = 2  # the last command finished; cleared by the next command or by CLEAR_INTERRUPT
    LOADED = 4  # a program image is in the on-chip memories
    ERROR = 8  # see ERROR_CODE


class ErrorCode(IntEnum):
    """Values of ERROR_CODE."""

    NONE = 0
    AXI_READ = 1  # a DMA read was answered with an error response
    AXI_WRITE = 2  # a DMA write was answered with an error response
    BAD_SECTION = 3  # the program image holds an unknown section
    BAD_OPCODE = 4  # the program holds an unknown descriptor
    NOT_LOADED = 5  # START before a program was loaded


@dataclass(frozen=True)
class Register:
    """One 32-bit register."""

    name: str
    offset: int
    access: str  # "ro", "rw" or "wo"
    doc: str


REGISTERS = (
    Register("MAGIC", 0x00, "ro", "constant 'ESPL'"),
    Register("VERSION", 0x04, "ro", "ARCH_VERSION of the generator"),
    Register("CONFIG_HASH", 0x08, "ro", "HardwareConfig.hash"),
    Register("CONTROL", 0x10, "wo", "commands, see Control"),
    Register("STATUS", 0x14, "ro", "see Status"),
    Register("INTERRUPT_ENABLE", 0x18, "rw", "bit 0: interrupt while STATUS.DONE or STATUS.ERROR"),
    Register("ERROR_CODE", 0x1C, "ro", "see ErrorCode"),
    Register("PROGRAM_ADDRESS", 0x20, "rw", "program image in DDR, bits 31..0; a multiple of 16 bytes"),
    Register("PROGRAM_ADDRESS_HIGH", 0x24, "rw", "bits 63..32"),
    Register("PROGRAM_BYTES", 0x28, "rw", "length of the program image, a multiple of 16 bytes"),
    Register("INPUT_ADDRESS", 0x30, "rw", "input tensor in DDR, bits 31..0; a multiple of 16 bytes"),
    Register("INPUT_ADDRESS_HIGH", 0x34, "rw", "bits 63..32"),
    Register("OUTPUT_ADDRESS", 0x38, "rw", "output tensor in DDR, bits 31..0; a multiple of 16 bytes"),
    Register("OUTPUT_ADDRESS_HIGH", 0x3C, "rw", "bits 63..32"),
    Register(
        "SCRATCH_ADDRESS", 0x54, "rw", "buffer for feature maps in DDR, bits 31..0; a multiple of 16 bytes"
    ),
    Register("SCRATCH_ADDRESS_HIGH", 0x58, "rw", "bits 63..32"),
    Register("CYCLES", 0x40, "ro", "clock cycles of the last command, from its start to DONE"),
    Register("READ_BEATS", 0x44, "ro", "AXI read beats of the last command"),
    Register("WRITE_BEATS", 0x48, "ro", "AXI write beats of the last command"),
    Register("LAYER", 0x4C, "ro", "index of the layer that runs, or ran last"),
    Register("STATE", 0x50, "ro", "bits 7..0 sequencer state, bits 15..8 DMA state, for diagnosis"),
)

# Fields of registers that have some, and `Register.access` in the words of IP-XACT.
REGISTER_FIELDS: dict[str, type[IntFlag]] = {"CONTROL": Control, "STATUS": Status}
ACCESS_WORDS = {"ro": "read-only", "wo": "write-only", "rw": "read-write"}

# Per-layer counters in the order of their addresses. PE events are summed over all PEs, branch events
# over all branches, so that each can be larger than the cycle count. Layers overlap: events count for the
# layer whose end comes next.
COUNTERS = (
    ("cycles", "clock cycles from the end of the layer that ended before, to the layer's last write"),
    ("operators", "operators issued, nulls not counted"),
    ("null_operators", "null operators issued"),
    ("ring_empty", "PE cycles waiting for window words"),
    ("accumulators_full", "PE cycles waiting for accumulators that the output stage has not drained"),
    ("ring_full", "branch cycles in which a window word waited for the slowest PE"),
    ("window_wait", "branch cycles in which the ring had room but no window had arrived"),
    ("output_wait", "branch cycles in which a finished tile waited for the feature memory's write port"),
)


def offset_of(name: str) -> int:
    """Byte offset of a register by name."""
    return next(register.offset for register in REGISTERS if register.name == name)
