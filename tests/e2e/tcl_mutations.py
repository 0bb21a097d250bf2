"""Mutation test of the Vivado scripts: which damages does the stand-in, or a test of errors, notice?

    PYTHONPATH=sw:hw:sim python tests/e2e/tcl_mutations.py [TYPOS_PER_LINE]

prints the table of docs/bitstream.md. A mutant is caught if a build that should pass fails, or one that
should fail passes or fails with another message; it is harmless if every build, with or without faults,
leaves exactly the same model of project and IP, description and reports.
"""

from __future__ import annotations

import os
import random
import re
import shutil
import subprocess
import sys
import tempfile
from dataclasses import dataclass
from pathlib import Path

from espalier.arch.board import load_board
from espalier.arch.config import load_config
from espalier_hw.top import Espalier
from espalier_hw.vivado.deliver import write_scripts
from espalier_hw.vivado.stages import STAGES, STAND_IN

BOARDS = ("zcu104", "pynqz2", "kv260")
FAULTS = (
    "old", "no_part", "integrity", "no_board", "no_ip", "no_hwh",
    "clock", "progress", "unrouted", "slack", "hold", "no_paths",
)  # fmt: skip
SCRIPTS = ("common", *(stage.name for stage in STAGES))
LETTERS = "abcdefghijklmnopqrstuvwxyz0123456789_"


@dataclass(frozen=True)
class Outcome:
    """What a build leaves: message of its failure, if any, and its files."""

    failure: str
    files: tuple[tuple[str, str], ...]


def outcome(folder: Path, fault: str) -> Outcome:
    """Run all stages in a fresh copy of a folder."""
    for name in ("vivado", "reports"):
        shutil.rmtree(folder / name, ignore_errors=True)
        (folder / name).mkdir()
    environment = os.environ | {"STAND_IN_FAULT": fault}
    for stage in STAGES:
        command = [
            STAND_IN,
            "-mode",
            "batch",
            "-source",
            f"scripts/{stage.name}.tcl",
            "-tclargs",
            folder,
            "2",
        ]
        try:
            run = subprocess.run(
                command, cwd=folder, env=environment, capture_output=True, text=True, timeout=10
            )
        except subprocess.TimeoutExpired:
            return Outcome(f"{stage.name}: time-out", ())
        if run.returncode:
            return Outcome(f"{stage.name}: {run.stderr.partition(chr(10))[0]}", ())
        for path in stage.results:
            if not (folder / path).is_file() or not (folder / path).stat().st_size:
                return Outcome(f"{stage.name}: no {path}", ())
    files = sorted(path for path in folder.rglob("*") if path.is_file() and "scripts" not in path.parts)
    return Outcome("", tuple((str(path.relative_to(folder)), path.read_text()) for path in files))


def prepare(folder: Path) -> dict[str, Path]:
    """Folders with the ports of the accelerator and the scripts, by board."""
    config = load_config("tiny")
    ports = "".join(
        f"  {'input' if member.flow.name == 'In' else 'output'} {name};\n"
        for name, member in Espalier(config).signature.members.items()
    )
    found = {}
    for name in BOARDS:
        found[name] = folder / name
        found[name].mkdir()
        (found[name] / "espalier.v").write_text(f"module espalier();\n{ports}endmodule\n")
        write_scripts(found[name], config, load_board(name), 100.0, "", "mutation test")
    return found


def mutants(text: str, typos: int, numbers: random.Random) -> list[tuple[str, str, str]]:
    """Kind, changed line and text of mutants: each line left out, characters of words replaced."""
    lines = text.split("\n")
    code = [i for i, line in enumerate(lines) if line.strip() and not line.strip().startswith("#")]
    found = [("deletion", lines[i], "\n".join(lines[:i] + lines[i + 1 :])) for i in code]
    for i in code:
        places = [match.start() for match in re.finditer(r"\w", lines[i])]
        for place in numbers.sample(places, min(typos, len(places))):
            letter = numbers.choice([c for c in LETTERS if c != lines[i][place]])
            line = lines[i][:place] + letter + lines[i][place + 1 :]
            found.append(("typo", line, "\n".join([*lines[:i], line, *lines[i + 1 :]])))
    return found


def verdict(folders: dict[str, Path], expected: dict[tuple[str, str], Outcome]) -> str:
    """Compare every build with what the scripts as they are do: caught, harmless or missed."""
    harmless = True
    for (board, fault), right in expected.items():
        found = outcome(folders[board], fault)
        if found.failure != right.failure:
            return "caught"
        harmless &= found == right
    return "harmless" if harmless else "missed"


def measure(script: str, typos: int, sample: int | None = None) -> dict[tuple[str, str], list[str]]:
    """Mutants of one script by kind and verdict; sample: how many, all if None."""
    with tempfile.TemporaryDirectory() as name:
        folders = prepare(Path(name))
        expected = {(board, ""): outcome(folders[board], "") for board in BOARDS}
        expected |= {("zcu104", fault): outcome(folders["zcu104"], fault) for fault in FAULTS}
        path = Path("scripts") / f"{script}.tcl"
        text = (folders["zcu104"] / path).read_text()
        numbers = random.Random(script)
        every = mutants(text, typos, numbers)
        results: dict[tuple[str, str], list[str]] = {}
        for kind, line, mutant in every if sample is None else numbers.sample(every, sample):
            for folder in folders.values():
                (folder / path).write_text(mutant)
            results.setdefault((kind, verdict(folders, expected)), []).append(line)
        return results


def main() -> None:
    """Print the table."""
    typos = int(sys.argv[1]) if len(sys.argv) > 1 else 3
    print("| script | deletions | caught | harmless | typos | caught | harmless |\n" + 7 * "|---" + "|")
    total = [0] * 6
    for script in SCRIPTS:
        results = measure(script, typos)
        row = []
        for kind in ("deletion", "typo"):
            counts = [len(results.get((kind, what), [])) for what in ("caught", "harmless", "missed")]
            row += [sum(counts), *counts[:2]]
            for line in results.get((kind, "missed"), []):
                print(f"missed {kind} in {script}: {line.strip()}", file=sys.stderr)
        total = [a + b for a, b in zip(total, row, strict=True)]
        print(f"| `{script}.tcl` | {' | '.join(map(str, row))} |", flush=True)
    print(f"| all | {' | '.join(map(str, total))} |")


if __name__ == "__main__":
    main()
