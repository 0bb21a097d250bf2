"""Unmodified scripts with the real `pynq` package on the simulated board."""

from __future__ import annotations

import importlib.metadata
import importlib.util
import os
import re
import select
import shutil
import subprocess
import sys
import textwrap

import numpy as np
import pytest
from driver_networks import CONFIG, classifier

from espalier.arch.config import load_config
from espalier.models.builtin import PICTURE
from espalier.runtime import Accelerator, load_model
from espalier_sim.board.boards import find_board
from espalier_sim.board.files import write_board_files

if importlib.util.find_spec("pynq") is None:
    pytest.skip("pynq is not installed: PYNQ_REMOTE=1 pip install pynq", allow_module_level=True)

VERSION = importlib.metadata.version("pynq")
# PYNQ 4 no longer loads overlays of the Zynq-7000.
BOARDS = ["zcu104"] if int(VERSION.split(".")[0]) >= 4 else ["pynqz2", "zcu104"]
BIT = "espalier_tiny_simulation.bit"
BOUND = bool(importlib.metadata.entry_points(group="pynq.lib", name="espalier"))

pytestmark = [pytest.mark.xdist_group("tiny"), pytest.mark.timeout(300)]
HEAD = f"""
import asyncio, sys, warnings
import numpy as np
from espalier.errors import DeviceError, DeviceFault, DeviceTimeout
from espalier.runtime import Accelerator
BIT = "{BIT}"
"""


@pytest.fixture(scope="module", params=BOARDS)
def board(request, tiny_simulator, tmp_path_factory):
    """A folder with all that users copy to a board; its name is that of the board."""
    folder = tmp_path_factory.mktemp("boards") / request.param
    write_board_files(folder, CONFIG, find_board(request.param))
    classifier().image.save(folder / "small.image")
    classifier(3, filters=9).image.save(folder / "other.image")
    load_model(classifier().graph, "zcu104").image.save(folder / "large.image")
    shutil.copy(PICTURE, folder / "chelsea.png")
    return folder


def start(board, text, *options, launcher=True, **environment):
    """Start a script on the board."""
    (board / "script.py").write_text(textwrap.dedent(text), encoding="utf-8")
    command = [sys.executable, "-W", "ignore"]
    if launcher:
        command += ["-m", "espalier_sim.board", "--board", board.name, *options]
    return subprocess.Popen(
        [*command, "script.py"], cwd=board, env=os.environ | environment, text=True,
        stdin=subprocess.PIPE, stdout=subprocess.PIPE, stderr=subprocess.PIPE,
    )  # fmt: skip


def run(board, text, *options, **environment):
    """Run a script, which must end well; return what it printed."""
    with start(board, text, *options, **environment) as process:
        printed, errors = process.communicate(timeout=250)
    assert process.returncode == 0, errors[-3000:]
    return printed


FIVE_LINES = """
    from espalier.runtime import Accelerator
    with Accelerator("small.image", "{bit}") as accelerator:
        for label, score in accelerator.classify("chelsea.png"):
            print(label, score)
"""


@pytest.fixture(scope="module")
def classes(board):
    """What the integer model says."""
    with Accelerator(classifier(), "integer") as accelerator:
        return [f"{label} {score}" for label, score in accelerator.classify(board / "chelsea.png")]


def test_a_script_of_five_lines(board, classes):
    script = FIVE_LINES.format(bit=BIT)
    assert run(board, script).splitlines() == classes
    slow = run(board, script, "--stalls", "3", "--host-latency", "10-2000")
    assert slow.splitlines() == classes


def test_the_environment_is_enough(board, classes):
    script = FIVE_LINES.format(bit=BIT)
    if not importlib.metadata.entry_points(group="espalier.simulated_boards"):
        pytest.skip("this installation of Espalier has no entry points: install it again")
    assert run(board, script, launcher=False, ESPALIER_BOARD=board.name).splitlines() == classes


def test_interrupts_through_pynqs_own_controller(board):
    model = classifier()
    text = (
        HEAD
        + """
from espalier.runtime.overlay import EspalierOverlay
overlay = EspalierOverlay(BIT)
with Accelerator("small.image", overlay, interrupt=True) as accelerator:
    waits = []
    wait = accelerator.device.wait
    accelerator.device.wait = lambda seconds: waits.append(wait(seconds)) or waits[-1]
    tensors = [accelerator.random_tensor(seed) for seed in range(6)]
    outputs = [accelerator.run(tensor) for tensor in tensors]
    assert all(waits) and len(waits) >= 6 and accelerator.driver.interrupt, waits
    for other in (list(accelerator.run_many(tensors)), polled := []):
        if other is polled:
            break
        assert all(np.array_equal(a, b) for a, b in zip(outputs, other, strict=True))

    async def both():
        ticks = 0
        async def tick():
            nonlocal ticks
            while True:
                ticks += 1
                await asyncio.sleep(0)
        other = asyncio.create_task(tick())
        found = [await accelerator.run_async(tensor) for tensor in tensors]
        other.cancel()
        # As in a notebook: a call that waits, inside a loop that runs.
        found.append(accelerator.run(tensors[0]))
        return found, ticks

    found, ticks = asyncio.run(both())
    assert all(np.array_equal(a, b) for a, b in zip(outputs + outputs[:1], found, strict=True)) and ticks > 6
    assert accelerator.driver.interrupt
with Accelerator("small.image", overlay) as accelerator:
    assert all(np.array_equal(accelerator.run(t), o) for t, o in zip(tensors, outputs, strict=True))
np.save("outputs.npy", np.stack(outputs))
"""
    )
    run(board, text)
    with Accelerator(model, "integer") as accelerator:
        expected = [accelerator.run(accelerator.random_tensor(seed)) for seed in range(6)]
    assert np.array_equal(np.load(board / "outputs.npy"), np.stack(expected))


def test_self_test_profile_throughput_and_another_model(board):
    printed = run(
        board,
        HEAD
        + """
with Accelerator("small.image", BIT, interrupt=True) as accelerator:
    print(accelerator.self_test())
    print(accelerator.profile())
    result = accelerator.throughput_test(4)
    assert 99 < result["fclk[mhz]"] <= 100.1 and result["throughput[images/s]"] > 1000
    accelerator.load("other.image")
    assert accelerator.self_test().passed
""",
    )
    assert printed.count("ok  ") == 5 and "total:" in printed and "FAIL" not in printed


def test_a_plain_overlay_binds_the_driver(board):
    if not BOUND:
        pytest.skip("this installation of Espalier has no entry point pynq.lib: install it again")
    printed = run(board, f"""
        import pynq
        overlay = pynq.Overlay("{BIT}")
        ip = overlay.espalier_0
        registers = ip.register_map
        print(type(ip).__name__, hex(registers.MAGIC[31:0]), registers.STATUS.BUSY, ip.config_hash)
        ip.register_map.INPUT_ADDRESS = 0x1230
        print(hex(ip.read(0x30)))
    """)  # fmt: skip
    assert printed.split() == ["EspalierIP", "0x4c505345", "0", str(CONFIG.hash), "0x1230"]


def test_the_clock_is_never_faster_than_built(board):
    printed = run(
        board,
        HEAD
        + """
from espalier.runtime.overlay import EspalierOverlay, set_clock
import pynq
overlay = EspalierOverlay(BIT)
assert overlay.clock_mhz == pynq.Clocks.fclk0_mhz <= 100.1, overlay.clock_mhz
for limit in (300, 200, 190, 133, 99, 50, 12.5, 1):
    found = set_clock(limit)
    assert 0.75 * limit < found <= 1.001 * limit and found == pynq.Clocks.fclk0_mhz, (limit, found)
with warnings.catch_warnings():
    warnings.simplefilter("ignore")
    pynq.Clocks.fclk0_mhz = 120
assert pynq.Clocks.fclk0_mhz > 124  # what PYNQ itself makes of it
slow = EspalierOverlay(BIT, clock_mhz=40)
assert 30 < slow.clock_mhz <= 40.04
with Accelerator("small.image", slow) as accelerator:
    assert accelerator.self_test().passed and accelerator.device.clock_mhz == slow.clock_mhz
try:
    EspalierOverlay(BIT, clock_mhz=120)
except DeviceError as error:
    print(error)
""",
    )
    assert "was built for 100 MHz: 120 MHz are too fast for it" in printed


def test_what_does_not_belong_together_is_refused(board):
    printed = run(
        board,
        HEAD
        + f"""
from espalier.runtime.overlay import EspalierOverlay
def refused(*arguments):
    try:
        Accelerator(*arguments)
    except DeviceError as error:
        print(error)
refused("large.image", BIT)
refused("small.image", "nothing.bit")
EspalierOverlay(BIT)
from espalier_sim.board.device import SimulatedBoard
SimulatedBoard.is_simulated = False
refused("small.image", BIT)
SimulatedBoard.is_simulated = True
content = open(BIT, "rb").read()
open("real.bit", "wb").write(content.replace(b"ESPA-REI", b"ABCD-EFG").replace(b"APSE", b"DCBA"))
import shutil; shutil.copy("{BIT[:-4]}.hwh", "real.hwh")
refused("small.image", "real.bit")
with Accelerator("small.image", BIT, interrupt=True) as accelerator:
    assert accelerator.self_test().passed
""",
    )
    lines = printed.splitlines()
    assert f"the model is compiled for 'zcu104' ({load_config('zcu104').hash:08x})" in lines[0]
    assert "cannot load bitstream nothing.bit" in lines[1]
    assert "is a placeholder for simulations: no board can be programmed with it" in lines[2]
    assert "real ones cannot be simulated" in lines[3]


def test_a_forgotten_flush_and_a_freed_buffer(board):
    printed = run(
        board,
        HEAD
        + """
from espalier.errors import EspalierError
with Accelerator("small.image", BIT, interrupt=True) as accelerator:
    first, second = (accelerator.random_tensor(seed) for seed in range(2))
    good = accelerator.run(first), accelerator.run(second)
    assert not np.array_equal(*good)
    buffer = accelerator.session.slot(0).buffers["INPUT"]
    buffer.flush = lambda: None
    assert np.array_equal(accelerator.run(first), good[1])
    del buffer.flush
    assert np.array_equal(accelerator.run(first), good[0])
    # Somebody frees the memory while the accelerator still uses it.
    address = buffer.address
    device = accelerator.device.overlay.device
    buffer._buffer.bo.free()
    for interrupt in (True, False):
        try:
            accelerator.run(first)
        except EspalierError as error:
            assert f"AR 0x{address:x}" in str(error) and "outside the buffers" in str(error), error
            print("reported")
            break
    assert np.array_equal(accelerator.run(second), good[1])
""",
    )
    assert "reported" in printed


def test_faults_are_reported_and_the_next_call_works(board):
    printed = run(
        board,
        HEAD
        + """
with Accelerator("small.image", BIT, interrupt=True) as accelerator:
    tensor = accelerator.random_tensor()
    good = accelerator.run(tensor)
    simulator = accelerator.device.overlay.device.simulated.simulator
    def fails(kind):
        try:
            accelerator.run(tensor)
        except kind as error:
            print(error)
    simulator.silence_memory(True)
    fails(DeviceTimeout)
    simulator.silence_memory(False)
    assert np.array_equal(accelerator.run(tensor), good)
    simulator.allow("faulty", simulator.memory_base, simulator.memory_bytes)
    fails(DeviceFault)
    simulator.allow("faulty", 0, 0)
    assert np.array_equal(accelerator.run(tensor), good) and accelerator.driver.interrupt
    # The program gets lost behind the driver's back.
    accelerator.driver.reset()
    accelerator.device.owner = accelerator.session
    fails(DeviceFault)
    assert np.array_equal(accelerator.run(tensor), good)
""",
    )
    lines = printed.splitlines()
    assert re.search(r"while running classifier0: STATUS BUSY\+LOADED, LAYER \d \(\w+\)", lines[0])
    assert "does not come out of a reset" in lines[0]
    assert "error AXI_READ" in lines[1] and "error NOT_LOADED" in lines[2]


def test_interrupts_that_come_early_or_not_at_all(board):
    printed = run(
        board,
        HEAD
        + """
from espalier_sim.board.interrupts import InterruptController
with Accelerator("small.image", BIT, interrupt=True) as accelerator:
    tensors = [accelerator.random_tensor(seed) for seed in range(4)]
    good = [accelerator.run(tensor) for tensor in tensors]
    controller = accelerator.device.overlay.device._controller
    for tensor, wanted in zip(tensors, good, strict=True):
        controller._pending = 1  # left from somebody else
        assert np.array_equal(accelerator.run(tensor), wanted) and accelerator.driver.interrupt
    InterruptController.output = property(lambda self: False)
    with warnings.catch_warnings(record=True) as caught:
        warnings.simplefilter("always")
        assert np.array_equal(accelerator.run(tensors[0]), good[0]) and not accelerator.driver.interrupt
    print([str(w.message) for w in caught if w.category is RuntimeWarning])
    assert np.array_equal(accelerator.run(tensors[1]), good[1])
""",
    )
    assert "no interrupt has come although the command is done; polling from now on" in printed


def test_two_processes_do_not_share_a_board(board, tmp_path):
    holder = (
        HEAD
        + """
with Accelerator("small.image", BIT, interrupt=True) as accelerator:
    accelerator.run(accelerator.random_tensor())
    print("running", flush=True)
    sys.stdin.readline()
    assert accelerator.self_test().passed
"""
    )
    other = (
        HEAD
        + """
try:
    Accelerator("small.image", BIT, interrupt=True)
    print("got it")
except DeviceError as error:
    print(error)
"""
    )
    locks = {"ESPALIER_LOCKS": str(tmp_path)}
    with start(board, holder, **locks) as first:
        assert select.select([first.stdout], [], [], 200)[0] and first.stdout.readline() == "running\n"
        assert f"the accelerator is in use by process {first.pid}" in run(board, other, **locks)
        _, errors = first.communicate("\n", timeout=200)
        assert first.returncode == 0, errors
    assert run(board, other, **locks) == "got it\n"
    # A process that is killed leaves no lock behind.
    with start(board, holder, **locks) as first:
        assert select.select([first.stdout], [], [], 200)[0]
        first.kill()
    assert run(board, other, **locks) == "got it\n"


def test_buffers_of_many_calls_and_models(board):
    run(
        board,
        HEAD
        + """
from espalier.runtime.overlay import EspalierOverlay
import gc
overlay = EspalierOverlay(BIT)
with Accelerator("small.image", overlay) as accelerator:
    for number in range(6):
        accelerator.load(("small.image", "other.image")[number % 2])
        tensors = [accelerator.random_tensor(seed) for seed in range(5)]
        for a, b in zip(map(accelerator.run, tensors), accelerator.run_many(tensors), strict=False):
            break
        assert accelerator.self_test().passed
gc.collect()
assert not overlay.device.simulated.heap.live, overlay.device.simulated.heap.live
""",
    )
