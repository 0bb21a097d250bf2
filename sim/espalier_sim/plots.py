"""Plots of the performance page as SVG files; equal numbers give equal files."""

from __future__ import annotations

from pathlib import Path
from typing import Any

from espalier.report.figure import LOSS, MARK, OTHER, OURS, figure
from espalier_sim.bench_losses import STEPS

_THOUSANDS = "{x:,.0f}"


def waterfall(steps: dict[str, float], title: str, path: Path) -> None:
    """Draw where the cycles go: `steps` by the keys of `bench_losses.STEPS`, in cycles."""
    with figure(path, 4.4) as axes:
        base, total = 0.0, sum(steps.values())
        for index, (key, _) in enumerate(STEPS):
            value = steps[key]
            axes.bar(index, value, bottom=base, width=0.62, color=OURS if key == "ideal" else LOSS)
            base += value
            share = f"{value:,.0f}\n{value / total:.1%}"
            _above(axes, index, base, share)
            axes.plot([index + 0.31, index + 0.69], [base, base], color=MARK, linewidth=0.8)
        axes.bar(len(STEPS), total, width=0.62, color=OURS)
        _above(axes, len(STEPS), total, f"{total:,.0f}")
        labels = [label for _, label in STEPS] + ["total"]
        axes.set_xticks(range(len(labels)), labels, fontsize=9)
        axes.grid(visible=False, axis="x")
        # Losses are what the picture is for: where they are small, the axis begins near them.
        bottom = 1000 * int((steps["ideal"] - 1.5 * (total - steps["ideal"])) / 1000)
        axes.set_ylim(max(0, bottom), total + 0.16 * (total - max(0, bottom)))
        axes.set_ylabel("cycles" + (" (axis does not begin at 0)" if bottom > 0 else ""))
        axes.yaxis.set_major_formatter(_THOUSANDS)
        axes.set_title(title, loc="left")


def layers(rows: list[dict[str, Any]], lanes: int, title: str, path: Path) -> None:
    """Draw cycles of every layer (LayerResult as JSON) with the cycles that its work alone would need."""
    with figure(path, 1.4 + 0.27 * len(rows)) as axes:
        places = range(len(rows))
        axes.barh(places, [row["cycles"] for row in rows], height=0.66, color=OURS, label="cycles, RTL")
        ideal = [row["effective_macs"] / lanes for row in rows]
        axes.plot(
            ideal, places, linestyle="", marker="|", markersize=13, markeredgewidth=2.5, color=LOSS,
            label="ideal: effective MACs of the layer / lanes",
        )  # fmt: skip
        axes.set_yticks(places, [row["name"] for row in rows], fontsize=9)
        axes.invert_yaxis()
        axes.grid(visible=False, axis="y")
        axes.set_xlim(0, None)
        axes.set_xlabel("cycles since the end of the layer that ended before (layers overlap)")
        axes.xaxis.set_major_formatter(_THOUSANDS)
        axes.legend(loc="lower right", frameon=False)
        axes.set_title(title, loc="left")


def densities(curves: dict[str, list[tuple[float, float, float]]], title: str, path: Path) -> None:
    """Draw utilisation and cycles over density: by network, points (density, cycles, utilisation)."""
    with figure(path, 3.9, columns=2) as (use, cycles):
        for (name, points), color in zip(curves.items(), (OURS, LOSS, MARK), strict=False):
            shares = [100 * density for density, _, _ in points]
            use.plot(shares, [100 * value for _, _, value in points], "o-", color=color, label=name)
            cycles.plot(shares, [count / 1000 for _, count, _ in points], "o-", color=color, label=name)
        use.set_ylim(0, 100)
        use.set_ylabel("utilisation of all lanes, %")
        cycles.set_ylim(0, None)
        cycles.set_ylabel("thousand cycles, RTL")
        for axes in (use, cycles):
            axes.set_xlim(0, None)
            axes.set_xlabel("weights other than zero, %")
        use.legend(loc="lower right", frameon=False)
        use.set_title(title, loc="left")


def latencies(rows: list[tuple[str, float, bool]], title: str, path: Path) -> None:
    """Compare latencies: (label, milliseconds, whether it is ours), on a logarithmic axis."""
    with figure(path, 1.3 + 0.5 * len(rows)) as axes:
        for place, (_, value, own) in enumerate(rows):
            axes.barh(place, value, height=0.62, color=OURS if own else OTHER)
            axes.text(1.06 * value, place, f"{value:.3g} ms", va="center", fontsize=10)
        axes.set_yticks(range(len(rows)), [label for label, _, _ in rows], fontsize=9)
        axes.invert_yaxis()
        axes.set_xscale("log")
        smallest, largest = min(row[1] for row in rows), max(row[1] for row in rows)
        axes.set_xlim(smallest / 3, 2.2 * largest)
        axes.grid(visible=False, axis="y")
        axes.set_xlabel("latency of one picture, ms (logarithmic)")
        axes.xaxis.set_major_formatter("{x:g}")
        axes.set_title(title, loc="left")


def _above(axes: Any, place: float, value: float, text: str) -> None:
    axes.annotate(text, (place, value), (0, 3), textcoords="offset points", ha="center", fontsize=9)
