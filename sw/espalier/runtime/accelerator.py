"""The API for users: a network on an accelerator, wherever that is. NumPy in, NumPy out."""

from __future__ import annotations

import warnings
from collections.abc import Iterable, Iterator
from pathlib import Path
from types import TracebackType
from typing import Any, NamedTuple

import numpy as np
import numpy.typing as npt
from PIL import Image

from espalier.arch.registers import Control
from espalier.backend.image import ProgramImage
from espalier.errors import DeviceError, DeviceTimeout, TensorError
from espalier.ir.graph import IntegerGraph
from espalier.runtime.device import Buffer, Device
from espalier.runtime.driver import Driver
from espalier.runtime.measure import (
    Profile,
    SelfTest,
    measure_profile,
    measure_throughput,
    run_self_test,
    seconds_of,
)
from espalier.runtime.model import BufferSpec, Model, load_model
from espalier.runtime.open_device import open_device
from espalier.runtime.preprocess import Preprocessing, resize_picture
from espalier.runtime.tiles import TileBuffer

Bytes = npt.NDArray[np.uint8]
_SLOTS = 2  # one picture is prepared while another one runs
_STRANDED: list[Buffer] = []


class Score(NamedTuple):
    """A class and its real-valued score."""

    label: str
    score: float


class _Slot:
    """The buffers of one picture, used again and again."""

    def __init__(self, device: Device, specs: Iterable[BufferSpec], model: Model) -> None:
        self.buffers = {spec.register: device.allocate(spec.count, spec.access) for spec in specs}
        size = model.config.tile_size
        self.input = TileBuffer(self.buffers["INPUT"].array, model.image.input, size)
        self.output = TileBuffer(self.buffers["OUTPUT"].array, model.image.output, size)
        self.input.clear()


class Accelerator:
    """A network on an accelerator; a context manager. One thread at a time may use it.

    model: a compiled image or its file; or a compressed network, its .espalier file or the name of a built-in
    one, compiled for `target` first. device: a .bit file or an `EspalierOverlay` (a PYNQ board), "integer"
    (the integer model, no hardware), or any `Device`. interrupt: wait for interrupts; otherwise poll, as also
    where interrupts get lost. timeout: seconds that a command may take; None: derived from the prediction.

    Raises:
        ModelFileError: the model is missing, damaged, or compiled for other hardware.
        DeviceError: the device is missing, busy, or other hardware than the model is compiled for.

    """

    def __init__(
        self,
        model: Model | ProgramImage | IntegerGraph | str | Path,
        device: Any,
        *,
        target: str | None = None,
        interrupt: bool = True,
        timeout: float | None = None,
    ) -> None:
        self._target, self._interrupt, self._timeout = target, interrupt, timeout
        self._buffers: dict[str, Buffer] = {}
        self._slots: list[_Slot] = []
        self._running: _Slot | None = None
        self.last_cycles = 0  # clock cycles of the last picture; 0 where none are counted
        loaded = load_model(model, target)
        self.device, self._opened = open_device(device, loaded)
        try:
            self.load(loaded)
        except BaseException:
            self.close()
            raise

    def __enter__(self) -> Accelerator:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, where: TracebackType | None
    ) -> None:
        self.close()

    def load(self, model: Model | ProgramImage | IntegerGraph | str | Path) -> None:
        """Run this network from now on.

        Raises:
            ModelFileError, DeviceError: as when the accelerator was made.

        """
        self._check_idle()
        loaded = load_model(model, self._target)
        driver = Driver(self.device, loaded.config, self._interrupt)
        driver.identify()
        driver.reset()
        learn = getattr(self.device, "learn", None)
        if learn is not None:
            learn(loaded)
        self._free()
        self.model, self.driver = loaded, driver
        driver.layers = [layer.name for layer in loaded.image.metadata.layers]
        self._shared = {spec.register: spec for spec in loaded.buffers() if not spec.per_picture}
        for spec in self._shared.values():
            self._buffers[spec.register] = self.device.allocate(spec.count, spec.access)
        self._ready()

    def close(self) -> None:
        """Free buffers and device; a picture that is still running is aborted. A second call does nothing."""
        driver = getattr(self, "driver", None)
        try:
            if driver is not None and not driver.idle:
                driver.reset()
            self._free()
        except DeviceTimeout as error:
            # It may still write there, so that the memory stays taken as long as this process lives.
            _STRANDED.extend([*self._buffers.values(), *(b for s in self._slots for b in s.buffers.values())])
            warnings.warn(str(error), RuntimeWarning, stacklevel=2)
        self._running = None
        if self._opened:
            self._opened = False
            self.device.close()

    @property
    def name(self) -> str:
        """Network and device, for messages."""
        return f"{self.model.name} on {self.device.name}"

    @property
    def input_shape(self) -> tuple[int, int, int]:
        """Channels, height and width that `run` takes."""
        info = self.model.image.input
        return info.channels, info.height, info.width

    @property
    def output_shape(self) -> tuple[int, int, int]:
        """Channels, height and width that `run` returns."""
        info = self.model.image.output
        return info.channels, info.height, info.width

    def prepare(self, picture: str | Path | Image.Image | Bytes) -> Bytes:
        """Make a tensor for `run` of a picture: a file, a PIL image or uint8[height, width, colours].

        Raises:
            PictureError: the picture is missing or unreadable, or the network takes no pictures.
            TensorError: an array of another type or shape.

        """
        image = self.model.image
        rules = Preprocessing.of(image.metadata.preprocessing, image.input)
        if isinstance(picture, (str, Path)):
            return rules.input_tensor(picture)
        colours = len(rules.mean)
        if isinstance(picture, np.ndarray):
            if (
                picture.dtype != np.uint8
                or picture.ndim != 3
                or picture.shape[2] != colours
                or not picture.size
            ):
                raise TensorError(
                    f"a picture is {picture.dtype}{list(picture.shape)}, expected uint8[height, width,"
                    f" {colours}]"
                )
            if picture.shape[:2] == rules.size:
                return self._quantised(rules, picture)
            picture = Image.fromarray(picture if colours > 1 else picture[..., 0])
        pixels = resize_picture(picture.convert("L" if colours == 1 else "RGB"), rules.size, rules.rule)
        return self._quantised(rules, pixels)

    @staticmethod
    def _quantised(rules: Preprocessing, pixels: Bytes) -> Bytes:
        tensor: Bytes = rules.quantise(pixels[None])[0]
        return tensor

    def classify(self, picture: str | Path | Image.Image | Bytes, best: int = 5) -> list[Score]:
        """Return the best classes of a picture (see `prepare`), the best first.

        Raises:
            PictureError, TensorError: from `prepare`, or the network is no classifier.
            DeviceFault: from `run`.

        """
        if self.output_shape[1:] != (1, 1):
            raise TensorError(
                f"'{self.model.name}' returns maps of {list(self.output_shape)}, no classes: use `run`"
            )
        scores = self.scores(self.run(self.prepare(picture)))
        labels = self.model.image.metadata.labels
        order = np.argsort(-scores, kind="stable")[:best]
        return [
            Score(labels[index] if index < len(labels) else str(index), float(scores[index]))
            for index in order.tolist()
        ]

    def scores(self, output: Bytes) -> npt.NDArray[np.float64]:
        """Real values of what `run` returned, float64[channels] or float64[channels, height, width]."""
        info = self.model.image.output
        values = (output.astype(np.float64) - info.zero_point) * info.scale
        return values.reshape(-1) if self.output_shape[1:] == (1, 1) else values

    def run(self, tensor: Bytes) -> Bytes:
        """Run one tensor of stored values uint8[channels, height, width]; the output likewise.

        Raises:
            TensorError: another type or shape.
            DeviceFault: the accelerator reports an error or does not answer in time; the next call starts
                afresh.

        """
        self._check_idle()
        self._ready()
        slot = self._slot(0)
        slot.input.write(tensor)
        self._start(slot)
        self._finish()
        return self._output(slot)

    async def run_async(self, tensor: Bytes) -> Bytes:
        """Do as `run`, while other coroutines run."""
        self._check_idle()
        self._ready()
        slot = self._slot(0)
        slot.input.write(tensor)
        self._start(slot)
        try:
            await self.driver.finish_async(self._expected(), self._timeout)
        finally:
            self._ended()
        return self._output(slot)

    def run_many(self, tensors: Iterable[Bytes]) -> Iterator[Bytes]:
        """Run tensors one after the other and yield the outputs; one is prepared while the one before runs.

        Nothing else can be run before the last output was taken or the iteration was given up.

        Raises:
            TensorError, DeviceFault: as `run`, at the tensor that is to blame.

        """
        self._check_idle()
        self._ready()
        before: _Slot | None = None
        try:
            for number, tensor in enumerate(tensors):
                slot = self._slot(number % _SLOTS)
                slot.input.write(tensor)
                if before is not None:
                    self._finish()
                self._start(slot)
                if before is not None:
                    yield self._output(before)
                before = slot
            if before is not None:
                self._finish()
                yield self._output(before)
        finally:
            if self._running is not None:
                self._finish()

    def throughput_test(self, count: int = 16) -> dict[str, float]:
        """Measure random pictures one after the other; the keys are those of FINN's drivers.

        Times are those of the device's clock: of the wall on a board, simulated on a simulated one.
        """
        return measure_throughput(self, count)

    def profile(self, tensor: Bytes | None = None) -> Profile:
        """Run a tensor (None: a random one) and read the counters of every layer.

        Raises:
            DeviceError: the device has no counters.

        """
        return measure_profile(self, tensor)

    def self_test(self) -> SelfTest:
        """Check registers, program, memory and arithmetic; outputs are compared with the integer model."""
        return run_self_test(self)

    def random_tensor(self, seed: int = 0) -> Bytes:
        """Draw an input of random stored values."""
        return np.random.default_rng(seed).integers(0, 256, self.input_shape, dtype=np.uint8)

    def time_copies(self, tensor: Bytes) -> tuple[float, float, float, float]:
        """Seconds of the host: packing a tensor, flushing it, invalidating the output, unpacking it."""
        self._check_idle()
        self._ready()
        slot = self._slot(0)
        return (
            seconds_of(lambda: slot.input.write(tensor)),
            seconds_of(slot.buffers["INPUT"].flush),
            seconds_of(slot.buffers["OUTPUT"].invalidate),
            seconds_of(slot.output.read),
        )

    def _check_idle(self) -> None:
        if self._running is not None and not self.driver.idle:
            raise DeviceError(
                f"{self.name}: a picture is still running; take the outputs of `run_many` first"
            )

    def _ready(self) -> None:
        """Make sure that the own program is loaded and nothing runs."""
        if not self.driver.idle:
            self.driver.reset()
            self._free_slots()  # whatever went wrong, it was not with new buffers
        if self.device.owner is not self:
            self._load_program()

    def _load_program(self) -> None:
        content = self.model.image.program
        program = self._buffers["PROGRAM"]
        program.array[: len(content)] = np.frombuffer(content, np.uint8)
        program.array[len(content) :] = 0
        program.flush()
        self.driver.load(program, self._shared["PROGRAM"].count, self)
        for register, buffer in self._buffers.items():
            self.driver.point(register, buffer)

    def _slot(self, number: int) -> _Slot:
        while len(self._slots) <= number:
            specs = [spec for spec in self.model.buffers() if spec.per_picture]
            self._slots.append(_Slot(self.device, specs, self.model))
        return self._slots[number]

    def _start(self, slot: _Slot) -> None:
        slot.buffers["INPUT"].flush()
        for register, buffer in slot.buffers.items():
            self.driver.point(register, buffer)
        self._running = slot
        self.driver.start(Control.START, f"running {self.model.name}")

    def _expected(self) -> float:
        return self.driver.seconds(self.model.image.metadata.predicted_cycles)

    def _finish(self) -> None:
        try:
            self.driver.finish(self._expected(), self._timeout)
        finally:
            self._ended()

    def _ended(self) -> None:
        self._running = None
        if self.driver.idle and self.device.has_counters:
            self.last_cycles = self.driver.read("CYCLES")

    def _output(self, slot: _Slot) -> Bytes:
        slot.buffers["OUTPUT"].invalidate()
        return slot.output.read()

    def _free_slots(self) -> None:
        for slot in self._slots:
            for buffer in slot.buffers.values():
                buffer.free()
        self._slots.clear()

    def _free(self) -> None:
        self._free_slots()
        for buffer in self._buffers.values():
            buffer.free()
        self._buffers.clear()
        if getattr(self, "device", None) is not None and self.device.owner is self:
            self.device.owner = None
