"""The Verilog of a configuration, generated once per state of the generator."""

from __future__ import annotations

import importlib.metadata
import json
import os
import re
from pathlib import Path

import espalier.arch
import espalier_hw
from espalier.arch.config import HardwareConfig
from espalier_hw.generate import generate_verilog
from espalier_sim.build import cache_folder, locked
from espalier_sim.hashing import source_hash
from espalier_sim.progress import Progress, silent

_INITIAL_BLOCK = re.compile(r"^ +initial begin\n.*?^ +end\n", re.MULTILINE | re.DOTALL)
_ZERO_WORD = re.compile(r"^ +\S+ ?\[\d+\] = \d+'h0+;\n", re.MULTILINE)


def accelerator_verilog(config: HardwareConfig, progress: Progress = silent) -> dict[str, str]:
    """Verilog text by module name, from the cache if neither configuration nor generator have changed.

    Memories that start with zeros have no initial values: the simulator clears them anyway.
    """
    amaranth = importlib.metadata.version("amaranth")
    key = source_hash(
        (espalier_hw, espalier.arch), str(config.hash), amaranth, Path(__file__).read_text(encoding="utf-8")
    )
    path = cache_folder() / "verilog" / f"{config.name}-{key}.json"
    with locked(path):
        if not path.is_file():
            progress("generating Verilog")
            texts = {name: without_zero_words(text) for name, text in generate_verilog(config).items()}
            unfinished = path.with_name(f"{path.name}.{os.getpid()}.unfinished")
            unfinished.write_text(json.dumps(texts), encoding="utf-8")
            unfinished.replace(path)
    content: dict[str, str] = json.loads(path.read_text(encoding="utf-8"))
    return content


def without_zero_words(text: str) -> str:
    """Drop zero words from initial values of memories: a line a word, most of the code of a simulator."""
    return _INITIAL_BLOCK.sub(lambda block: _ZERO_WORD.sub("", block.group()), text)
