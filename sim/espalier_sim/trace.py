"""Feature memory writes of a run, turned back into the tensors that the layers wrote."""

from __future__ import annotations

from typing import Any

import numpy as np
from numpy.typing import NDArray

from espalier.arch.config import HardwareConfig
from espalier.arch.feature_layout import tile_positions
from espalier.backend.image import TensorInfo
from espalier_sim.simulator import HardwareFault

IntArray = NDArray[np.int64]


def written_words(
    trace: NDArray[Any], layer: int, info: TensorInfo, config: HardwareConfig
) -> NDArray[np.uint8]:
    """Collect the tile words that `layer` wrote for tensor `info`: uint8[tiles_y, tiles_x, channels, T*T].

    Addresses are reused by later layers, so only writes of that layer count; if a word was written more than
    once, the last write counts. In a ring the tiles that share an address are written in their order, each
    once.

    Raises:
        HardwareFault: a word of the tensor was never written; names the first.

    """
    writes = trace[trace["layer"] == layer]
    place = writes["bank"].astype(np.int64) * config.feature_depth_words + writes["address"]
    bank, word = tile_positions(info.base, info.pitch, info.channels, info.tiles_y, info.tiles_x, info.ring)
    wanted = bank * config.feature_depth_words + word
    index = _turns(place, wanted) if info.ring else _latest(place, wanted)
    if (index < 0).any():
        y, x, channel = (int(value) for value in np.argwhere(index < 0)[0])
        raise HardwareFault(
            f"layer {layer}, tensor {info.name}: {int((index < 0).sum())} of {index.size} tile words were"
            f" never written, the first is tile ({y}, {x}) of channel {channel}"
        )
    data: NDArray[np.uint8] = writes["data"][index]
    return data


def _latest(place: IntArray, wanted: IntArray) -> IntArray:
    """Find the number of the last write to every wanted place, -1 if there is none."""
    latest = np.full(max(int(place.max(initial=0)), int(wanted.max())) + 1, -1, np.int64)
    latest[place] = np.arange(len(place))  # with repeated indices the last assignment wins
    found: IntArray = latest[wanted]
    return found


def _turns(place: IntArray, wanted: IntArray) -> IntArray:
    """Find the number of the write to every wanted place; places are written as often as they are wanted."""
    turns = np.argsort(place, kind="stable")
    places, first, counts = np.unique(place[turns], return_index=True, return_counts=True)
    starts = dict(zip(places.tolist(), zip(first.tolist(), counts.tolist(), strict=True), strict=True))
    order = np.argsort(wanted.reshape(-1), kind="stable")
    result = np.full(wanted.size, -1, np.int64)
    number, before = 0, -1
    for index, own in zip(order.tolist(), wanted.reshape(-1)[order].tolist(), strict=True):
        number = number + 1 if own == before else 0
        before = own
        start, count = starts.get(own, (0, 0))
        if number < count:
            result[index] = turns[start + number]
    return result.reshape(wanted.shape)
