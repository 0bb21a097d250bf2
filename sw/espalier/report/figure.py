"""Figures as SVG files in one style; equal numbers give equal files. matplotlib is loaded when needed."""

from __future__ import annotations

import importlib.util
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

from espalier.errors import ToolNotFoundError

OURS, OTHER, LOSS, MARK = "#1f6f8b", "#b8b8b8", "#d98032", "#222222"
_STYLE = {
    "svg.hashsalt": "espalier",
    "svg.fonttype": "none",
    "font.family": ["sans-serif"],
    "font.sans-serif": ["DejaVu Sans", "Verdana", "sans-serif"],
    "font.size": 11,
    "axes.spines.top": False,
    "axes.spines.right": False,
    "axes.axisbelow": True,
    "axes.grid": True,
    "grid.color": "#e6e6e6",
    "figure.facecolor": "white",
    "savefig.facecolor": "white",
}
_WIDTH = 9.2  # inches: about the width of a README at 100 dots an inch


def check_matplotlib(what: str) -> None:
    """Fail before hours of work; `what` needs it.

    Raises:
        ToolNotFoundError: matplotlib is not installed.

    """
    if importlib.util.find_spec("matplotlib") is None:
        raise ToolNotFoundError(
            f"{what} needs matplotlib, which is not installed: pip install 'espalier-accel[report]'"
        )


@contextmanager
def figure(path: Path, height: float, columns: int = 1) -> Iterator[Any]:
    """Give the axes of a new figure, write it at the end; no date, no random names inside."""
    import matplotlib
    from matplotlib.backends.backend_svg import FigureCanvasSVG
    from matplotlib.figure import Figure

    with matplotlib.rc_context(_STYLE):
        drawing = Figure(figsize=(_WIDTH, height), dpi=100, layout="constrained")
        FigureCanvasSVG(drawing)
        yield drawing.subplots(1, columns)
        path.parent.mkdir(parents=True, exist_ok=True)
        drawing.savefig(path, format="svg", metadata={"Date": None, "Creator": None})
