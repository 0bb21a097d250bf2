"""One process at a time uses the programmable logic of a board."""

from __future__ import annotations

import fcntl
import os
import tempfile
from pathlib import Path
from typing import TextIO

from espalier.errors import DeviceError

_FILE = "espalier-accelerator.lock"
_FOLDER = "ESPALIER_LOCKS"  # environment variable


class BoardLock:
    """Taken once per process, however often `take` is called; given back by as many calls of `release`.

    The system gives it back when the process ends, whatever way.
    """

    def __init__(self) -> None:
        self._stream: TextIO | None = None
        self._users = 0

    def take(self) -> None:
        """Take the board.

        Raises:
            DeviceError: another process has it, or the lock cannot be written.

        """
        if self._stream is None:
            self._stream = self._open()
        self._users += 1

    def release(self) -> None:
        """Give the board back if this was the last user."""
        self._users = max(0, self._users - 1)
        if self._users == 0 and self._stream is not None:
            self._stream.close()
            self._stream = None

    @staticmethod
    def _open() -> TextIO:
        path = _folder() / _FILE
        try:
            number = os.open(path, os.O_RDWR | os.O_CREAT | os.O_NOFOLLOW, 0o666)
        except OSError as error:
            raise DeviceError(
                f"cannot write {path} ({error.strerror}): run as root, as PYNQ needs it"
            ) from error
        stream = os.fdopen(number, "r+", encoding="utf-8")
        try:
            fcntl.flock(stream, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except OSError as error:
            holder = stream.read().strip() or "unknown"
            stream.close()
            raise DeviceError(
                f"the accelerator is in use by process {holder}: end it or close its Accelerator first"
            ) from error
        stream.truncate(0)
        stream.write(f"{os.getpid()}\n")
        stream.flush()
        return stream


def _folder() -> Path:
    if chosen := os.environ.get(_FOLDER):
        return Path(chosen)
    system = Path("/run/lock")
    return system if os.access(system, os.W_OK) else Path(tempfile.gettempdir())


LOCK = BoardLock()
