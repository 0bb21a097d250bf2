"""How commands find the compressed model that a user names."""

from __future__ import annotations

from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from espalier.ir.graph import IntegerGraph


def load_compressed(model: str, verb: str) -> IntegerGraph:
    """Load a built-in model by name or an .espalier file by path; `verb`: what the command does with it.

    Raises:
        UserError: the model is an ONNX file, which must be compressed first.
        ModelFileError: the file is missing or damaged.

    """
    from espalier.errors import UserError
    from espalier.ir.storage import load_graph
    from espalier.models.builtin import builtin_names, load_builtin

    if model.endswith(".onnx"):
        raise UserError(f"{model} is not compressed yet: run `espalier compress` first, {verb} its result")
    return load_builtin(model) if model in builtin_names() else load_graph(model)
