"""Shared parts: how many operators each PE of a pair takes, and the parts that come of it.

The compiler looks at many ways to share filters, for which it is enough to know how many operators every part
has in every block. The operators themselves move when somebody wants them, in the mapping that is chosen.
"""

from __future__ import annotations

import dataclasses
from dataclasses import dataclass

import numpy as np

from espalier.backend.deal import Shape, as_deal
from espalier.backend.digits import Parts, group_sums
from espalier.backend.plan import CountArray, Deal, IntArray


@dataclass(frozen=True)
class Links:
    """Shared parts, one element per link.

    part, other: the parts whose operators are shared, other = -1 if the part is cut in two. bin: where;
    left, right: PEs. Links of one group touch no PE twice, so that they can be balanced at once.
    """

    part: IntArray
    other: IntArray
    bin: IntArray
    group: IntArray
    left: IntArray
    right: IntArray


@dataclass(frozen=True)
class SharedParts:
    """Parts of which some are shared, and how they are dealt.

    parts: before. counts: int32[P, blocks], operators of every part afterwards, cut parts being two. taken:
    int64[links, blocks], operators of every link that the part on the left gets.
    """

    parts: Parts
    counts: CountArray
    deal: Deal
    links: Links
    taken: IntArray
    block_words: int

    def build(self) -> Parts:
        """Give every operator of a link to the part on the left or on the right: the parts afterwards."""
        parts, links = self.parts, self.links
        paired = links.other >= 0
        link_of = np.full(parts.count, -1, np.int64)
        link_of[links.part] = np.arange(len(links.part))
        link_of[links.other[paired]] = np.flatnonzero(paired)
        pieces = _pieces(parts, links)
        start = np.cumsum(pieces) - pieces  # numbers of the parts once cut parts are two
        first = start[links.part]

        link = link_of[parts.part]
        shared = np.flatnonzero(link >= 0)
        group = link[shared] * self.taken.shape[1] + parts.word[shared] // self.block_words
        order_of = np.argsort(group, kind="stable")
        shared, group = shared[order_of], group[order_of]
        count = np.bincount(group, minlength=self.taken.size)
        rank = np.arange(len(group)) - (np.cumsum(count) - count)[group]
        moved = start[parts.part]
        moved[shared] = first[link[shared]] + (rank >= self.taken.reshape(-1)[group])

        # Parts hold their operators by word and tap, the parts of a link too.
        sequence = np.argsort(moved * parts.words + parts.word if paired.any() else moved, kind="stable")
        return dataclasses.replace(
            parts,
            word=parts.word[sequence],
            tap=parts.tap[sequence],
            digit=parts.digit[sequence],
            part=moved[sequence],
            filter_of=np.repeat(parts.filter_of, pieces),
            high=np.repeat(parts.high, pieces),
            first_part=np.append(start, pieces.sum())[parts.first_part],
        )


class Exchange:
    """What links of one layer's parts do to the counts of operators.

    counts: int32[P, blocks], operators of every part in every block of so many words.
    """

    def __init__(self, parts: Parts, counts: CountArray, block_words: int) -> None:
        self.parts, self.counts, self.block_words = parts, counts, block_words
        before = np.cumsum(counts, dtype=np.int64).reshape(counts.shape) - counts
        self._begin = before  # number of the first operator of every part and block
        digit = parts.digit
        # Sums of all digits before an operator, positive and negative ones.
        self._sums = np.zeros((len(digit) + 1, 2), np.int64)
        np.cumsum(np.maximum(digit, 0), out=self._sums[1:, 0])
        np.cumsum(np.maximum(-digit, 0), out=self._sums[1:, 1])
        self._sums_of = group_sums(parts.part, digit, parts.count)

    def shared(self, links: Links, place: IntArray, taken: IntArray, shape: Shape) -> SharedParts | None:
        """Share parts so that the left ones of links get `taken` operators (int64[links, blocks]).

        place: int64[P], bin * width + PE of every part, the left PE if the part is cut. None: see `as_deal`.
        """
        taken = self._without_overflow(links, taken)
        pieces = _pieces(self.parts, links)
        first = (np.cumsum(pieces) - pieces)[links.part]
        cut = links.other < 0
        where = np.repeat(place, pieces)
        where[first[cut] + 1] = (links.bin * shape.width + links.right)[cut]
        deal = as_deal(where, shape)
        if deal is None:
            return None
        counts: CountArray = np.repeat(self.counts, pieces, axis=0)
        both = self.counts[links.part]
        both[~cut] += self.counts[links.other[~cut]]
        counts[first] = taken
        counts[first + 1] = both - taken
        return SharedParts(self.parts, counts, deal, links, taken, self.block_words)

    def _without_overflow(self, links: Links, taken: IntArray) -> IntArray:
        """Leave operators where they were in links of which a part would exceed its bound.

        taken: int64[links, blocks]. A part that is cut cannot exceed it: whole it does not.
        """
        pairs = np.flatnonzero(links.other >= 0)
        if not len(pairs):
            return taken
        part, other, wanted = links.part[pairs], links.other[pairs], taken[pairs]
        here = np.minimum(wanted, self.counts[part])
        left = self._between(part, here) + self._between(other, wanted - here)
        right = self._sums_of[part] + self._sums_of[other] - left
        failed = np.maximum(left, right).max(axis=1) > self.parts.bound
        taken[pairs[failed]] = self.counts[part[failed]]
        return taken

    def _between(self, part: IntArray, count: IntArray) -> IntArray:
        """Sum up the first `count` (int64[n, blocks]) operators of every block of a part: int64[n, 2]."""
        begin = self._begin[part]
        sums: IntArray = (self._sums[begin + count] - self._sums[begin]).sum(axis=1)
        return sums


def _pieces(parts: Parts, links: Links) -> IntArray:
    """How many parts each part is afterwards: int64[P]."""
    result = np.ones(parts.count, np.int64)
    result[links.part[links.other < 0]] = 2
    return result
