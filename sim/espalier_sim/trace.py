"""Feature memory writes of a run, turned back into the tensors that the layers wrote."""

from __future__ import annotations

from typing import Any

import numpy as np
from numpy.typing import NDArray

from espalier.arch.config import HardwareConfig
from espalier.arch.feature_layout import BANKS, tile_positions
from espalier.backend.image import TensorInfo
from espalier_sim.simulator import HardwareFault


def written_words(
    trace: NDArray[Any], layer: int, info: TensorInfo, config: HardwareConfig
) -> NDArray[np.uint8]:
    """Collect the tile words that `layer` wrote for tensor `info`: uint8[tiles_y, tiles_x, channels, T*T].

    Addresses are reused by later layers, so only writes of that layer count; if a word was written more than
    once, the last write counts.

    Raises:
        HardwareFault: a word of the tensor was never written; names the first.

    """
    writes = trace[trace["layer"] == layer]
    depth = config.feature_depth_words
    latest = np.full(BANKS * depth, -1, np.int64)
    # With repeated indices the last assignment wins.
    latest[writes["bank"].astype(np.int64) * depth + writes["address"]] = np.arange(len(writes))
    bank, word = tile_positions(info.base, info.pitch, info.channels, info.tiles_y, info.tiles_x)
    index = latest[bank * depth + word]
    if (index < 0).any():
        y, x, channel = (int(value) for value in np.argwhere(index < 0)[0])
        raise HardwareFault(
            f"layer {layer}, tensor {info.name}: {int((index < 0).sum())} of {index.size} tile words were"
            f" never written, the first is tile ({y}, {x}) of channel {channel}"
        )
    data: NDArray[np.uint8] = writes["data"][index]
    return data
