"""The simulated board as a device of PYNQ. Importing this imports `pynq` and makes the board its device."""

from __future__ import annotations

import ctypes
import os
import weakref
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray
from pynq.buffer import PynqBuffer
from pynq.interrupt import _InterruptController
from pynq.pl_server.device import Device
from pynq.pl_server.embedded_device import EmbeddedDevice, bit2bin
from pynqmetadata.frontends import Metadata

from espalier.arch.config import config_from_mapping
from espalier.arch.registers import ADDRESS_BITS
from espalier.errors import DeviceError
from espalier.runtime.placeholder import decode_manifest
from espalier_sim.board.boards import Board, find_board
from espalier_sim.board.interrupts import InterruptController, InterruptLine
from espalier_sim.board.processing_system import ProcessingSystem
from espalier_sim.board.settings import Settings
from espalier_sim.rtl_device import SimulatedBuffer, SimulatedDevice

try:
    from pynqmetadata.views.runtime import RuntimeMetadataParser
except ImportError:  # before pynq 4
    from pynq.metadata.runtime_metadata_parser import RuntimeMetadataParser

_WINDOW = 1 << ADDRESS_BITS
_WORD = 4


class _Memory:
    """The DDR, as PYNQ looks memories up."""

    def __init__(self, device: SimulatedBoard, description: dict[str, Any]) -> None:
        self._device = device
        self.base_address, self.size = description.get("base_address", 0), description.get("size", 0)

    def allocate(self, shape: Any, dtype: Any, **options: Any) -> PynqBuffer:
        return self._device.allocate(shape, dtype, **options)


class SimulatedBoard(Device):  # type: ignore[misc]  # pynq has no types
    """A board with the accelerator's RTL in place of its logic.

    Every buffer has two copies, and only flush and invalidate copy between them; every access of the
    accelerator outside live buffers is reported with channel and address by the next register access.
    """

    _probe_priority_ = 10  # before real boards
    is_simulated = True  # may be loaded with placeholders

    @classmethod
    def _probe_(cls) -> list[SimulatedBoard]:
        settings = Settings.of_environment(os.environ)
        return [cls(find_board(settings.board), settings)]

    def __init__(self, board: Board, settings: Settings) -> None:
        super().__init__(f"simulated_{board.name}")
        self.capabilities = {"REGISTER_RW": True, "MEMORY_MAPPED": False, "CALLABLE": False}
        self.board, self.settings = board, settings
        self.name, self.arch = board.name.upper(), board.arch
        self._system = ProcessingSystem(board)
        self._rtl: SimulatedDevice | None = None
        self._controller: InterruptController | None = None
        self._line: InterruptLine | None = None

    @property
    def simulated(self) -> SimulatedDevice:
        """The accelerator with its simulated clock.

        Raises:
            DeviceError: no bitstream is loaded.

        """
        if self._rtl is None:
            raise DeviceError("no bitstream is loaded on the simulated board")
        return self._rtl

    # What PYNQ calls to load a bitstream.

    def get_bitfile_metadata(self, bitfile_name: str, partial: bool = False) -> Any:
        """Read the .hwh beside a .bit."""
        path = Path(bitfile_name)
        parser = RuntimeMetadataParser(Metadata(input=str(path.with_suffix(".hwh"))))
        parser.mem_dict["PSDDR"] = {
            "raw_type": 2, "used": 1, "base_address": 0, "size": 1 << 31, "type": "DDR4", "streaming": False,
            "idx": 0, "tag": "PSDDR",
        }  # fmt: skip
        parser.refresh_hierarchy_dict()
        parser.bin_data = bit2bin(path.read_bytes())
        return parser

    def download(self, bitstream: Any, parser: Any = None) -> None:
        """Start the RTL that a placeholder names, as it is after power-up."""
        parser = parser or self.get_bitfile_metadata(bitstream.bitfile_name)
        manifest = decode_manifest(parser.bin_data)
        if manifest["board"] != self.board.name:
            raise DeviceError(f"this bitstream is for the board {manifest['board']}, not {self.board.name}")
        config = config_from_mapping(manifest["config"], f"of {bitstream.bitfile_name}")
        if self._rtl is not None:
            self._rtl.close()
        self._rtl = rtl = SimulatedDevice(
            config, self.settings.stalls, host_latency=self.settings.host_latency
        )
        rtl.clock_mhz = self._system.clock_mhz
        self._controller = InterruptController(rtl)
        self._line = InterruptLine(rtl, self._controller)
        EmbeddedDevice.set_axi_port_width(self, parser)
        for details in parser.interrupt_controllers.values():
            _InterruptController._uio_devices[details["raw_irq"]] = self._line
        super().post_download(bitstream, parser, self.name)

    def shutdown(self) -> None:
        """Nothing to shut down."""

    def gen_cache(self, bitstream: Any, parser: Any = None) -> None:
        """Keep nothing."""

    def get_memory(self, description: dict[str, Any]) -> _Memory:
        """Return the DDR."""
        return _Memory(self, description)

    # Registers.

    def read_registers(self, address: int, length: int) -> bytes:
        """Read registers anywhere on the board."""
        words = [self._read(address + offset) for offset in range(0, length, _WORD)]
        return b"".join(word.to_bytes(_WORD, "little") for word in words)[:length]

    def write_registers(self, address: int, data: bytes) -> None:
        """Write registers anywhere on the board."""
        content = bytes(data)
        for offset in range(0, len(content), _WORD):
            self._write(address + offset, int.from_bytes(content[offset : offset + _WORD], "little"))

    def _read(self, address: int) -> int:
        if self._system.owns(address):
            return self._system.read(address)
        if self.board.controller <= address < self.board.controller + _WINDOW:
            assert self._controller is not None, "made with the RTL"
            return self._controller.read(address - self.board.controller)
        self._check()
        return self.simulated.read(self._offset(address))

    def _write(self, address: int, value: int) -> None:
        if self._system.owns(address):
            self._system.write(address, value)
            if self._rtl is not None:
                self._rtl.clock_mhz = self._system.clock_mhz
            return
        if self.board.controller <= address < self.board.controller + _WINDOW:
            assert self._controller is not None, "made with the RTL"
            self._controller.write(address - self.board.controller, value)
        else:
            self._check()
            self.simulated.write(self._offset(address), value)

    def _offset(self, address: int) -> int:
        if not self.board.base <= address < self.board.base + _WINDOW:
            raise DeviceError(
                f"nothing answers at 0x{address:x}: on a board this access would hang the processor"
            )
        return address - self.board.base

    def _check(self) -> None:
        """Raise what the accelerator did wrong meanwhile."""
        self.simulated.simulator.check_protocol()
        if self._line is not None and self._line.error is not None:
            error, self._line.error = self._line.error, None
            raise error

    # Buffers.

    def allocate(self, shape: Any, dtype: Any = "u4", **options: Any) -> PynqBuffer:
        """Reserve DDR that the accelerator may read and write as long as somebody holds the buffer."""
        kind = np.dtype(dtype)
        count = int(np.prod(shape)) * kind.itemsize
        inner = self.simulated.allocate(max(1, count), "both")
        host: NDArray[np.uint8] = inner.array[:count]
        buffer = PynqBuffer(
            shape, kind, buffer=host, device=self, device_address=inner.address, bo=inner, coherent=False
        )
        weakref.finalize(host, inner.free)
        return buffer

    def flush(self, bo: SimulatedBuffer, offset: int, vaddr: int, nbytes: int) -> None:
        """Copy from the host to the DDR."""
        ctypes.memmove(bo.memory.ctypes.data + offset, vaddr, nbytes)

    def invalidate(self, bo: SimulatedBuffer, offset: int, vaddr: int, nbytes: int) -> None:
        """Copy from the DDR to the host."""
        ctypes.memmove(vaddr, bo.memory.ctypes.data + offset, nbytes)
