"""Spreads the operators of a sparse network over its layers so that the accelerator is fastest.

    python -m espalier_sim.density_search --minutes 10 --seed 1

The first convolution keeps its density and all others together their share of the multiply-accumulates, so
that the work stays the same: layers that wait for windows or for words to be written get more of it, at no
cost, and layers that compute all the time get less. Judged by the compiler's cycle model, on random masks.
"""

from __future__ import annotations

import argparse
import json
import math
import sys
import time
from collections.abc import Callable

import numpy as np

from espalier.arch.config import HardwareConfig, load_config
from espalier.backend.compiler import compile_graph
from espalier.errors import CapacityError, UserError
from espalier.ir.graph import IntegerGraph
from espalier.models.builtin import load_builtin
from espalier_sim import variants

_STEP = 0.15  # of the logarithm of a layer's share, on average
Shares = dict[str, float]


def even_shares(graph: IntegerGraph) -> Shares:
    """Give all convolutions but the first the same density."""
    return {node.name: 1.0 for node in variants.behind_first(graph)}


def predict(graph: IntegerGraph, shares: Shares, config: HardwareConfig, first: float, rest: float) -> float:
    """Cycles of a graph with random masks of these densities; infinite if it does not fit."""
    try:
        image = compile_graph(variants.redistributed(graph, first, rest, shares), config)
    except CapacityError:
        return math.inf
    return float(image.metadata.predicted_cycles)


def search(
    judge: Callable[[Shares], float], shares: Shares, seconds: float, seed: int, say: Callable[[str], None]
) -> Shares:
    """Change the share of one layer at a time, drawn at random, and keep what is faster."""
    random = np.random.default_rng(seed)
    best, cycles = dict(shares), judge(shares)
    started = time.monotonic()
    while time.monotonic() - started < seconds:
        name = str(random.choice(list(best)))
        changed = {**best, name: best[name] * math.exp(random.normal(0.0, _STEP))}
        found = judge(changed)
        if found < cycles:
            best, cycles = changed, found
            say(f"{time.monotonic() - started:5.0f} s  {cycles:,.0f} cycles  {name} {best[name]:.2f}")
    return best


def main() -> None:
    """Command line."""
    parser = argparse.ArgumentParser(description="Spread operators over the layers of the built-in model.")
    parser.add_argument("--target", default="zcu104", help="preset or configuration file")
    parser.add_argument("--first", type=float, default=0.5, help="density of the first convolution")
    parser.add_argument(
        "--rest", type=float, default=0.1, help="share of the other multiply-accumulates kept"
    )
    parser.add_argument("--minutes", type=float, default=10.0, help="time to search")
    parser.add_argument("--seed", type=int, default=1, help="of the search")
    parser.add_argument("--begin", choices=("even", "known"), default="known", help="where to begin")
    arguments = parser.parse_args()
    try:
        config = load_config(arguments.target)
        graph = load_builtin("resnet18")
        shares = even_shares(graph) if arguments.begin == "even" else dict(variants.RESNET18_SHARES)
        first, rest = arguments.first, arguments.rest
        shares = search(
            lambda own: predict(graph, own, config, first, rest),
            shares,
            60 * arguments.minutes,
            arguments.seed,
            lambda text: print(text, file=sys.stderr, flush=True),
        )
    except UserError as error:
        sys.exit(f"error: {error}")
    print(json.dumps({name: round(share, 3) for name, share in shares.items()}, indent=2))


if __name__ == "__main__":
    main()
