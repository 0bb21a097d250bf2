"""Counts the resource model's blocks with yosys, fits the model's coefficients, and writes docs/resources.md.

python -m espalier_hw.resource_fit count    # an hour or two; what was counted before is not counted again
python -m espalier_hw.resource_fit fit      # seconds, from docs/resources.json
"""

from __future__ import annotations

import argparse
import dataclasses
import json
import time
from collections.abc import Iterator
from dataclasses import asdict
from pathlib import Path
from typing import Any

from espalier.arch.config import HardwareConfig, load_config
from espalier.estimate.resource_terms import BLOCKS
from espalier.estimate.resources import FIT_FILE
from espalier_hw.resource_blocks import count_block
from espalier_hw.resource_page import write_page
from espalier_hw.resource_samples import fit_block, load_counted, sites

COUNTS_FILE = Path("docs/resources.json")
PAGE_FILE = Path("docs/resources.md")

# Beside the presets: small enough for yosys, and together with every parameter at several values.
_COLUMNS = (
    *("tile_size", "branches", "pes_per_branch", "ring_words", "accumulators", "dsp_pairs", "output_pairs"),
    *("window_fifo_depth", "feature_depth_words", "feature_depth_rest_words"),
)
_SMALL = {
    "t5-dsp": (5, 2, 2, 32, 32, 13, 5, 4, 1024, 1024),
    "t5-wide": (5, 2, 8, 16, 16, 6, 13, 4, 1024, 1024),
    "t4-many": (4, 4, 12, 64, 32, 0, 2, 32, 3072, 2560),
    "t4-one": (4, 1, 1, 16, 4, 8, 8, 32, 512, 512),
    "t4-few": (4, 2, 5, 32, 8, 3, 4, 4, 1024, 960),
    "t4-ring": (4, 2, 3, 16, 16, 6, 3, 4, 1024, 960),
}
# Of the 7 series no lane pairs lie in DSP slices, see `resource_blocks`.
_SERIES_7 = ("tiny", "t4-few", "t4-ring", "t5-dsp")


def configurations() -> Iterator[tuple[str, HardwareConfig]]:
    """Family and configuration of everything that is counted."""
    known = {name: load_config(name) for name in ("tiny", "zcu104")}
    one_kind = {"lut_branches": 0, "lut_pes": 0, "lut_dsp_pairs": 0}
    for name, values in _SMALL.items():
        fields: dict[str, Any] = dict(zip(_COLUMNS, values, strict=True)) | one_kind
        known[name] = dataclasses.replace(known["tiny"], name=name, **fields)
    for config in known.values():
        yield "xcup", config
    for name in _SERIES_7:
        yield "xc7", dataclasses.replace(known[name], dsp_pairs=0, lut_dsp_pairs=0)


def count(only: list[str], names: list[str], minutes: float) -> None:
    """Count the blocks of all configurations (or only those named), and begin none after so many minutes.

    Blocks that an earlier count of the same configuration has, and this one does not, are kept.
    """
    deadline = time.monotonic() + 60 * minutes
    earlier = _earlier()
    results = []
    for family, config in configurations():
        fields = asdict(config)
        blocks = earlier.get(json.dumps([family, fields]), {})
        for key, block, site in sites(family, config):
            if (only and block not in only) or (names and f"{family}/{config.name}" not in names):
                continue
            if time.monotonic() > deadline:
                break
            started = time.monotonic()
            found = count_block(block, site)
            blocks[key] = {"count": asdict(found.count), "paths": asdict(found.paths)}
            levels, took = found.paths.longest.levels, time.monotonic() - started
            print(f"{family} {config.name} {key}: {found.count}, {levels} levels, {took:.0f} s", flush=True)
        results.append({"family": family, "config": fields, "blocks": blocks})
    COUNTS_FILE.write_text(json.dumps(results, indent=1) + "\n", encoding="utf-8")


def _earlier() -> dict[str, dict[str, Any]]:
    """Blocks of the counts file by family and configuration."""
    if not COUNTS_FILE.exists():
        return {}
    entries = json.loads(COUNTS_FILE.read_text(encoding="utf-8"))
    counted = load_counted(entries)  # entries may lack fields that have defaults
    return {json.dumps([family, asdict(config)]): blocks for config, family, blocks in counted}


def fit() -> None:
    """Fit the coefficients of every block to its counts, by relative errors."""
    counted = load_counted(json.loads(COUNTS_FILE.read_text(encoding="utf-8")))
    coefficients = {
        name: {resource: fit_block(name, resource, counted) for resource in ("lut", "ff")} for name in BLOCKS
    }
    FIT_FILE.write_text(json.dumps({"coefficients": coefficients}, indent=1) + "\n", encoding="utf-8")
    write_page(PAGE_FILE, counted)


def main() -> None:
    """Command line."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("action", choices=("count", "fit"))
    parser.add_argument("--only", nargs="*", default=[], help="blocks to count")
    parser.add_argument("--configurations", nargs="*", default=[], help="those to count, as family/name")
    parser.add_argument("--minutes", type=float, default=600.0, help="begin no count after so many minutes")
    arguments = parser.parse_args()
    if arguments.action == "count":
        count(arguments.only, arguments.configurations, arguments.minutes)
    else:
        fit()


if __name__ == "__main__":
    main()
