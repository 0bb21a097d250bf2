"""The API for users: a network on an accelerator, wherever that is. NumPy in, NumPy out."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from pathlib import Path
from types import TracebackType
from typing import Any, NamedTuple

import numpy as np
import numpy.typing as npt
from PIL import Image

from espalier.backend.image import ProgramImage
from espalier.errors import DeviceError, TensorError
from espalier.ir.graph import IntegerGraph
from espalier.runtime.driver import Driver
from espalier.runtime.measure import (
    Profile,
    SelfTest,
    measure_profile,
    measure_throughput,
    run_self_test,
    seconds_of,
)
from espalier.runtime.model import Model, load_model
from espalier.runtime.open_device import open_device
from espalier.runtime.preprocess import Preprocessing, resize_picture
from espalier.runtime.session import Session, Slot

Bytes = npt.NDArray[np.uint8]
_SLOTS = 2  # one picture is prepared while another one runs


class Score(NamedTuple):
    """A class and its real-valued score."""

    label: str
    score: float


class Accelerator:
    """A network on an accelerator; a context manager. One thread at a time may use it.

    model: a compiled image or its file; or a compressed network, its .espalier file or the name of a built-in
    one, compiled for `target` first. device: a .bit file or an `EspalierOverlay` (a PYNQ board), "integer"
    (the integer model, no hardware), or any `Device`. interrupt: wait for interrupts, which leaves the
    processor to others; otherwise, and where interrupts get lost, poll, which takes less time. timeout:
    seconds that a command may take; None: derived from the prediction.

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
        interrupt: bool = False,
        timeout: float | None = None,
    ) -> None:
        self._target, self._interrupt, self._timeout = target, interrupt, timeout
        loaded = load_model(model, target)
        self.device, self._opened = open_device(device, loaded)
        self.session: Session | None = None
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
        loaded = load_model(model, self._target)
        if self.session is not None:
            self.session.check_idle()
        session = Session(self.device, loaded, self._interrupt, self._timeout)
        if self.session is not None:
            self.session.close()
        self.session = session
        session.ready()

    def close(self) -> None:
        """Free buffers and device; a picture that is still running is aborted. A second call does nothing."""
        session, self.session = self.session, None
        if session is not None:
            session.close()
        if self._opened:
            self._opened = False
            self.device.close()

    @property
    def open_session(self) -> Session:
        """What runs the model: driver and buffers.

        Raises:
            DeviceError: the accelerator was closed.

        """
        if self.session is None:
            raise DeviceError(f"the accelerator on {self.device.name} is closed")
        return self.session

    @property
    def model(self) -> Model:
        """The network."""
        return self.open_session.model

    @property
    def driver(self) -> Driver:
        """The driver of the registers."""
        return self.open_session.driver

    @property
    def last_cycles(self) -> int:
        """Clock cycles of the last picture; 0 where none are counted."""
        return self.open_session.last_cycles

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
        session, slot = self._prepared(tensor)
        session.start(slot)
        session.finish()
        return session.output(slot)

    async def run_async(self, tensor: Bytes) -> Bytes:
        """Do as `run`, while other coroutines run."""
        session, slot = self._prepared(tensor)
        session.start(slot)
        await session.finish_async()
        return session.output(slot)

    def run_many(self, tensors: Iterable[Bytes]) -> Iterator[Bytes]:
        """Run tensors one after the other and yield the outputs; one is prepared while the one before runs.

        Nothing else can be run before the last output was taken or the iteration was given up.

        Raises:
            TensorError, DeviceFault: as `run`, at the tensor that is to blame.

        """
        session = self._ready()
        before: Slot | None = None
        try:
            for number, tensor in enumerate(tensors):
                slot = session.slot(number % _SLOTS)
                slot.input.write(tensor)
                if before is not None:
                    session.finish()
                session.start(slot)
                if before is not None:
                    yield session.output(before)
                before = slot
            if before is not None:
                session.finish()
                yield session.output(before)
        finally:
            session.finish_running()

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
        session = self._ready()
        slot = session.slot(0)
        return (
            seconds_of(lambda: slot.input.write(tensor)),
            seconds_of(slot.buffers["INPUT"].flush),
            seconds_of(slot.buffers["OUTPUT"].invalidate),
            seconds_of(slot.output.read),
        )

    def _ready(self) -> Session:
        session = self.open_session
        session.check_idle()
        session.ready()
        return session

    def _prepared(self, tensor: Bytes) -> tuple[Session, Slot]:
        session = self._ready()
        slot = session.slot(0)
        slot.input.write(tensor)
        return session, slot
