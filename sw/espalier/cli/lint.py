"""Runs the linters one after the other and fails if any does."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

COMMANDS = (
    ("ruff", "check", "."),
    ("ruff", "format", "--check", "."),
    ("mypy",),
    ("lint-imports",),
)


def main() -> int:
    """Run every linter, even after a failure; returns the number that failed."""
    folder = Path(sys.executable).parent
    failed = [command for command in COMMANDS if subprocess.call([str(folder / command[0]), *command[1:]])]
    for command in failed:
        print(f"lint: {' '.join(command)} failed", file=sys.stderr)
    return len(failed)


if __name__ == "__main__":
    sys.exit(main())
