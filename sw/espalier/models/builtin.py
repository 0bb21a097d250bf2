"""The models that come with Espalier: compressed networks, a manifest each, a picture to try them on."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

from espalier.errors import ModelFileError
from espalier.ir.graph import IntegerGraph
from espalier.ir.storage import load_graph

MODEL_FOLDER = Path(__file__).parent
SUFFIX = ".espalier"
PICTURE = MODEL_FOLDER / "pictures" / "chelsea.png"  # a cat; see pictures/README.md


def builtin_names() -> list[str]:
    """Names of the built-in models."""
    return sorted(path.stem for path in MODEL_FOLDER.glob(f"*{SUFFIX}"))


def builtin_path(name: str) -> Path:
    """File of a built-in model.

    Raises:
        ModelFileError: no such model.

    """
    if name not in builtin_names():
        raise ModelFileError(f"no built-in model '{name}': choose one of {', '.join(builtin_names())}")
    return MODEL_FOLDER / f"{name}{SUFFIX}"


def load_builtin(name: str) -> IntegerGraph:
    """Load a built-in model; its metadata hold labels and preprocessing.

    Raises:
        ModelFileError: no such model, or its file is damaged.

    """
    return load_graph(builtin_path(name))


def manifest(name: str) -> dict[str, Any]:
    """Read what is known of a built-in model: source, licence, method, size, measured accuracy.

    Raises:
        ModelFileError: no such model, or its manifest is missing or damaged.

    """
    path = builtin_path(name).with_suffix(".json")
    try:
        content: dict[str, Any] = json.loads(path.read_text(encoding="utf-8"))
    except (OSError, ValueError) as error:
        raise ModelFileError(f"cannot read manifest {path}: {error}; install Espalier again") from error
    return content
