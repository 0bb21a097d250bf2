"""Right answers of two networks on the same pictures, and how sure their difference is."""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import Any

import numpy as np
import numpy.typing as npt

_NORMAL_95 = 1.959964  # two-sided 95 % of the normal distribution
Booleans = npt.NDArray[np.bool_]


@dataclass(frozen=True)
class Paired:
    """Share right of the second network minus share right of the first, with its 95 % interval."""

    difference: float
    low: float
    high: float


def in_top(scores: npt.NDArray[Any], classes: npt.NDArray[np.int64], count: int) -> Booleans:
    """Whether each picture's class is among its `count` highest scores; of equal scores the first wins.

    Args:
        scores: [N, classes], float or stored bytes.
        classes: int64[N].
        count: 1, 5, ...

    """
    own = np.take_along_axis(scores, classes[:, None], axis=1)
    earlier = np.arange(scores.shape[1])[None, :] < classes[:, None]
    before = ((scores > own) | ((scores == own) & earlier)).sum(axis=1)
    result: Booleans = before < count
    return result


def paired(first: Booleans, second: Booleans) -> Paired:
    """Difference of two shares measured on the same pictures.

    The interval is that of Agresti and Min (adjusted Wald: half a picture is added to each of the four
    cells), which stays honest when hardly any or no answers differ.

    Args:
        first: bool[N], whether the first network was right.
        second: bool[N], the second one.

    """
    lost, won = int((first & ~second).sum()), int((~first & second).sum())
    total = len(first)
    more_lost, more_won, more = lost + 0.5, won + 0.5, total + 2.0
    centre = (more_won - more_lost) / more
    spread = math.sqrt(max(more_won + more_lost - (more_won - more_lost) ** 2 / more, 0.0)) / more
    return Paired((won - lost) / total, centre - _NORMAL_95 * spread, centre + _NORMAL_95 * spread)
