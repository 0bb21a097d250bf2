"""Built-in models and the built-in picture."""

from espalier.models.builtin import PICTURE, builtin_names, builtin_path, load_builtin, manifest

__all__ = ["PICTURE", "builtin_names", "builtin_path", "load_builtin", "manifest"]
