"""What the PEs of the emulator see: window words of a whole layer."""

from __future__ import annotations

import numpy as np

from espalier.arch.operators import WORD_TAPS
from espalier.backend.decode import Descriptor
from espalier.backend.emulate_pool import Bytes, Fail, frame


def window_words(step: Descriptor, pixels: Bytes, size: int, fail: Fail) -> list[list[Bytes]]:
    """Collect what every output tile sees: [pattern][tap] uint8[channels, tiles, T*T], legal taps only.

    pixels: uint8[C, tiles_y * T, tiles_x * T], the whole input.
    """
    fields, stride = step.fields, step.fields["stride"]
    framed, border = frame(fields, pixels, size)
    lane = np.arange(size)
    result: list[list[Bytes]] = []
    for number, pattern in enumerate(step.patterns):
        before = step.patterns[number - 1]
        same = all(pattern[name] == before[name] for name in ("tile_dy", "tile_dx", "row_offset"))
        if not pattern["fetch"] and (number == 0 or not same):
            fail(f"pattern {number} reuses another window")
        x0 = pattern["column_offset"]
        if x0 < 2 - size or x0 + stride * (size - 1) > 2 * size - 1:
            fail(f"pattern {number}: column offset {x0}")
        taps: list[Bytes] = []
        for tap in range(WORD_TAPS):
            y0 = pattern["row_offset"] + stride * tap
            if y0 < -size or y0 + stride * (size - 1) > 2 * size - 1:
                break
            tile_y = stride * np.arange(fields["out_tiles_y"]) + pattern["tile_dy"]
            tile_x = stride * np.arange(fields["out_tiles_x"]) + pattern["tile_dx"]
            y = border + (tile_y[:, None] * size + y0 + stride * lane).reshape(-1)
            x = border + (tile_x[:, None] * size + x0 + stride * lane).reshape(-1)
            seen = framed[:, y][:, :, x].reshape(len(framed), len(tile_y), size, len(tile_x), size)
            taps.append(seen.transpose(0, 1, 3, 2, 4).reshape(len(framed), -1, size * size))
        result.append(taps)
    return result
