"""What a PE computes, from its stream and its window words, without its timing."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass

import numpy as np
import numpy.typing as npt

from espalier.arch.config import HardwareConfig
from espalier.arch.fields import unpack
from espalier.arch.operators import HEADER_FIELDS, OPERATOR_BITS, OPERATOR_FIELDS, OPERATORS_PER_WORD
from espalier_hw.interfaces import PAIR_BITS
from espalier_hw.lanes import is_packed, pack_pair_model


@dataclass(frozen=True)
class PeLayer:
    """Work of a PE in one layer.

    windows: uint8[sets, words, T+3, T], the words of each set in order, at most blocks * block_words.
    """

    blocks: int
    block_words: int
    windows: npt.NDArray[np.uint8]

    @property
    def sets(self) -> int:
        """Tiles times passes; 0 for a resting PE."""
        return len(self.windows)


def decode_loop(words: Sequence[int]) -> list[dict[str, int]]:
    """Operators of a loop's stream words as dictionaries of `OPERATOR_FIELDS`."""
    mask = (1 << OPERATOR_BITS) - 1
    return [
        unpack(OPERATOR_FIELDS, (word >> (OPERATOR_BITS * index)) & mask)
        for word in words
        for index in range(OPERATORS_PER_WORD)
    ]


def model(
    config: HardwareConfig, stream: Sequence[int], layers: Sequence[PeLayer]
) -> list[npt.NDArray[np.int64]]:
    """Drained lane sums of every layer, int64[sets * filters, T*T], in the order of draining.

    stream: 72-bit words, the headers and loops of the layers back to back.
    """
    results, pointer = [], 0
    for layer in layers:
        header = unpack(HEADER_FIELDS, stream[pointer])
        loop = decode_loop(stream[pointer + 1 : pointer + 1 + header["loop_words"]])
        pointer += 1 + header["loop_words"]
        results.append(_layer_sums(config, layer, header["filters"], _repeat(loop)))
    return results


def _repeat(loop: list[dict[str, int]]) -> Iterator[dict[str, int]]:
    while True:
        yield from loop


def _layer_sums(
    config: HardwareConfig, layer: PeLayer, filters: int, operators: Iterator[dict[str, int]]
) -> npt.NDArray[np.int64]:
    size = config.tile_size
    sums = np.zeros((layer.sets, filters, size, size), dtype=np.int64)
    for tile_set in range(layer.sets):
        for block in range(layer.blocks):
            for index in range(filters):
                for operator in operators:
                    word = block * layer.block_words + operator["slot"]
                    # A null operator may point behind the last word of a short block.
                    if operator["weight"]:
                        rows = slice(operator["tap"], operator["tap"] + size)
                        pixels = layer.windows[tile_set, word, rows].astype(np.int64)
                        sums[tile_set, index] += operator["weight"] * pixels
                    if operator["end_of_run"]:
                        break
    return sums.reshape(layer.sets * filters, size * size)


def drain_model(config: HardwareConfig, sums: npt.NDArray[np.int64]) -> int:
    """Return the `drain_data` word that holds the lane sums int64[T*T] of one accumulator."""
    lanes = [int(value) for value in sums] + [0] * (2 * config.pairs - config.lanes_per_pe)
    word = 0
    for pair in range(config.pairs):
        field = pack_pair_model(lanes[2 * pair], lanes[2 * pair + 1], is_packed(config, pair))
        word |= field << (PAIR_BITS * pair)
    return word
