"""Import of trained networks from ONNX files."""

from espalier.frontend.onnx_import import load_onnx

__all__ = ["load_onnx"]
