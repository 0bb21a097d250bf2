"""Operator stream of a PE: 12-bit operators, six to a 72-bit word, a header word per layer."""

from __future__ import annotations

import numpy as np
import numpy.typing as npt

from espalier.arch.fields import Field

STREAM_WORD_BITS = 72
OPERATOR_BITS = 12
OPERATORS_PER_WORD = STREAM_WORD_BITS // OPERATOR_BITS

# A weight of zero is the null operator: it takes its cycle and changes nothing.
OPERATOR_FIELDS = (
    Field("weight", 4, "weight digit", signed=True),
    Field("slot", 4, "window word inside the current block"),
    Field("tap", 2, "vertical tap: first row of the tile inside the window word"),
    Field("end_of_run", 1, "last operator of this filter in this block"),
    Field("skip", 1, "with end_of_run: the next filter has no operators in this block and no run"),
)

# Rows of a window word at which a tile can start.
WORD_TAPS = 4

# First word of a layer in every PE's stream, and the word that ends a stream.
HEADER_FIELDS = (
    Field("loop_words", 16, "operator words that follow; read again for every tile"),
    Field("filters", 6, "accumulators (runs per block) of this PE in one pass"),
    Field("sets", 19, "tiles * passes of this PE's branch; 0: the PE has no part in the layer"),
    Field("blocks", 13, "blocks of window words per pass"),
    Field("wide_blocks", 1, "blocks have 16 words, otherwise 8"),
    Field("end", 1, "no layer: the stream ends here"),
)

# The same of hardware with `streaming`, where a stream is a chain of segments: a header, then operator words.
# The first segment of a layer has the layer's header; in those that continue a layer, only `loop_words` and
# the fields from `next` on have a meaning.
STREAMING_HEADER_FIELDS = (
    Field("loop_words", 14, "operator words that follow; read again for every tile, if not `once`"),
    *HEADER_FIELDS[1:],
    Field("next", 14, "address of the next header"),
    Field("wait", 1, "the next header comes with a batch: it is there when one more has been loaded"),
    Field("streamed", 1, "this segment came with a batch; otherwise it is resident"),
    Field("once", 1, "the words are read once: the next segment continues the layer"),
)


def header_fields(streaming: bool) -> tuple[Field, ...]:
    """Fields of a header word, for hardware with or without `streaming`."""
    return STREAMING_HEADER_FIELDS if streaming else HEADER_FIELDS


# The last operator of a run and the first operator of the next run of the same accumulator must be
# at least this many operators apart (PE pipeline: read at +2, written at +4). One filter per PE is
# exempt: its sum simply stays in the DSP.
ACCUMULATOR_DISTANCE = 3

# Weights wider than four bits are split into two digits, 16*high + low, of one operator each.
DIGIT_BITS = 4
DIGIT_LOW, DIGIT_HIGH = -8, 7
MAX_WIDE_WEIGHT = (DIGIT_HIGH << DIGIT_BITS) + DIGIT_HIGH


def split_digits(weights: npt.NDArray[np.int64]) -> tuple[npt.NDArray[np.int64], npt.NDArray[np.int64]]:
    """Split weights of -119..119 into (high, low) digits of -8..7 each: weight = 16*high + low."""
    low = (weights - DIGIT_LOW) % (1 << DIGIT_BITS) + DIGIT_LOW
    return weights - low >> DIGIT_BITS, low
