"""What an exploration has evaluated, kept in a file so that it can go on where it was stopped."""

from __future__ import annotations

import json
from dataclasses import asdict
from pathlib import Path

from espalier.errors import UserError
from espalier.explore.design import Design
from espalier.explore.evaluate import Outcome

_SCHEMA = 1


class State:
    """Outcomes by design. One line of JSON each, written as soon as it is known."""

    def __init__(self, path: Path | None, network: str) -> None:
        """`network`: identity of model and target; a file of another one is refused with UserError."""
        self._path, self._header = path, {"schema": _SCHEMA, "network": network}
        self.outcomes: dict[str, Outcome] = {}
        if path is None:
            return
        if path.is_file():
            self._read(path)
        else:
            path.parent.mkdir(parents=True, exist_ok=True)
            path.write_text(json.dumps(self._header) + "\n", encoding="utf-8")

    def add(self, design: Design, outcome: Outcome) -> None:
        """Keep an outcome."""
        self.outcomes[design.key] = outcome
        if self._path is not None:
            with self._path.open("a", encoding="utf-8") as file:
                file.write(json.dumps({"design": design.key, **asdict(outcome)}) + "\n")

    def _read(self, path: Path) -> None:
        lines = path.read_text(encoding="utf-8", errors="replace").splitlines()
        try:
            header = json.loads(lines[0])
        except (IndexError, ValueError):
            header = None
        if header != self._header:
            raise UserError(
                f"{path} is no state of an exploration of this model for this target: give another --state,"
                " or remove the file"
            )
        whole = [lines[0]]
        for line in lines[1:]:
            try:
                row = json.loads(line)
                self.outcomes[row["design"]] = Outcome(row["cycles"], row["reason"])
            except (ValueError, KeyError, TypeError):
                continue  # cut off when the exploration was stopped
            whole.append(line)
        if len(whole) < len(lines):
            path.write_text("\n".join(whole) + "\n", encoding="utf-8")
