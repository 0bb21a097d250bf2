"""Compares what the RTL computed with the integer model, bit for bit."""

from __future__ import annotations

from collections.abc import Mapping

import numpy as np
from numpy.typing import NDArray

from espalier.arch.config import HardwareConfig
from espalier.arch.feature_layout import tile_words
from espalier.backend.image import LayerInfo, ProgramImage, TensorInfo
from espalier.errors import VerificationMismatch
from espalier_sim.device import Inference
from espalier_sim.trace import written_words

Bytes = NDArray[np.uint8]


def check_layers(
    image: ProgramImage, inference: Inference, expected: Mapping[str, Bytes], config: HardwareConfig
) -> int:
    """Compare every layer's output, edge lanes included, with `expected` (tensors by name); count the layers.

    Raises:
        VerificationMismatch: names the first differing layer, channel and pixel with both values.

    """
    for layer in image.metadata.layers:
        info = image.metadata.tensors[layer.output]
        found = written_words(inference.trace, layer.index, info, config)
        wanted = tile_words(expected[layer.output], config.tile_size, info.pad)
        if not np.array_equal(found, wanted):
            raise VerificationMismatch(_difference(layer, info, found, wanted, config.tile_size))
    return len(image.metadata.layers)


def output_tensor(image: ProgramImage, content: bytes, config: HardwareConfig) -> Bytes:
    """Unpack the output tensor uint8[channels, height, width] from the bytes that the accelerator wrote."""
    return image.output.stored(np.frombuffer(content, np.uint8), config.tile_size)


def check_output(image: ProgramImage, found: Bytes, expected: Bytes) -> None:
    """Compare the output tensor as it lies in DDR.

    Raises:
        VerificationMismatch: names the first differing channel and pixel with both values.

    """
    if np.array_equal(found, expected):
        return
    channel, row, column = (int(value) for value in np.argwhere(found != expected)[0])
    raise VerificationMismatch(
        f"output {image.metadata.output} in memory differs in {int((found != expected).sum())} of"
        f" {found.size} values, first in channel {channel}, pixel ({row}, {column}): hardware"
        f" {found[channel, row, column]}, model {expected[channel, row, column]}"
    )


def _difference(layer: LayerInfo, info: TensorInfo, found: Bytes, wanted: Bytes, tile_size: int) -> str:
    wrong = found != wanted
    tile_y, tile_x, channel, lane = (int(value) for value in np.argwhere(wrong)[0])
    row, column = tile_y * tile_size + lane // tile_size, tile_x * tile_size + lane % tile_size
    place = "pixel" if row < info.height and column < info.width else "edge lane outside the map"
    return (
        f"layer {layer.index} ({layer.name}, {layer.kind}) differs in {int(wrong.sum())} of {wrong.size}"
        f" values, first in channel {channel}, {place} ({row}, {column}): hardware"
        f" {found[tile_y, tile_x, channel, lane]}, model {wanted[tile_y, tile_x, channel, lane]}"
    )
