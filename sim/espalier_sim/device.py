"""The simulated accelerator for checks: runs pictures through the RTL and keeps what every layer wrote."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path
from types import TracebackType
from typing import Any

import numpy as np
from numpy.typing import NDArray

from espalier.arch.config import HardwareConfig
from espalier.arch.feature_layout import tile_pixels
from espalier.arch.registers import Control
from espalier.backend.image import ProgramImage, check_hardware
from espalier.errors import DeviceError, InternalError
from espalier.runtime.driver import Driver
from espalier.runtime.model import Model
from espalier_sim.build import BuiltSimulator
from espalier_sim.progress import Progress, silent
from espalier_sim.rtl_device import SimulatedBuffer, SimulatedDevice
from espalier_sim.simulator import HardwareFault
from espalier_sim.trace import written_words

CYCLE_LIMIT = 20_000_000  # of one command
_UNTOUCHED = 0xEE  # what the output buffer holds before a run


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
    """The driver on a `SimulatedDevice`, with a trace of the feature memory; a context manager.

    The arguments are those of `SimulatedDevice`.
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
        self.device = SimulatedDevice(config, stalls, waves=waves, progress=progress, built=built)
        self.device.progress = self._report
        self.simulator = self.device.simulator
        self._image: ProgramImage | None = None
        self._buffers: dict[str, SimulatedBuffer] = {}
        self.load_cycles = 0  # of the last program load
        self._driver = Driver(self.device, config, interrupt=True)
        try:
            with _hardware_faults():
                self._driver.identify()
                self._driver.reset()
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
        self.device.close()

    def load(self, image: ProgramImage) -> None:
        """Copy a program image into DDR and let the accelerator read it.

        Raises:
            ModelFileError: the image was compiled for other hardware.
            HardwareFault: the accelerator reports an error, hangs or breaks a bus rule.

        """
        check_hardware(image, self.config, f"'{image.metadata.network}'")
        self._image = None
        for buffer in self._buffers.values():
            buffer.free()
        specs = Model(image, self.config).buffers()
        self._buffers = {spec.register: self.device.allocate(spec.count, spec.access) for spec in specs}
        self._driver.layers = [layer.name for layer in image.metadata.layers]
        program = self._buffers["PROGRAM"]
        program.array[:] = 0
        program.array[: len(image.program)] = np.frombuffer(image.program, np.uint8)
        program.flush()
        with _hardware_faults():
            self._driver.load(program, image.load_bytes, self, self._limit)
        self.load_cycles = self._driver.read("CYCLES")
        self._image = image

    def infer(self, content: bytes) -> Inference:
        """Run one picture; `content`: the input tensor as it lies in DDR, `ProgramImage.input_bytes` long."""
        image = self._image
        if image is None:
            raise InternalError("no program image is loaded")
        if len(content) != image.input_bytes:
            raise InternalError(f"input has {len(content)} bytes, expected {image.input_bytes}")
        source, target = self._buffers["INPUT"], self._buffers["OUTPUT"]
        source.array[:] = np.frombuffer(content, np.uint8)
        target.array[:] = _UNTOUCHED
        for register, buffer in self._buffers.items():
            buffer.flush()
            self._driver.point(register, buffer)
        self.simulator.start_trace()
        with _hardware_faults():
            self._driver.start(Control.START, f"running {image.metadata.network}")
            self._driver.finish(self._limit, self._limit)
        self.simulator.idle(4)
        if self.simulator.interrupt:
            raise HardwareFault("CLEAR_INTERRUPT does not clear the interrupt")
        counts = self._driver.counts()
        target.invalidate()
        return Inference(
            output=target.array.tobytes(),
            cycles=counts.cycles,
            read_bytes=counts.read_beats * self.config.axi_bytes,
            write_bytes=counts.write_beats * self.config.axi_bytes,
            counters=[self._driver.layer_counters(layer.index) for layer in image.metadata.layers],
            trace=self.simulator.trace(),
        )

    def layer_output(self, inference: Inference, layer: int) -> NDArray[np.uint8]:
        """Return what layer number `layer` wrote in that call: uint8[channels, height, width]."""
        assert self._image is not None, "an inference belongs to an image"
        record = next(item for item in self._image.metadata.layers if item.index == layer)
        info = self._image.metadata.tensors[record.output]
        return tile_pixels(written_words(inference.trace, layer, info, self.config), info.height, info.width)

    def buffer(self, register: str) -> SimulatedBuffer:
        """Buffer in DDR of the loaded program whose address is in `register`_ADDRESS."""
        return self._buffers[register]

    @property
    def _limit(self) -> float:
        return self._driver.seconds(CYCLE_LIMIT)

    def _report(self, where: str) -> None:
        if self._image is None:
            self._progress("loading the program")
            return
        layers = self._image.metadata.layers
        layer = self._driver.read("LAYER")
        name = layers[layer].name if layer < len(layers) else ""
        self._progress(f"simulating layer {layer + 1} of {len(layers)} ({name}), {where}")


@contextmanager
def _hardware_faults() -> Iterator[None]:
    """In a simulation the hardware is to blame for what a driver reports."""
    try:
        yield
    except DeviceError as error:
        raise HardwareFault(str(error)) from error
