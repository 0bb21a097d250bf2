"""Hashes of source code: cache entries must not outlive the code that made them."""

from __future__ import annotations

import hashlib
from pathlib import Path
from types import ModuleType


def source_hash(packages: tuple[ModuleType, ...], *more: str) -> str:
    """Hash of all Python and YAML files of some packages, and of further texts."""
    content = hashlib.sha256("\0".join(more).encode())
    for package in packages:
        folder = Path(str(package.__file__)).parent
        for source in sorted(folder.rglob("*")):
            if source.suffix in (".py", ".yaml"):
                content.update(source.relative_to(folder).as_posix().encode() + b"\0")
                content.update(source.read_bytes())
    return content.hexdigest()[:20]
