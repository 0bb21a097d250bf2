"""Built-in models."""

from espalier.models.builtin import PICTURE, builtin_names, builtin_path, load_builtin, manifest

__all__ = ["PICTURE", "builtin_names", "builtin_path", "load_builtin", "manifest"]
