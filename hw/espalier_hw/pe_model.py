"""What a PE computes, from its stream and its window words, without its timing."""

from __future__ import annotations

from collections.abc import Iterator, Sequence

import numpy as np
import numpy.typing as npt

from espalier.arch.config import HardwareConfig
from espalier.arch.fields import unpack
from espalier.arch.operators import HEADER_FIELDS, OPERATOR_BITS, OPERATOR_FIELDS, OPERATORS_PER_WORD
from espalier_hw.lanes import is_packed, pack_pair_model


def decode_loop(words: Sequence[int]) -> list[dict[str, int]]:
    """Operators of a loop's stream words as dictionaries of `OPERATOR_FIELDS`."""
    mask = (1 << OPERATOR_BITS) - 1
    return [
        unpack(OPERATOR_FIELDS, (word >> (OPERATOR_BITS * index)) & mask)
        for word in words
        for index in range(OPERATORS_PER_WORD)
    ]


def block_words(header: dict[str, int]) -> int:
    """Window words of a whole block, from a header as a dictionary of `HEADER_FIELDS`."""
    return 16 if header["wide_blocks"] else 8


def decode_stream(stream: Sequence[int]) -> Iterator[tuple[dict[str, int], list[dict[str, int]]]]:
    """Header and loop operators of every layer of 72-bit stream words, resting layers included.

    Both are dictionaries of their fields. Words behind the `end` header are ignored.
    """
    pointer = 0
    while not (header := unpack(HEADER_FIELDS, stream[pointer]))["end"]:
        following = pointer + 1 + header["loop_words"]
        yield header, decode_loop(stream[pointer + 1 : following])
        pointer = following


def model(
    config: HardwareConfig, stream: Sequence[int], windows: Sequence[npt.NDArray[np.uint8]]
) -> list[npt.NDArray[np.int64]]:
    """Drained lane sums of every layer, int64[sets * filters, T*T], in the order of draining.

    stream: 72-bit words, the headers and loops of the layers and the `end` header, one after the other.
    windows: for each layer uint8[sets, words, T+3, T], the words of each set in order, at most as many
    as its blocks hold; anything for resting layers.
    """
    return [
        _layer_sums(config, header, loop, layer)
        for (header, loop), layer in zip(decode_stream(stream), windows, strict=True)
    ]


def _repeat(loop: list[dict[str, int]]) -> Iterator[dict[str, int]]:
    while True:
        yield from loop


def _layer_sums(
    config: HardwareConfig,
    header: dict[str, int],
    loop: list[dict[str, int]],
    windows: npt.NDArray[np.uint8],
) -> npt.NDArray[np.int64]:
    size, filters = config.tile_size, header["filters"]
    sums = np.zeros((header["sets"], filters, size, size), dtype=np.int64)
    operators = _repeat(loop)
    for tile_set in range(header["sets"]):
        for block in range(header["blocks"]):
            index = 0
            while index < filters:
                for operator in operators:
                    word = block * block_words(header) + operator["slot"]
                    # A null operator may point behind the last word of a short block.
                    if operator["weight"]:
                        rows = slice(operator["tap"], operator["tap"] + size)
                        pixels = windows[tile_set, word, rows].astype(np.int64)
                        sums[tile_set, index] += operator["weight"] * pixels
                    if operator["end_of_run"]:
                        index += 1 + operator["skip"]
                        break
    return sums.reshape(header["sets"] * filters, size * size)


def drain_model(config: HardwareConfig, dsp_pairs: int, sums: npt.NDArray[np.int64]) -> int:
    """Return the `drain_data` word that holds the lane sums int64[T*T] of one accumulator.

    dsp_pairs: lane pairs of the PE in DSP slices.
    """
    lanes = [int(value) for value in sums] + [0] * (2 * config.pairs - config.lanes_per_pe)
    word = 0
    for pair in range(config.pairs):
        low, high = lanes[2 * pair : 2 * pair + 2]
        field = pack_pair_model(low, high, config.pair_spacing_bits, is_packed(dsp_pairs, pair))
        word |= field << (config.pair_bits * pair)
    return word
