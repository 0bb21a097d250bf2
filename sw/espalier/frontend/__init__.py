"""Import of trained networks."""

from espalier.frontend.onnx_import import load_onnx

__all__ = ["load_onnx"]
