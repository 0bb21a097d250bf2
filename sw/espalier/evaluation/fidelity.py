"""How near the tensors of the integer network come to those of the float network, layer by layer."""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

import numpy as np
import numpy.typing as npt

from espalier.compress.calibrate import real_maps
from espalier.errors import ModelFileError
from espalier.ir.float_graph import FloatGraph
from espalier.ir.graph import IntegerGraph


@dataclass(frozen=True)
class LayerFidelity:
    """One layer: signal to quantisation noise in dB (infinite: equal), cosine of the angle between both."""

    name: str
    sqnr: float
    cosine: float


class FidelityMeter:
    """Sums up signal, noise and products of every layer's output over groups of pictures."""

    def __init__(self, reference: FloatGraph, integer: IntegerGraph) -> None:
        """Prepare.

        Raises:
            ModelFileError: the integer network was not made of this float network.

        """
        shapes = {t.name: (t.channels, t.height, t.width) for t in integer.tensors.values()}
        self.names = [(node.name, node.output) for node in reference.nodes]
        if self.names != [(node.name, node.output) for node in integer.nodes] or any(
            shapes[name] != reference.shapes[name] for _, name in self.names
        ):
            raise ModelFileError(
                f"model '{integer.name}' was not made of network '{reference.name}': layers or shapes differ"
            )
        self.tensors = integer.tensors
        self.sums = {name: np.zeros(4) for _, name in self.names}

    def add(self, real: Mapping[str, npt.NDArray[Any]], stored: Mapping[str, npt.NDArray[np.uint8]]) -> None:
        """Take in tensors by name, [n, channels, height, width] each: float values and stored bytes."""
        for _, name in self.names:
            wanted = real[name].astype(np.float64)
            found = real_maps(stored[name], self.tensors[name]).astype(np.float64)
            noise = found - wanted
            self.sums[name] += [
                float((wanted * wanted).sum()),
                float((noise * noise).sum()),
                float((wanted * found).sum()),
                float((found * found).sum()),
            ]

    def result(self) -> list[LayerFidelity]:
        """All layers in execution order."""
        found = []
        for node, name in self.names:
            signal, noise, product, energy = self.sums[name]
            sqnr = math.inf if noise == 0 else 10 * math.log10(max(signal, 1e-300) / noise)
            norm = math.sqrt(signal * energy)
            found.append(LayerFidelity(node, sqnr, product / norm if norm else float(signal == energy)))
        return found


def first_below(layers: list[LayerFidelity], limit: float) -> str | None:
    """Name of the first layer whose signal to noise ratio is below `limit` dB, None if there is none."""
    return next((layer.name for layer in layers if layer.sqnr < limit), None)
