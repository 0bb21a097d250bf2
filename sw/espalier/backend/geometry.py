"""Kernel taps as window patterns: where every weight finds its pixels."""

from __future__ import annotations

import dataclasses
from dataclasses import dataclass

import numpy as np
import numpy.typing as npt

from espalier.arch.operators import WORD_TAPS
from espalier.arch.program import MAX_PATTERNS, PATTERN_FIELDS
from espalier.errors import CapacityError

_TILE_OFFSET = next(field for field in PATTERN_FIELDS if field.name == "tile_dy")


@dataclass(frozen=True)
class Pattern:
    """One window word per channel, see `PATTERN_FIELDS`."""

    tile_dy: int
    tile_dx: int
    row_offset: int
    column_offset: int
    taps: int
    fetch: bool


@dataclass(frozen=True)
class Geometry:
    """Patterns of a layer and, for every kernel position, its pattern and vertical tap.

    pattern_of, tap_of: int64[kernel_y, kernel_x]; -1 where the kernel position is not used.
    """

    stride: int
    patterns: tuple[Pattern, ...]
    pattern_of: npt.NDArray[np.int64]
    tap_of: npt.NDArray[np.int64]

    @property
    def fetches(self) -> int:
        """Windows read per channel."""
        return sum(pattern.fetch for pattern in self.patterns)


def kernel_geometry(
    used: npt.NDArray[np.bool_],
    stride: int,
    pads: tuple[int, int],
    dilation: int,
    tile_size: int,
    where: str,
) -> Geometry:
    """Cover the used positions of a kernel with patterns.

    used: bool[kernel_y, kernel_x]; pads: top and left. Vertical taps that are `stride` rows apart share a
    word, words that differ in their column only share a window.

    Raises:
        CapacityError: more patterns or larger offsets than the hardware has.

    """
    used = used.copy()
    if not used.any():
        used[0, 0] = True  # a layer needs at least one window to start its sums
    rows = {int(ky): int(ky) * dilation - pads[0] for ky in np.flatnonzero(used.any(axis=1))}
    bases = _row_bases(sorted(rows.values()), stride, tile_size)
    words: dict[tuple[int, int, int, int], int] = {}
    position: dict[tuple[int, int], tuple[tuple[int, int, int, int], int]] = {}
    for ky, kx in np.argwhere(used):
        base, tap = bases[rows[int(ky)]]
        tile_dy, row_offset = _split(base, stride, tile_size)
        tile_dx, column_offset = _split(int(kx) * dilation - pads[1], stride, tile_size)
        key = (tile_dy, tile_dx, row_offset, column_offset)
        words[key] = words.get(key, 0) | 1 << tap
        position[int(ky), int(kx)] = key, tap
    order = sorted(words)
    _check(order, where)
    patterns = tuple(
        Pattern(*key, taps=words[key], fetch=index == 0 or order[index - 1][:3] != key[:3])
        for index, key in enumerate(order)
    )
    pattern_of = np.full(used.shape, -1, np.int64)
    tap_of = np.full(used.shape, -1, np.int64)
    for (ky, kx), (key, tap) in position.items():
        pattern_of[ky, kx], tap_of[ky, kx] = order.index(key), tap
    return Geometry(stride, patterns, pattern_of, tap_of)


def pool_geometry(
    kernel: tuple[int, int], stride: int, pads: tuple[int, int], tile_size: int, where: str
) -> Geometry:
    """Cover a max-pooling window with steps of the pool unit.

    kernel: rows and columns; pads: top and left. For every group of kernel columns with the same centre tile,
    first the windows that hold all its rows, then a column step for each of its columns.

    Raises:
        CapacityError: more patterns or larger offsets than the hardware has.

    """
    rows: dict[int, int] = {}  # taps of every window, by its first row
    for base, tap in _row_bases([ky - pads[0] for ky in range(kernel[0])], stride, tile_size).values():
        rows[base] = rows.get(base, 0) | 1 << tap
    groups: dict[int, list[int]] = {}
    for kx in range(kernel[1]):
        tile_dx, column_offset = _split(kx - pads[1], stride, tile_size)
        groups.setdefault(tile_dx, []).append(column_offset)
    patterns: list[Pattern] = []
    for tile_dx, columns in sorted(groups.items()):
        for base in sorted(rows):
            tile_dy, row_offset = _split(base, stride, tile_size)
            patterns.append(Pattern(tile_dy, tile_dx, row_offset, 0, taps=rows[base], fetch=True))
        last = patterns[-1]
        patterns += [
            dataclasses.replace(last, column_offset=offset, taps=0, fetch=False) for offset in columns
        ]
    _check([(p.tile_dy, p.tile_dx, p.row_offset, p.column_offset) for p in patterns], where)
    nothing = np.full((1, 1), -1, np.int64)
    return Geometry(stride, tuple(patterns), nothing, nothing)


def global_geometry(tiles_y: int, tiles_x: int, where: str) -> Geometry:
    """One pattern per tile of the map, for the average over all of it."""
    order = [(y, x, 0, 0) for y in range(tiles_y) for x in range(tiles_x)]
    _check(order, where)
    patterns = tuple(Pattern(*key, taps=1, fetch=True) for key in order)
    nothing = np.full((1, 1), -1, np.int64)
    return Geometry(1, patterns, nothing, nothing)


def first_offset(stride: int, tile_size: int) -> int:
    """Smallest row or column offset of a pattern; `tile_size` consecutive ones exist."""
    return -(tile_size // 2) if stride == 1 else 2 - tile_size


def _split(offset: int, stride: int, tile_size: int) -> tuple[int, int]:
    """Split a pixel offset into tiles and the offset that remains inside the region."""
    first = first_offset(stride, tile_size)
    tiles = (offset - first) // tile_size
    return tiles, offset - tiles * tile_size


def _last_tap(base: int, stride: int, tile_size: int) -> int:
    """Largest tap whose rows all lie inside the region for a word that starts at `base`."""
    row_offset = _split(base, stride, tile_size)[1]
    last_row = row_offset + stride * (tile_size - 1)
    return min(WORD_TAPS - 1, (2 * tile_size - 1 - last_row) // stride)


def _row_bases(offsets: list[int], stride: int, tile_size: int) -> dict[int, tuple[int, int]]:
    """For every row offset the first row of its word and its tap, greedy with as few words as possible."""
    result: dict[int, tuple[int, int]] = {}
    for offset in offsets:
        if offset in result:
            continue
        candidates = []
        for lead in range(WORD_TAPS):
            base = offset - stride * lead
            taps = _last_tap(base, stride, tile_size)
            if lead <= taps:
                covered = [
                    base + stride * k
                    for k in range(taps + 1)
                    if base + stride * k in offsets and base + stride * k not in result
                ]
                candidates.append((len(covered), -lead, base, covered))
        _, _, base, covered = max(candidates)
        for row in covered:
            result[row] = base, (row - base) // stride
    return result


def _check(order: list[tuple[int, int, int, int]], where: str) -> None:
    if len(order) > MAX_PATTERNS:
        raise CapacityError(
            f"{where}: the window needs {len(order)} patterns, the hardware has {MAX_PATTERNS}"
            f" ({len(order) - MAX_PATTERNS} too many); use a smaller kernel or map"
        )
    low, high = _TILE_OFFSET.low, _TILE_OFFSET.high
    reach = [value for key in order for value in key[:2] if not low <= value <= high]
    if reach:
        raise CapacityError(
            f"{where}: the window reaches {max(map(abs, reach))} tiles from its centre, the hardware reaches"
            f" {low}..{high}; use a smaller kernel, dilation or map"
        )
