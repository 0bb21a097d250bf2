"""Evaluations on a Dask cluster; `distributed` is loaded when one is asked for."""

from __future__ import annotations

import importlib.util
import logging
import math
import pickle
import time
import zlib
from collections.abc import Iterator, Sequence
from typing import Any

from espalier.arch.config import HardwareConfig
from espalier.errors import ToolNotFoundError, UserError
from espalier.explore.evaluate import Outcome, Task
from espalier.explore.identity import code_identity

_CONNECT_SECONDS = 20


class DaskExecutor:
    """Workers of the cluster at `address`, or of one of `jobs` processes on this machine if it is None.

    Evaluations of workers that are lost run again on others; those that are under way when time is up are
    dropped.
    """

    def __init__(self, task: Task, jobs: int, address: str | None) -> None:
        """Connect, or start workers.

        Raises:
            ToolNotFoundError: `distributed` is not installed.
            UserError: no scheduler answers, or it has no workers, or their Espalier is another version.

        """
        if importlib.util.find_spec("distributed") is None:
            raise ToolNotFoundError(
                "the Dask executor needs distributed, which is not installed: pip install"
                " 'espalier-accel[dask]'"
            )
        import distributed

        self._cluster: Any = None
        if address is None:
            self._cluster = distributed.LocalCluster(
                n_workers=jobs, threads_per_worker=1, dashboard_address=":0", silence_logs=logging.ERROR
            )
        try:
            self.client = distributed.Client(self._cluster or address, timeout=_CONNECT_SECONDS)
        except (OSError, ValueError) as error:
            raise UserError(f"--dask-address {address}: no Dask scheduler answers there ({error})") from error
        try:
            self._check_workers()
        except BaseException:
            self.close()
            raise
        # The result of a call, not data that was sent: it is made anew if the worker that has it is lost.
        packed = zlib.compress(pickle.dumps(task), 1)
        self._task = self.client.submit(_unpack, packed, code_identity(), pure=False)

    def run(self, configs: Sequence[HardwareConfig], deadline: float) -> Iterator[tuple[int, Outcome]]:
        """See `espalier.explore.executors.Executor`."""
        import distributed

        left = deadline - time.monotonic()
        if left <= 0:
            return
        waiting = {
            self.client.submit(_evaluate, self._task, config, pure=False): index
            for index, config in enumerate(configs)
        }
        try:
            for future in distributed.as_completed(
                list(waiting), timeout=left if math.isfinite(left) else None
            ):
                yield waiting.pop(future), _outcome(future)
        except TimeoutError:
            return
        finally:
            self.client.cancel(list(waiting))

    def close(self) -> None:
        """Leave the cluster; one that was started here ends."""
        self.client.close()
        if self._cluster is not None:
            self._cluster.close()

    def _check_workers(self) -> None:
        """Refuse a cluster that would give other results, or none."""
        try:
            self.client.wait_for_workers(1, timeout=_CONNECT_SECONDS)
            versions = set(self.client.run(code_identity).values())
        except TimeoutError as error:
            raise UserError("the Dask cluster has no workers: start some (`dask worker`)") from error
        except ImportError as error:
            raise UserError(f"Espalier is not installed on the workers of the cluster ({error})") from error
        if versions != {code_identity()}:
            raise UserError(_OTHER_VERSION)


_OTHER_VERSION = (
    "workers of the Dask cluster have another version of Espalier's compiler: install the same everywhere"
)


def _outcome(future: Any) -> Outcome:
    try:
        found: Outcome = future.result()
    except UserError:
        raise
    except Exception as error:  # its workers were lost more often than Dask tries
        return Outcome(None, f"lost on the cluster ({type(error).__name__}: {error})", crashed=True)
    return found


def _unpack(packed: bytes, version: str) -> tuple[Task, str]:
    task: Task = pickle.loads(zlib.decompress(packed))
    return task, version


def _evaluate(task: tuple[Task, str], config: HardwareConfig) -> Outcome:
    if task[1] != code_identity():  # a worker that came later
        raise UserError(_OTHER_VERSION)
    return task[0].evaluate(config)
