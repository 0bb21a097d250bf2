"""The one event loop in which PYNQ's interrupts live, in a thread of its own.

PYNQ binds an interrupt to the loop that is current when its driver is made. Scripts have none, notebooks have
one that runs already and must not be blocked.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Coroutine
from concurrent.futures import Future, ThreadPoolExecutor
from typing import Any, TypeVar

Result = TypeVar("Result")

_LOOP = asyncio.new_event_loop()
_THREAD = ThreadPoolExecutor(
    1, thread_name_prefix="espalier", initializer=lambda: asyncio.set_event_loop(_LOOP)
)


def in_board_thread(action: Callable[[], Result]) -> Result:
    """Call something where interrupts are made and waited for."""
    return _THREAD.submit(action).result()


def wait_in_board_thread(coroutine: Coroutine[Any, Any, Result]) -> Future[Result]:
    """Run a coroutine in the loop of the interrupts."""
    return _THREAD.submit(_LOOP.run_until_complete, coroutine)
