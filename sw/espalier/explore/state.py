"""What an exploration has evaluated, kept in a file so that it can go on where it was stopped."""

from __future__ import annotations

import json
from pathlib import Path

from espalier.errors import UserError
from espalier.explore.evaluate import Outcome

_SCHEMA = 2
# What a file belongs to, for people.
_NAMES = {
    "schema": "format",
    "model": "model",
    "target": "target",
    "version": "version of Espalier's compiler",
}


class State:
    """Outcomes by the key of a design. One line of JSON each, written as soon as it is known.

    A line that was not written to its end is dropped. Crashes are not kept: what crashed is evaluated again
    by the next exploration.
    """

    def __init__(self, path: Path | None, identity: dict[str, str], restart: bool = False) -> None:
        """`identity`: what outcomes belong to, see `identity_of`; restart: forget what is in the file.

        Raises:
            UserError: the file is no state, or of another identity without `restart`.
            OSError: it cannot be read or written.

        """
        self._path, self._header = path, {"schema": _SCHEMA, **identity}
        self.outcomes: dict[str, Outcome] = {}
        if path is None:
            return
        if path.is_file():
            self._check(path, restart)
        if path.is_file() and not restart:
            self._read(path)
        else:
            path.parent.mkdir(parents=True, exist_ok=True)
            path.write_text(json.dumps(self._header) + "\n", encoding="utf-8")

    def add(self, key: str, outcome: Outcome) -> None:
        """Keep an outcome."""
        self.outcomes[key] = outcome
        if self._path is not None and not outcome.crashed:
            row = {"design": key, "cycles": outcome.cycles, "reason": outcome.reason}
            with self._path.open("a", encoding="utf-8") as file:
                file.write(json.dumps(row) + "\n")

    def _read(self, path: Path) -> None:
        text = path.read_text(encoding="utf-8", errors="replace")
        head, *lines = text.splitlines()
        whole = [head]
        for line in lines:
            try:
                row = json.loads(line)
                self.outcomes[row["design"]] = Outcome(row["cycles"], row["reason"])
            except (ValueError, KeyError, TypeError):
                continue  # cut off when the exploration was stopped
            whole.append(line)
        if (kept := "\n".join(whole) + "\n") != text:
            path.write_text(kept, encoding="utf-8")

    def _check(self, path: Path, restart: bool) -> None:
        """Refuse a file that is no state, and unless it is begun anew also one of another identity."""
        with path.open("rb") as file:
            line = file.readline()
        try:
            header = json.loads(line)
        except ValueError:
            header = None
        if not isinstance(header, dict) or "schema" not in header:
            raise UserError(f"{path} is no state of an exploration: give another --state")
        other = [_NAMES[key] for key, value in self._header.items() if header.get(key) != value]
        if other and not restart:
            raise UserError(
                f"the results in {path} are of another {' and another '.join(other)}: give another --state,"
                " or --restart to begin anew in this file"
            )
