"""The Verilog of a configuration, generated once per state of the generator."""

from __future__ import annotations

import importlib.metadata
import json
import os

import espalier.arch
import espalier_hw
from espalier.arch.config import HardwareConfig
from espalier_hw.generate import generate_verilog
from espalier_sim.build import cache_folder, locked
from espalier_sim.hashing import source_hash
from espalier_sim.progress import Progress, silent


def accelerator_verilog(config: HardwareConfig, progress: Progress = silent) -> dict[str, str]:
    """Verilog text by module name, from the cache if neither configuration nor generator have changed."""
    amaranth = importlib.metadata.version("amaranth")
    key = source_hash((espalier_hw, espalier.arch), str(config.hash), amaranth)
    path = cache_folder() / "verilog" / f"{config.name}-{key}.json"
    with locked(path):
        if not path.is_file():
            progress("generating Verilog")
            unfinished = path.with_name(f"{path.name}.{os.getpid()}.unfinished")
            unfinished.write_text(json.dumps(generate_verilog(config)), encoding="utf-8")
            unfinished.replace(path)
    content: dict[str, str] = json.loads(path.read_text(encoding="utf-8"))
    return content
