"""Progress messages: where they come from is separate from how they are shown."""

from __future__ import annotations

import sys
from collections.abc import Callable, Iterator
from contextlib import contextmanager

from rich.console import Console

Progress = Callable[[str], None]


def silent(message: str) -> None:
    """Show nothing."""


@contextmanager
def progress_on_stderr() -> Iterator[Progress]:
    """Show progress as one changing line on a terminal, as plain lines otherwise; both on stderr."""
    if not sys.stderr.isatty():
        yield _plain()
        return
    with Console(stderr=True).status("starting") as status:
        yield status.update


def _plain() -> Progress:
    last = ""

    def show(message: str) -> None:
        nonlocal last
        if message != last:
            print(message, file=sys.stderr, flush=True)
        last = message

    return show
