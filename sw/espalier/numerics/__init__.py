"""What the accelerator computes, in NumPy: exact integer semantics and float execution.

The integer functions are the golden model of the hardware, the fallback on a machine without a board and
the way accuracy is measured.
"""

from espalier.numerics.convolution import PreparedConv, conv, prepare_conv
from espalier.numerics.execute import Executor, run, run_output
from espalier.numerics.floating import float_run
from espalier.numerics.pooling import pool, pool_maps
from espalier.numerics.requantisation import requantise, residual_table

__all__ = [
    "Executor",
    "PreparedConv",
    "conv",
    "float_run",
    "pool",
    "pool_maps",
    "prepare_conv",
    "requantise",
    "residual_table",
    "run",
    "run_output",
]
