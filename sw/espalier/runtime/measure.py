"""Measurements and checks of a whole accelerator: throughput, counters of the layers, self test."""

from __future__ import annotations

import io
import time
from collections.abc import Callable
from dataclasses import dataclass
from typing import TYPE_CHECKING, NamedTuple

import numpy as np
import numpy.typing as npt
from rich.console import Console

from espalier.arch.registers import Control
from espalier.errors import DeviceError, EspalierError
from espalier.runtime.layer_table import LAYER_NOTES, LayerResult, layer_results, layer_table

if TYPE_CHECKING:
    from espalier.runtime.accelerator import Accelerator

Bytes = npt.NDArray[np.uint8]
_TABLE_WIDTH = 140


@dataclass(frozen=True)
class Profile:
    """What one picture took. read_bytes, write_bytes: of the accelerator's memory port.

    As text it is the table of `sim run`.
    """

    cycles: int
    read_bytes: int
    write_bytes: int
    clock_mhz: float
    layers: list[LayerResult]
    output: Bytes

    def __str__(self) -> str:
        text = io.StringIO()
        console = Console(file=text, width=_TABLE_WIDTH)
        console.print(layer_table(self.layers))
        for line in (
            *LAYER_NOTES,
            f"total: {self.cycles} cycles, {self.cycles / (1000 * self.clock_mhz):.3f} ms"
            f" at {self.clock_mhz:g} MHz",
            f"memory traffic: {self.read_bytes} bytes read, {self.write_bytes} bytes written",
        ):
            console.print(line, highlight=False, soft_wrap=True)
        return text.getvalue()


class Check(NamedTuple):
    """One step of a self test."""

    name: str
    passed: bool
    detail: str


@dataclass(frozen=True)
class SelfTest:
    """The steps of a self test in order; the test ends with the first that fails."""

    checks: list[Check]

    @property
    def passed(self) -> bool:
        """Whether all of them did."""
        return all(check.passed for check in self.checks)

    def __str__(self) -> str:
        return "\n".join(f"{'ok  ' if c.passed else 'FAIL'} {c.name}: {c.detail}" for c in self.checks)


def measure_throughput(accelerator: Accelerator, count: int) -> dict[str, float]:
    """Run random pictures with `run_many` and time the steps of one; see `Accelerator.throughput_test`."""
    device, image = accelerator.device, accelerator.model.image
    tensors = [accelerator.random_tensor(seed) for seed in range(count)]
    for _ in accelerator.run_many(tensors[:2]):  # buffers are made, nothing is cold
        pass
    begin = device.now()
    for _ in accelerator.run_many(tensors):
        pass
    seconds = device.now() - begin
    pack, copy_in, copy_out, unpack = accelerator.time_copies(tensors[0])
    megabytes = 1e-6 * count / seconds
    return {
        "runtime[ms]": 1000 * seconds,
        "throughput[images/s]": count / seconds,
        "DRAM_in_bandwidth[MB/s]": megabytes * image.input_bytes,
        "DRAM_out_bandwidth[MB/s]": megabytes * image.output_bytes,
        "fclk[mhz]": device.clock_mhz or 0.0,
        "batch_size": count,
        "fold_input[ms]": 0.0,  # tensors are never folded: part of packing
        "pack_input[ms]": 1000 * pack,
        "copy_input_data_to_device[ms]": 1000 * copy_in,
        "copy_output_data_from_device[ms]": 1000 * copy_out,
        "unpack_output[ms]": 1000 * unpack,
        "unfold_output[ms]": 0.0,
    }


def seconds_of(action: Callable[[], object]) -> float:
    """Time an action of the host."""
    begin = time.perf_counter()
    action()
    return time.perf_counter() - begin


def measure_profile(accelerator: Accelerator, tensor: Bytes | None) -> Profile:
    """Run a tensor and read all counters; see `Accelerator.profile`."""
    device, driver, model = accelerator.device, accelerator.driver, accelerator.model
    if not device.has_counters or device.clock_mhz is None:
        raise DeviceError(f"{device.name} counts no cycles: take a profile on a board or in simulation")
    output = accelerator.run(accelerator.random_tensor() if tensor is None else tensor)
    counts, layers = driver.counts(), model.image.metadata.layers
    counters = [driver.layer_counters(layer.index) for layer in layers]
    return Profile(
        cycles=counts.cycles,
        read_bytes=counts.read_beats * model.config.axi_bytes,
        write_bytes=counts.write_beats * model.config.axi_bytes,
        clock_mhz=device.clock_mhz,
        layers=layer_results(model.image.metadata, counters, model.config),
        output=output,
    )


def run_self_test(accelerator: Accelerator) -> SelfTest:
    """Go through the checks until one fails; see `Accelerator.self_test`."""
    checks: list[Check] = []
    steps: tuple[tuple[str, Callable[[Accelerator], str]], ...] = (
        ("identity", _identity),
        ("registers", _registers),
        ("program", _program),
        ("arithmetic", _arithmetic),
        ("repetition", _repetition),
    )
    for name, step in steps:
        try:
            checks.append(Check(name, True, step(accelerator)))
        except EspalierError as error:
            checks.append(Check(name, False, str(error)))
            break
    return SelfTest(checks)


def _identity(accelerator: Accelerator) -> str:
    accelerator.driver.identify()
    return f"{accelerator.device.name} is '{accelerator.model.config.name}'"


def _registers(accelerator: Accelerator) -> str:
    """Every bit of an address register can be written both ways."""
    driver = accelerator.driver
    driver.reset()
    for value in (0x55555550, 0xAAAAAAA0, 0):
        driver.write("INPUT_ADDRESS", value)
        if (found := driver.read("INPUT_ADDRESS")) != value:
            raise DeviceError(f"INPUT_ADDRESS was written 0x{value:08x} and reads 0x{found:08x}")
    return "written and read back"


def _program(accelerator: Accelerator) -> str:
    accelerator.driver.reset()
    accelerator.driver.start(Control.START, "starting without a program")
    try:
        accelerator.driver.finish(0.0)
    except DeviceError as error:
        if "NOT_LOADED" not in str(error):
            raise
    else:
        raise DeviceError("a START without a program is no error")
    accelerator.run(accelerator.random_tensor())
    return f"{len(accelerator.model.image.program)} bytes loaded"


def _arithmetic(accelerator: Accelerator) -> str:
    tensor = accelerator.random_tensor(1)
    found, expected = accelerator.run(tensor), accelerator.model.reference()(tensor)
    if (wrong := int((found != expected).sum())) > 0:
        raise DeviceError(f"{wrong} of {found.size} values differ from the integer model")
    return f"{found.size} values equal the integer model"


def _repetition(accelerator: Accelerator) -> str:
    tensors = [accelerator.random_tensor(seed) for seed in (2, 3)]
    first = [accelerator.run(tensor) for tensor in tensors]
    for tensor, output in zip(tensors * 2, accelerator.run_many(tensors * 2), strict=True):
        index = 0 if tensor is tensors[0] else 1
        if not np.array_equal(output, first[index]):
            raise DeviceError("the same tensor gives another output when several run one after the other")
    return "equal tensors give equal outputs, one by one and in a row"
