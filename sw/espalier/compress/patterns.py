"""Patterns of non-zeros that hardware may ask for, each a projection: which scores stay.

A weight matrix is [K filters, n inputs]; inputs lie in the order channel, kernel row, kernel column.
"""

from __future__ import annotations

import re
from dataclasses import dataclass
from typing import Any

import numpy as np
import numpy.typing as npt

from espalier.errors import UserError

Mask = npt.NDArray[np.bool_]
Scores = npt.NDArray[np.floating[Any]]
CHOICES = "none, row, row:K, bank:B, N:M or block:1xB"


@dataclass(frozen=True)
class Pattern:
    """Which sets of weights may stay.

    kind "none": any `keep` weights of the layer. "row": equally many in every filter, `count` or the layer's
    share. "bank": equally many in each run of `size` inputs of a filter, `count` or the layer's share; a
    shorter last run keeps about the same share. "block": runs of `size` inputs stay or go as a whole.
    """

    kind: str = "none"
    size: int = 1
    count: int | None = None

    def density(self, inputs: int) -> float | None:
        """Share of the weights that a filter of so many inputs keeps, None if the pattern leaves it open."""
        if self.count is None:
            return None
        if self.kind == "row":
            return min(self.count, inputs) / inputs
        whole, rest = divmod(inputs, self.size)
        return (whole * self.count + (self._share(rest, self.count / self.size) if rest else 0)) / inputs

    def mask(self, scores: Scores, keep: int) -> Mask:
        """Keep the highest scores that the pattern admits, `keep` of them or slightly fewer.

        Where that would leave a row or bank empty it keeps one weight instead.

        Args:
            scores: [K, n], not negative.
            keep: weights of the whole layer to keep; without meaning if the pattern says it itself.

        """
        filters, inputs = scores.shape
        share = min(1.0, keep / scores.size)
        if self.kind == "row":
            return top_of_rows(scores, min(inputs, self.count or self._share(inputs, share)))
        if self.kind == "bank":
            if self.count is not None:
                share = self.count / self.size
            whole = inputs // self.size * self.size
            mask = np.ones(scores.shape, dtype=bool)
            banks = scores[:, :whole].reshape(-1, self.size)
            mask[:, :whole] = top_of_rows(banks, self._share(self.size, share)).reshape(filters, whole)
            if whole < inputs:
                rest = self._share(inputs - whole, share)
                mask[:, whole:] = top_of_rows(scores[:, whole:], rest)
            return mask
        if self.kind == "block":
            starts = np.arange(0, inputs, self.size)
            sums = np.add.reduceat(scores.astype(np.float64) ** 2, starts, axis=1)
            chosen = top_mask(sums, max(1, keep // self.size))
            blocks: Mask = np.repeat(chosen, self.size, axis=1)[:, :inputs]
            return blocks
        return top_mask(scores, keep)

    @staticmethod
    def _share(size: int, share: float) -> int:
        return max(1, min(size, int(size * share + 1e-9)))


NONE = Pattern()


def parse_pattern(text: str) -> Pattern:
    """Pattern of its name: none, row, row:K, bank:B, N:M, block:1xB.

    Raises:
        UserError: no such pattern, or numbers that make no sense.

    """
    if text in ("none", "row"):
        return Pattern(text)
    found = re.fullmatch(r"(row:|bank:|block:1x|(\d{1,6}):)(\d{1,6})", text)
    if not found or int(found[3]) < 1 or (found[2] and not 1 <= int(found[2]) <= int(found[3])):
        raise UserError(f"unknown pattern '{text}' of non-zeros: choose {CHOICES}")
    number = int(found[3])
    if found[2]:
        return Pattern("bank", number, int(found[2]))
    kind = found[1].split(":")[0]
    return Pattern("row", 1, number) if kind == "row" else Pattern(kind, number)


def top_mask(scores: Scores, keep: int) -> Mask:
    """Mask of the `keep` largest scores of the whole matrix; ties are broken by position."""
    flat = scores.reshape(-1)
    mask = np.zeros(flat.size, dtype=bool)
    if keep >= flat.size:
        mask[:] = True
    elif keep > 0:
        threshold = np.partition(flat, flat.size - keep)[flat.size - keep]
        mask[flat > threshold] = True
        ties = np.flatnonzero(flat == threshold)
        mask[ties[: keep - int(mask.sum())]] = True
    return mask.reshape(scores.shape)


def top_of_rows(scores: Scores, keep: int) -> Mask:
    """Mask of the `keep` largest scores of every row; ties are broken by position."""
    mask = np.zeros(scores.shape, dtype=bool)
    chosen = np.argsort(-scores, axis=1, kind="stable")[:, :keep]
    np.put_along_axis(mask, chosen, True, axis=1)
    return mask
