"""Espalier: compresses a trained CNN and compiles it for a sparse FPGA accelerator."""

__version__ = "0.1.0"
