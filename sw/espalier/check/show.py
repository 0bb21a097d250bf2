"""A report for people: a table on a terminal, plain lines elsewhere."""

from __future__ import annotations

import sys
from collections import Counter
from collections.abc import Iterator
from itertools import groupby

from espalier.check.verdict import CheckReport, NodeVerdict, Problem

MANY = 30  # nodes; of more than that, those that are fine are summarised
HEADER = ("node", "operator", "verdict", "as", "cycles")
_VERDICTS = {True: "runs", False: "DOES NOT RUN", None: "not judged"}
_UNITS = {"conv": "convolution layer", "pool": "pool layer", "fused": "fused", "none": "without work"}

Row = tuple[str, str, str, str, str]


def node_rows(report: CheckReport, every: bool) -> Iterator[tuple[bool | None, Row]]:
    """Rows of the table, and whether their nodes run; fine ones of many nodes are counted without `every`."""
    short = not every and len(report.nodes) > MANY
    for runs, members in groupby(report.nodes, key=lambda node: node.runs):
        nodes = list(members)
        if short and runs and len(nodes) > 1:
            counts = Counter(_UNITS[node.unit] for node in nodes)
            listed = ", ".join(
                _count(count, unit) if unit.endswith("layer") else f"{count} {unit}"
                for unit, count in counts.items()
            )
            cycles = sum(node.cycles or 0 for node in nodes)
            name = f"{nodes[0].name} .. {nodes[-1].name}"
            yield True, (name, f"{len(nodes)} nodes", "run", listed, f"{cycles:,}" if cycles else "")
        else:
            yield from ((runs, _row(node)) for node in nodes)


def _row(node: NodeVerdict) -> Row:
    cycles = "" if node.cycles is None else f"{node.cycles:,}"
    how = "; ".join(problem.what for problem in node.problems) or node.how
    return node.name, node.operator, _VERDICTS[node.runs], how, cycles


def lines(report: CheckReport) -> Iterator[str]:
    """Everything but the table: what to do, memories, time, the verdict."""
    yield from _to_do(report)
    for memory in report.memories:
        needed = f"at least {memory.needed}" if memory.at_least else f"{memory.needed}"
        share = f"{memory.needed / memory.available:.0%}"
        verdict = " DOES NOT FIT" if memory.fits is False else ""
        detail = f"; {memory.detail}" if memory.detail else ""
        yield f"{memory.name}: {needed} of {memory.available} words ({share}){verdict}{detail}"
    yield from (f"note: {note}" for note in report.notes)
    if report.cycles is not None:
        yield (
            f"predicted: {report.cycles:,} cycles, {report.milliseconds:.3f} ms at {report.clock_mhz} MHz"
            f" ({report.clock_source})"
        )
    else:
        yield "predicted: no cycles, as not everything runs"
    if (assumed := report.assumption) is not None:
        how = "the same share in every layer" if assumed.uniform else "shared out as `espalier compress` does"
        yield (
            f"assumed: {assumed.density:.1%} of the weights are kept, {how}, {assumed.bits} bits each, in"
            " random places; streams, tables and cycles are estimates until the network is compressed"
        )
    yield _verdict(report)


def _to_do(report: CheckReport) -> Iterator[str]:
    for problem in report.problems:
        yield from _problem("", problem)
    for node in report.nodes:
        for problem in node.problems:
            yield from _problem(f"{node.name} ({node.operator}): ", problem)


def _problem(where: str, problem: Problem) -> Iterator[str]:
    yield f"problem: {where}{problem.what}"
    yield f"    to do: {problem.advice}"


def _verdict(report: CheckReport) -> str:
    bad = sum(node.runs is False for node in report.nodes)
    open_ = sum(node.runs is None for node in report.nodes)
    where = f"{report.model} on {report.target}"
    if report.runs:
        return f"{where}: everything runs ({_count(len(report.nodes), 'node')})"
    parts = [f"{bad} of {len(report.nodes)} nodes not supported"] if bad else []
    parts += [f"{open_} could not be judged"] if open_ else []
    parts += [f"{_count(len(report.problems), 'problem')} of the network"] if report.problems else []
    return f"{where}: DOES NOT RUN: {', '.join(parts)}"


def _count(number: int, what: str) -> str:
    return f"{number} {what}" if number == 1 else f"{number} {what}s"


def show(report: CheckReport, every: bool) -> None:
    """Print a report; `every`: all nodes, however many are fine."""
    rows = list(node_rows(report, every))
    if sys.stdout.isatty():
        _show_table(report, rows)
    elif rows:
        cells = [HEADER, *(row for _, row in rows)]
        widths = [max(len(_clean(row[column])) for row in cells) for column in range(len(HEADER))]
        for row in cells:
            padded = [_clean(cell).ljust(width) for cell, width in zip(row, widths, strict=True)]
            _echo("  ".join(padded).rstrip())
    for line in lines(report):
        _echo(_clean(line))


def _show_table(report: CheckReport, rows: list[tuple[bool | None, Row]]) -> None:
    from rich.console import Console
    from rich.table import Table
    from rich.text import Text

    if not rows:
        return
    table = Table(title=Text(_clean(f"{report.model} on {report.target}")))
    for name in HEADER:
        table.add_column(name, justify="right" if name == "cycles" else "left", overflow="fold")
    styles = {True: "", False: "bold red", None: "yellow"}
    for runs, row in rows:
        table.add_row(*(Text(_clean(cell)) for cell in row), style=styles[runs])
    Console().print(table)


def _clean(text: str) -> str:
    """Names come from files: nothing in them may move the cursor."""
    return "".join(char if char.isprintable() else "?" for char in text)


def _echo(text: str) -> None:
    encoding = sys.stdout.encoding or "utf-8"
    print(text.encode(encoding, "backslashreplace").decode(encoding))
