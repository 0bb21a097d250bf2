"""Everything that can go wrong between driver and accelerator: the report is right, the next call works."""

from __future__ import annotations

import asyncio

import numpy as np
import pytest
from driver_networks import CONFIG, classifier

from espalier import numerics
from espalier.arch.registers import REGISTERS, Control, Status, offset_of
from espalier.backend.compiler import lower_integer_graph
from espalier.errors import DeviceFault, DeviceTimeout, ModelFileError
from espalier.runtime import Accelerator
from espalier_sim.rtl_device import SimulatedDevice
from espalier_sim.simulator import HardwareFault

pytestmark = pytest.mark.xdist_group("tiny")
MODEL = classifier(layers=3, filters=12)
# In reports of a run that hangs.
DOING = (
    r"while running classifier0: STATUS BUSY\+LOADED, LAYER \d+ \([\w.]+\), STATE 0x\w+ \(sequencer \d+,"
    r" DMA \d+\), \d+ cycles, \d+ beats read and \d+ written"
)


class Faulty(SimulatedDevice):
    """A device with `plans` for its next waits, one callable each; without any it waits itself."""

    def __init__(self, *arguments, **options):
        super().__init__(*arguments, **options)
        self.plans = []

    def wait(self, seconds):
        return self.plans.pop(0)(seconds) if self.plans else super().wait(seconds)

    def cycles_later(self, cycles, action):
        """A wait in which something happens after some cycles."""

        def plan(seconds):
            self.simulator.idle(cycles)
            action()
            return SimulatedDevice.wait(self, seconds)

        return plan


@pytest.fixture
def device(tiny_simulator):
    with Faulty(CONFIG, built=tiny_simulator) as simulated:
        yield simulated


def check(accelerator, seed=0):
    tensor = accelerator.random_tensor(seed)
    graph = accelerator.model.graph
    expected = numerics.run(lower_integer_graph(graph, CONFIG), tensor)[
        accelerator.model.image.metadata.output
    ]
    assert np.array_equal(accelerator.run(tensor), expected)


def test_memory_that_never_answers(device):
    with Accelerator(MODEL, device, interrupt=True) as accelerator:
        check(accelerator)
        device.simulator.silence_memory(True)
        with pytest.raises(DeviceTimeout, match=DOING) as caught:
            accelerator.run(accelerator.random_tensor())
        text = str(caught.value)
        assert "makes no progress for 50000 cycles" in text and "AR valid 1 ready 0" in text
        assert "does not come out of a reset: its memory owes it answers" in text
        with pytest.raises(DeviceTimeout, match="does not come out of a reset"):
            accelerator.run(accelerator.random_tensor())
        device.simulator.silence_memory(False)
        check(accelerator)
        check(accelerator, 1)


def test_a_hang_in_mid_run_names_the_layer(device):
    layers = [layer.name for layer in MODEL.image.metadata.layers]
    with Accelerator(MODEL, device, interrupt=True) as accelerator:
        check(accelerator)
        middle = accelerator.last_cycles // 2
        # The core hangs, not the bus: the accelerator waits for output words that the memory never takes.
        device.plans = [device.cycles_later(middle, lambda: device.simulator.silence_memory(True))]
        with pytest.raises(DeviceTimeout) as caught:
            accelerator.run(accelerator.random_tensor())
        assert any(f"({name})" in str(caught.value) for name in layers[1:]), caught.value
        device.simulator.silence_memory(False)
        check(accelerator)


def test_a_time_out_while_polling(device):
    with Accelerator(MODEL, device, interrupt=False, timeout=1e-5) as accelerator:
        with pytest.raises(
            DeviceTimeout, match=r"has not finished in 1e-05 s while .*it was reset, and the next"
        ):
            accelerator.run(accelerator.random_tensor())
        accelerator.session.timeout = None
        check(accelerator)


@pytest.mark.parametrize("interrupt", [True, False])
def test_bus_errors(device, interrupt):
    simulator = device.simulator
    with Accelerator(MODEL, device, interrupt=interrupt) as accelerator:
        for seed in range(2):
            simulator.allow("faulty", simulator.memory_base, simulator.memory_bytes)
            with pytest.raises(
                DeviceFault, match=r"error AXI_READ while running classifier0: STATUS .*ERROR"
            ):
                accelerator.run(accelerator.random_tensor())
            with pytest.raises(DeviceFault, match="error AXI_READ while loading the program"):
                accelerator.run(accelerator.random_tensor())
            simulator.allow("faulty", 0, 0)
            check(accelerator, seed)
        output = accelerator.session.slot(0).buffers["OUTPUT"]
        simulator.allow("faulty", output.address, len(output.array))
        with pytest.raises(DeviceFault, match="error AXI_WRITE"):
            accelerator.run(accelerator.random_tensor())
        simulator.allow("faulty", 0, 0)
        check(accelerator)


def test_a_lost_interrupt_costs_a_warning_and_polling_goes_on(device):
    def lost(seconds):
        device.simulator.idle(device._cycles(seconds))
        return False

    with Accelerator(MODEL, device, interrupt=True) as accelerator:
        device.plans = [lost]
        with pytest.warns(RuntimeWarning, match="no interrupt has come although the command is done"):
            check(accelerator)
        assert not accelerator.driver.interrupt and device.read(offset_of("INTERRUPT_ENABLE")) == 0
        check(accelerator, 1)


def test_early_interrupts_are_no_results(device):
    with Accelerator(MODEL, device, interrupt=True) as accelerator:
        for count in (1, 2, 5):
            device.plans = [lambda seconds: True] * count
            check(accelerator, count)
            device.plans = []
        assert accelerator.driver.interrupt


@pytest.mark.parametrize("interrupt", [True, False])
def test_a_reset_by_somebody_else(device, interrupt):
    with Accelerator(MODEL, device, interrupt=interrupt) as accelerator:
        check(accelerator)

        def reset():
            device.simulator.write("CONTROL", Control.RESET)
            device.simulator.idle(2000)

        if interrupt:
            device.plans = [device.cycles_later(300, reset)]
        else:
            sleep = device.sleep
            device.sleep = lambda seconds: (reset(), setattr(device, "sleep", sleep))
        with pytest.raises(
            DeviceFault, match=r"is idle while running classifier0: somebody else has reset it"
        ):
            accelerator.run(accelerator.random_tensor())
        check(accelerator)


def test_a_program_that_somebody_else_replaced(device):
    """Not by an interrupt, but between two calls."""
    with Accelerator(MODEL, device, interrupt=True) as accelerator:
        check(accelerator)
        device.write(offset_of("CONTROL"), Control.RESET)
        device.simulator.idle(2000)
        with pytest.raises(DeviceFault, match="error NOT_LOADED"):
            accelerator.run(accelerator.random_tensor())
        check(accelerator)


def test_damaged_images_are_refused(device, tmp_path):
    content = bytearray(MODEL.image.to_bytes())
    content[-100] ^= 1
    (tmp_path / "damaged.image").write_bytes(content)
    with Accelerator(MODEL, device, interrupt=True) as accelerator:
        with pytest.raises(ModelFileError, match=r"damaged: checksum of the program"):
            accelerator.load(tmp_path / "damaged.image")
        check(accelerator)


def test_a_program_damaged_in_memory(device):
    with Accelerator(MODEL, device, interrupt=True) as accelerator:
        program = accelerator.session.shared["PROGRAM"]
        program.memory[0] = 99  # not flushed by the driver: only the accelerator sees it
        program.flush = lambda: None
        device.owner = None
        with pytest.raises(DeviceFault, match="error BAD_SECTION while loading the program"):
            accelerator.run(accelerator.random_tensor())
        del program.flush
        check(accelerator)


@pytest.mark.parametrize(("register", "channel"), [("INPUT", "AR"), ("OUTPUT", "AW")])
@pytest.mark.parametrize("interrupt", [True, False])
def test_a_buffer_freed_too_early(device, register, channel, interrupt):
    with Accelerator(MODEL, device, interrupt=interrupt) as accelerator:
        check(accelerator)
        buffer = accelerator.session.slot(0).buffers[register]
        buffer.free()
        address = f"{channel} 0x{buffer.address:x}"
        with pytest.raises(
            HardwareFault, match=f"{address} .*outside the buffers that belong to this command"
        ):
            accelerator.run(accelerator.random_tensor())
        check(accelerator)


def test_a_forgotten_flush_gives_the_picture_before(device):
    with Accelerator(MODEL, device, interrupt=True) as accelerator:
        first = accelerator.run(accelerator.random_tensor(1))
        source = accelerator.session.slot(0).buffers["INPUT"]
        source.flush = lambda: None
        assert np.array_equal(accelerator.run(accelerator.random_tensor(2)), first)
        del source.flush
        target = accelerator.session.slot(0).buffers["OUTPUT"]
        target.invalidate = lambda: None
        assert np.array_equal(accelerator.run(accelerator.random_tensor(2)), first)
        del target.invalidate
        check(accelerator, 2)


def test_any_power_up_state(device):
    """A process before was killed in mid-run, and left whatever there can be in the registers."""
    with Accelerator(MODEL, device, interrupt=True) as accelerator:
        check(accelerator)
        slot = accelerator.session.slot(0)
        accelerator.session.start(slot)
        assert device.read(offset_of("STATUS")) & Status.BUSY
        with Accelerator(classifier(4), device, interrupt=True) as other:
            for register in REGISTERS:
                if register.access == "rw":
                    device.write(register.offset, 0xFFFFFFFF)
            other.driver.idle = False  # as if it had just come
            check(other)


def test_an_interrupted_call_leaves_nothing_behind(device):
    def stop(seconds):
        device.simulator.idle(100)
        raise KeyboardInterrupt

    with Accelerator(MODEL, device, interrupt=True) as accelerator:
        device.plans = [stop]
        with pytest.raises(KeyboardInterrupt):
            accelerator.run(accelerator.random_tensor())
        check(accelerator)

        async def cancelled():
            task = asyncio.create_task(accelerator.run_async(accelerator.random_tensor()))
            await asyncio.sleep(0)
            task.cancel()
            with pytest.raises(asyncio.CancelledError):
                await task

        asyncio.run(cancelled())
        check(accelerator)


def test_closing_while_the_memory_does_not_answer(device):
    accelerator = Accelerator(MODEL, device, interrupt=True)
    device.simulator.silence_memory(True)
    with pytest.raises(DeviceTimeout):
        accelerator.run(accelerator.random_tensor())
    live = len(device.heap.live)
    with pytest.warns(RuntimeWarning, match="does not come out of a reset"):
        accelerator.close()
    assert len(device.heap.live) == live > 0, "the accelerator may still write there"
