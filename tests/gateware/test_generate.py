"""Generated Verilog: modules, port names, names that simulators look for, equal bytes for equal input."""

from __future__ import annotations

import dataclasses
import re

from espalier.arch.config import load_config
from espalier_hw.csr import AXI_LITE
from espalier_hw.generate import generate_verilog
from espalier_hw.top import CONTROL_PREFIX, MEMORY_PREFIX, axi_master

SMALLEST = dataclasses.replace(load_config("tiny"), branches=2, pes_per_branch=1, lut_pes=1)


def test_modules_ports_and_determinism():
    texts = generate_verilog(SMALLEST)
    kinds = {name + kind for name in ("espalier_branch", "espalier_pe") for kind in ("", "_lut")}
    assert kinds | {"espalier"} <= set(texts)
    top = texts["espalier"]
    (ports,) = re.findall(r"^module espalier\((.*?)\);", top, re.MULTILINE | re.DOTALL)
    expected = {"aclk", "aresetn", "interrupt"} | {CONTROL_PREFIX + name for name in AXI_LITE.members}
    for side in axi_master(SMALLEST).values():
        expected |= {MEMORY_PREFIX + name for name in side}
    assert set(re.findall(r"\w+", ports)) == expected
    for name in ("valid", "bank", "address", "data", "layer"):
        for port in range(2):
            assert re.search(rf"^  reg (\[\d+:0\] )?trace_{name}_{port}\b", top, re.MULTILINE)
    defined = [name for text in texts.values() for name in re.findall(r"^module (\S+)", text, re.MULTILINE)]
    assert len(defined) == len(set(defined))
    assert all("/" not in line for text in texts.values() for line in text.splitlines() if "(* src" in line)
    assert generate_verilog(SMALLEST) == texts
