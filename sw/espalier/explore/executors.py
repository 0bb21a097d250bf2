"""Where evaluations run: what all executors have in common, and a pool of processes on this machine."""

from __future__ import annotations

import contextlib
import os
import signal
import threading
import time
from collections import deque
from collections.abc import Generator, Iterator, Sequence
from concurrent.futures import FIRST_COMPLETED, Future, ProcessPoolExecutor, wait
from concurrent.futures.process import BrokenProcessPool
from multiprocessing import get_context, parent_process
from typing import Protocol

from espalier.arch.config import HardwareConfig
from espalier.explore.evaluate import Outcome, Task

LOST = "the process that evaluated it was ended from outside, twice (out of memory?)"
_task: Task | None = None  # of a worker process


class Executor(Protocol):
    """Evaluates configurations of one task."""

    def run(self, configs: Sequence[HardwareConfig], deadline: float) -> Iterator[tuple[int, Outcome]]:
        """Yield the index of a configuration and its outcome as they come, in any order.

        Begins no further evaluation once `time.monotonic()` passes `deadline`.
        """
        ...

    def close(self) -> None:
        """Stop all evaluations."""
        ...


class LocalExecutor:
    """A pool of `jobs` processes. An evaluation whose process dies is tried once more, alone."""

    def __init__(self, task: Task, jobs: int) -> None:
        self._task, self._jobs = task, jobs
        self._pool = self._new_pool()

    def run(self, configs: Sequence[HardwareConfig], deadline: float) -> Iterator[tuple[int, Outcome]]:
        """See `Executor`."""
        waiting = deque(range(len(configs)))
        while waiting and time.monotonic() < deadline:
            # When a process dies all others of its pool go with it: whose fault it was shows when alone.
            for index in (yield from self._until_lost(waiting, configs, deadline)):
                yield index, self._alone(configs[index])

    def close(self) -> None:
        """Stop all evaluations; processes in the middle of one are ended."""
        processes = list((getattr(self._pool, "_processes", None) or {}).values())
        self._pool.shutdown(wait=False, cancel_futures=True)
        for process in processes:
            process.terminate()
        for process in processes:
            process.join()

    def _until_lost(
        self, waiting: deque[int], configs: Sequence[HardwareConfig], deadline: float
    ) -> Generator[tuple[int, Outcome], None, list[int]]:
        """Evaluate what is waiting, as many at once as there are processes; returns what was lost."""
        running: dict[Future[Outcome], int] = {}
        lost: list[int] = []
        while True:
            while waiting and not lost and len(running) < self._jobs and time.monotonic() < deadline:
                index = waiting.popleft()
                running[self._submit(configs[index])] = index
            if not running:
                return sorted(lost)
            for future in wait(running, return_when=FIRST_COMPLETED).done:
                index = running.pop(future)
                try:
                    yield index, future.result()
                except BrokenProcessPool:
                    lost.append(index)

    def _alone(self, config: HardwareConfig) -> Outcome:
        try:
            return self._submit(config).result()
        except BrokenProcessPool:
            return Outcome(None, LOST, crashed=True)

    def _submit(self, config: HardwareConfig) -> Future[Outcome]:
        """Begin an evaluation, in a new pool if a process of the old one has died."""
        try:
            return self._pool.submit(_evaluate, config)
        except BrokenProcessPool:
            self._pool.shutdown(wait=False)
            self._pool = self._new_pool()
            return self._pool.submit(_evaluate, config)

    def _new_pool(self) -> ProcessPoolExecutor:
        return ProcessPoolExecutor(self._jobs, get_context("spawn"), _start, (self._task,))


def _start(task: Task) -> None:
    """Prepare a process: Ctrl-C is left to the one that started it, and it ends when that one is gone."""
    global _task
    _task = task
    with contextlib.suppress(ValueError):
        signal.signal(signal.SIGINT, signal.SIG_IGN)
    threading.Thread(target=_end_with_parent, daemon=True).start()


def _end_with_parent() -> None:
    parent = parent_process()
    assert parent is not None, "runs in worker processes only"
    parent.join()
    os._exit(1)


def _evaluate(config: HardwareConfig) -> Outcome:
    assert _task is not None, "processes are prepared before they work"
    return _task.evaluate(config)
