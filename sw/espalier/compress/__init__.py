"""Compression: from a float network and calibration pictures to sparse integer weights of 1-8 bits."""

from espalier.compress.build import CompressOptions, LayerReport, compress
from espalier.compress.calibrate import RangeOptions
from espalier.compress.evaluate import Accuracy, Size, evaluate, size_of

__all__ = [
    "Accuracy",
    "CompressOptions",
    "LayerReport",
    "RangeOptions",
    "Size",
    "compress",
    "evaluate",
    "size_of",
]
