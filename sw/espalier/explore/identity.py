"""What results belong to: a network, a target, and the version of compiler and cycle model."""

from __future__ import annotations

import dataclasses
import functools
import hashlib
from pathlib import Path
from typing import Any

import numpy as np

import espalier
from espalier.arch.config import HardwareConfig
from espalier.ir.graph import IntegerGraph

# Packages and files on which predicted cycles of a design depend.
_SOURCES = ("arch", "backend", "estimate", "ir", "passes", "explore/design.py")
_DIGITS = 16


def identity_of(graph: IntegerGraph, base: HardwareConfig) -> dict[str, str]:
    """Digests of content, so that the same name with other content is another identity."""
    network, target = hashlib.sha256(), hashlib.sha256()
    _add(network, graph)
    _add(target, {**dataclasses.asdict(base), "name": "", "clock_mhz": 0, "clock_source": ""})
    return {
        "model": network.hexdigest()[:_DIGITS],
        "target": target.hexdigest()[:_DIGITS],
        "version": code_identity(),
    }


@functools.cache
def code_identity() -> str:
    """Digest of the sources of compiler and cycle model, as installed."""
    digest, package = hashlib.sha256(), Path(espalier.__file__).parent
    for name in _SOURCES:
        folder = package / name
        files = sorted(p for kind in ("*.py", "*.json") for p in folder.rglob(kind)) or [folder]
        for path in files:
            digest.update(path.relative_to(package).as_posix().encode() + b"\0")
            digest.update(path.read_bytes())
    return digest.hexdigest()[:_DIGITS]


def _add(digest: Any, value: Any) -> None:
    """Add a value and all that it consists of."""
    digest.update(f"{type(value).__name__}(".encode())
    if isinstance(value, np.ndarray):
        digest.update(f"{value.dtype.str}{value.shape}".encode() + value.tobytes())
    elif dataclasses.is_dataclass(value):
        for spec in dataclasses.fields(value):
            _add(digest, getattr(value, spec.name))
    elif isinstance(value, dict):
        for key in sorted(value, key=str):
            _add(digest, key)
            _add(digest, value[key])
    elif isinstance(value, list | tuple):
        for part in value:
            _add(digest, part)
    else:
        digest.update(repr(value).encode())
    digest.update(b")")
