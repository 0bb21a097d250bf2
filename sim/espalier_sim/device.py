"""The simulated accelerator: loads program images and runs pictures through the RTL."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field
from pathlib import Path
from types import TracebackType
from typing import Any

import numpy as np
from numpy.typing import NDArray

from espalier.arch.config import ARCH_VERSION, HardwareConfig
from espalier.arch.feature_layout import tile_pixels
from espalier.arch.registers import COUNTER_BASE, COUNTERS, MAGIC, Control, ErrorCode, Status
from espalier.backend.image import ProgramImage, check_hardware
from espalier.errors import InternalError
from espalier_sim.build import BuiltSimulator, build_simulator
from espalier_sim.progress import Progress, silent
from espalier_sim.simulator import CHUNK_CYCLES, HardwareFault, Simulator
from espalier_sim.trace import written_words
from espalier_sim.verilog import accelerator_verilog

PATIENCE_CYCLES = 50_000  # without any transfer or write: the accelerator hangs
CYCLE_LIMIT = 20_000_000  # of one command
_UNTOUCHED = 0xEE  # what the output buffer holds before a run
_PAGE = 4096
_MEMORY_BYTES = 1 << 30  # address space only; the host allocates pages that are touched


@dataclass(frozen=True)
class Inference:
    """What one call returned and what the hardware counted meanwhile.

    cycles: CYCLES register. counters: one mapping per layer, see `espalier.arch.registers.COUNTERS`.
    """

    output: bytes
    cycles: int
    read_bytes: int
    write_bytes: int
    counters: list[dict[str, int]]
    trace: NDArray[Any] = field(repr=False)


class SimulatedAccelerator:
    """The accelerator of `config` in the compiled simulator; a context manager.

    stalls: seed of random stalls on every AXI channel; None: none. With stalls the buffers also lie at
    addresses that are not page aligned. waves: .vcd or .fst file to write.
    built: a simulator built before; otherwise it is taken from the cache or built.
    """

    def __init__(
        self,
        config: HardwareConfig,
        stalls: int | None = None,
        waves: Path | None = None,
        progress: Progress = silent,
        built: BuiltSimulator | None = None,
    ) -> None:
        self.config, self._progress = config, progress
        if built is None:
            kind = waves.suffix[1:] if waves else ""
            built = build_simulator(accelerator_verilog(config, progress), config, kind, progress)
        self.built = built
        self.simulator = Simulator(built.library, config, _MEMORY_BYTES)
        self._shift = 0 if stalls is None else 0xFD0
        self._image: ProgramImage | None = None
        self.load_cycles = 0  # of the last program load
        self._free = 0
        try:
            if waves:
                self.simulator.open_waves(waves)
            self.simulator.seed_stalls(stalls)
            self.simulator.reset()
            self._identify()
        except BaseException:
            self.close()
            raise

    def __enter__(self) -> SimulatedAccelerator:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, where: TracebackType | None
    ) -> None:
        self.close()

    def close(self) -> None:
        """End the simulation and free its memory."""
        self.simulator.close()

    def load(self, image: ProgramImage) -> None:
        """Copy a program image into DDR and let the accelerator read it.

        Raises:
            ModelFileError: the image was compiled for other hardware.
            HardwareFault: the accelerator reports an error, hangs or breaks a bus rule.

        """
        check_hardware(image, self.config, f"'{image.metadata.network}'")
        self._image, self._free = None, 0
        program = image.program + bytes(-len(image.program) % self.config.axi_bytes)
        address = self._buffer("readable", len(program))
        self._set_address("PROGRAM", address)
        self.simulator.write("PROGRAM_BYTES", len(program))
        self._memory(address, len(program))[:] = np.frombuffer(program, np.uint8)
        self._command(Control.LOAD, lambda: "loading the program")
        if not self.simulator.read("STATUS") & Status.LOADED:
            raise HardwareFault("LOADED is not set after the program was loaded")
        self.load_cycles = self.simulator.read("CYCLES")
        self._image, self._after_program = image, self._free

    def infer(self, content: bytes) -> Inference:
        """Run one picture; `content`: the input tensor as it lies in DDR, `ProgramImage.input_bytes` long."""
        image = self._image
        if image is None:
            raise InternalError("no program image is loaded")
        if len(content) != image.input_bytes:
            raise InternalError(f"input has {len(content)} bytes, expected {image.input_bytes}")
        self._free = self._after_program
        source = self._buffer("readable", image.input_bytes)
        target = self._buffer("writable", image.output_bytes)
        self._memory(source, len(content))[:] = np.frombuffer(content, np.uint8)
        self._memory(target, image.output_bytes)[:] = _UNTOUCHED
        self._set_address("INPUT", source)
        self._set_address("OUTPUT", target)
        self.simulator.start_trace()
        names = [layer.name for layer in image.metadata.layers]
        self._command(Control.START, lambda: self._position(names))
        beats = [self.simulator.read(f"{kind}_BEATS") for kind in ("READ", "WRITE")]
        return Inference(
            output=self._memory(target, image.output_bytes).tobytes(),
            cycles=self.simulator.read("CYCLES"),
            read_bytes=beats[0] * self.config.axi_bytes,
            write_bytes=beats[1] * self.config.axi_bytes,
            counters=[self._counters(layer.index) for layer in image.metadata.layers],
            trace=self.simulator.trace(),
        )

    def layer_output(self, inference: Inference, layer: int) -> NDArray[np.uint8]:
        """Return what layer number `layer` wrote in that call: uint8[channels, height, width]."""
        assert self._image is not None, "an inference belongs to an image"
        record = next(item for item in self._image.metadata.layers if item.index == layer)
        info = self._image.metadata.tensors[record.output]
        return tile_pixels(written_words(inference.trace, layer, info, self.config), info.height, info.width)

    def _identify(self) -> None:
        expected = {"MAGIC": MAGIC, "VERSION": ARCH_VERSION, "CONFIG_HASH": self.config.hash}
        for name, value in expected.items():
            if (found := self.simulator.read(name)) != value:
                raise HardwareFault(f"register {name} reads 0x{found:08x}, expected 0x{value:08x}")
        self.simulator.write("INTERRUPT_ENABLE", 1)

    def _buffer(self, kind: str, count: int) -> int:
        """Reserve DDR behind what is in use, now the only range open for `kind`; return its address."""
        start = -(-self._free // _PAGE) * _PAGE + self._shift
        self._free = start + count
        if self._free > self.simulator.memory_bytes:
            raise InternalError(f"the simulated memory has {self.simulator.memory_bytes} bytes only")
        address = self.simulator.memory_base + start
        self.simulator.allow(kind, address, count)
        return address

    def _memory(self, address: int, count: int) -> NDArray[np.uint8]:
        start = address - self.simulator.memory_base
        return self.simulator.memory[start : start + count]

    def _set_address(self, name: str, address: int) -> None:
        self.simulator.write(f"{name}_ADDRESS", address & 0xFFFFFFFF)
        self.simulator.write(f"{name}_ADDRESS_HIGH", address >> 32)

    def _position(self, names: list[str]) -> str:
        layer = self.simulator.read("LAYER")
        name = names[layer] if layer < len(names) else ""
        return f"simulating layer {layer + 1} of {len(names)} ({name}), cycle {self.simulator.read('CYCLES')}"

    def _command(self, command: Control, describe: Callable[[], str]) -> None:
        """Give a command, wait for its interrupt, check what came of it."""
        simulator = self.simulator
        simulator.begin_ddr()
        simulator.write("CONTROL", command)
        begin = simulator.cycle
        while not simulator.run(CHUNK_CYCLES, PATIENCE_CYCLES):
            if simulator.cycle - begin > CYCLE_LIMIT:
                raise HardwareFault(f"not finished after {CYCLE_LIMIT} cycles: {simulator.describe()}")
            self._progress(describe())
        simulator.check_protocol()
        status = simulator.read("STATUS")
        if status & Status.ERROR:
            code = simulator.read("ERROR_CODE")
            name = ErrorCode(code).name if code in ErrorCode._value2member_map_ else str(code)
            state = simulator.describe()
            simulator.write("CONTROL", Control.CLEAR_INTERRUPT)
            raise HardwareFault(f"the accelerator reports error {name}: {state}")
        if not status & Status.DONE or status & Status.BUSY:
            raise HardwareFault(f"interrupt without DONE: {simulator.describe()}")
        simulator.write("CONTROL", Control.CLEAR_INTERRUPT)
        simulator.idle(4)
        if simulator.interrupt:
            raise HardwareFault("CLEAR_INTERRUPT does not clear the interrupt")

    def _counters(self, layer: int) -> dict[str, int]:
        base = COUNTER_BASE + 4 * len(COUNTERS) * layer
        return {name: self.simulator.read(base + 4 * i) for i, (name, _) in enumerate(COUNTERS)}
