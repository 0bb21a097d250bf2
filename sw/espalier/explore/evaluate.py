"""What a configuration makes of a network: compiled, and its cycles predicted. Runs in worker processes."""

from __future__ import annotations

from dataclasses import dataclass

from espalier.arch.config import HardwareConfig
from espalier.backend.compiler import compile_graph
from espalier.errors import CapacityError
from espalier.ir.graph import IntegerGraph


@dataclass(frozen=True)
class Outcome:
    """Result of one evaluation.

    cycles: predicted, None if it failed; reason: why. crashed: by an error of the program or the loss of the
    process, not because the network does not fit.
    """

    cycles: int | None
    reason: str = ""
    crashed: bool = False


@dataclass(frozen=True)
class Task:
    """What all evaluations of an exploration have in common."""

    graph: IntegerGraph

    def evaluate(self, config: HardwareConfig) -> Outcome:
        """Compile for a configuration and predict; errors become part of the result."""
        try:
            return Outcome(compile_graph(self.graph, config).metadata.predicted_cycles)
        except CapacityError as error:
            return Outcome(None, str(error))
        except Exception as error:  # whatever it is, it must not end the exploration
            return Outcome(None, f"{type(error).__name__}: {error}", crashed=True)
