"""Options of the compiler."""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(frozen=True)
class CompileOptions:
    """What the compiler may do; the defaults give the fastest program.

    reorder: deal filters to PEs by load (longest first) and choose the split over branches, passes and block
        size by predicted cycles. Without it filters go to PEs in their own order, in equal numbers.
    pad: lengthen every DDR section with zero words to whole AXI bursts, so that the program load moves
        nothing but full, aligned bursts. Null operators that the hardware needs (empty runs, accumulator
        distance, whole stream words) are there in any case.
    store_all: store every layer's output in DDR, for comparison tensor by tensor. Costs time.
    refine: judge splits of layers and the order of nodes by the cycles of the whole program, which takes
        minutes for a network of 20 layers. Hardware with `streaming` and `reorder` off are not refined.
    overlap: let layers begin before the one before has ended. Without it every layer waits.
    """

    reorder: bool = True
    pad: bool = True
    store_all: bool = False
    overlap: bool = True
    refine: bool = False
