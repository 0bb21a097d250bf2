"""Cycles of a network on a configuration, evaluated in processes of their own."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from concurrent.futures import ProcessPoolExecutor
from concurrent.futures.process import BrokenProcessPool
from contextlib import contextmanager
from dataclasses import dataclass
from typing import Protocol

from espalier.arch.config import HardwareConfig
from espalier.backend.compiler import compile_graph
from espalier.errors import CapacityError, InternalError, UserError
from espalier.ir.graph import IntegerGraph

_graph: IntegerGraph | None = None  # of this process


@dataclass(frozen=True)
class Outcome:
    """Predicted cycles, None if the network does not run there; `reason` says why not."""

    cycles: int | None
    reason: str = ""


class Evaluator(Protocol):
    """Evaluates configurations; the outcomes are in the order of the configurations."""

    def __call__(self, configs: Sequence[HardwareConfig]) -> list[Outcome]:
        """Evaluate all of them."""


def evaluate(graph: IntegerGraph, config: HardwareConfig) -> Outcome:
    """Compile the network and predict its cycles; what goes wrong is the point's own matter."""
    try:
        return Outcome(compile_graph(graph, config).metadata.predicted_cycles)
    except CapacityError as error:
        return Outcome(None, str(error))
    except InternalError as error:
        return Outcome(None, f"internal error: {error}")


def here(graph: IntegerGraph) -> Evaluator:
    """Evaluate in this process, one after the other."""
    return lambda configs: [evaluate(graph, config) for config in configs]


@contextmanager
def processes(graph: IntegerGraph, jobs: int) -> Iterator[Evaluator]:
    """Evaluate in so many processes at once.

    Raises:
        UserError: a process was ended from outside, for want of memory for example.

    """
    with ProcessPoolExecutor(jobs, initializer=_begin, initargs=(graph,)) as pool:

        def run(configs: Sequence[HardwareConfig]) -> list[Outcome]:
            try:
                return list(pool.map(_evaluate, configs))
            except BrokenProcessPool as error:
                raise UserError(
                    "a process of the exploration was ended from outside (out of memory?): try fewer --jobs;"
                    " what was found so far is kept with --state"
                ) from error

        try:
            yield run
        except BaseException:
            pool.shutdown(wait=False, cancel_futures=True)
            raise


def _begin(graph: IntegerGraph) -> None:
    global _graph
    _graph = graph


def _evaluate(config: HardwareConfig) -> Outcome:
    assert _graph is not None, "set when the process begins"
    return evaluate(_graph, config)
