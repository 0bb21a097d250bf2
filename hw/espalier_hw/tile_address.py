"""Address calculation of the feature memory: from tile coordinates to bank and word, without DSP slices."""

from __future__ import annotations

from amaranth.hdl import Const, Module, Mux, Signal, Value, signed
from amaranth.lib import wiring
from amaranth.lib.wiring import In, Out

from espalier_hw.arbitration import delay
from espalier_hw.interfaces import TILE_ADDRESS

ADDRESS_BITS = 13

# Division by three of an unsigned number below 2048 is (683 * x) >> 11.
_THIRD, _THIRD_SHIFT, _THIRD_BITS = 683, 11, (0, 1, 3, 5, 7, 9)
# Added to a coordinate of 10 signed bits to make it positive; its sign bit inverted adds one less.
_OFFSET = 513


def sum_tree(terms: list[Value]) -> Value:
    """Sum of all terms with logarithmic depth."""
    while len(terms) > 1:
        pairs = [a + b for a, b in zip(terms[::2], terms[1::2], strict=False)]
        terms = pairs + ([terms[-1]] if len(terms) % 2 else [])
    return terms[0]


def partial_products(value: Value, factor: Value, shift: int = 0) -> list[Value]:
    """Terms of value * factor << shift, modulo 2**ADDRESS_BITS; `value` has ADDRESS_BITS bits."""
    return [
        Mux(factor[bit], (value << (bit + shift))[:ADDRESS_BITS], 0)
        for bit in range(len(factor))
        if bit + shift < ADDRESS_BITS
    ]


class TileAddress(wiring.Component):
    """Where the tile of an address lies, LATENCY cycles later; a new address every cycle.

    word: its word, modulo 2**13. bank_row, bank_column: tile_y mod 3, tile_x mod 3. The same column three
    tile rows on is `row_step` words on, the same row three tile columns on is `channels` words on.
    The reference is `espalier.arch.feature_layout.tile_position`.
    """

    LATENCY = 4

    def __init__(self) -> None:
        super().__init__(
            {
                "address": In(TILE_ADDRESS),
                "word": Out(ADDRESS_BITS),
                "row_step": Out(ADDRESS_BITS),
                "channels": Out(ADDRESS_BITS),
                "bank_row": Out(2),
                "bank_column": Out(2),
            }
        )

    def _divide(self, m: Module, coordinate: Value, name: str) -> tuple[Signal, Value]:
        """Quotient (sign-extended to ADDRESS_BITS) and remainder of a coordinate by 3, one cycle later."""
        positive = coordinate.as_unsigned() ^ (1 << (len(coordinate) - 1))
        constant = _THIRD - (_OFFSET // 3 << _THIRD_SHIFT)
        total = sum_tree([positive << bit for bit in _THIRD_BITS] + [Const(constant)])
        quotient = Signal(signed(9), name=f"{name}_quotient", reset_less=True)
        low = Signal(2, name=f"{name}_low", reset_less=True)
        m.d.sync += [quotient.eq(total >> _THIRD_SHIFT), low.eq(positive[:2])]
        extended = Signal(ADDRESS_BITS, name=f"{name}_extended")
        m.d.comb += extended.eq(quotient)
        # x - 3q modulo 4, which x + q and (x + 512) + q equal.
        return extended, (low + quotient[:2])[:2]

    def elaborate(self, platform: object) -> Module:
        """Cycle 1 divides, 2 and 3 multiply, 4 adds up."""
        m = Module()
        a = self.address
        row, row_rest = self._divide(m, a.tile_y, "row")
        column, column_rest = self._divide(m, a.tile_x, "column")
        pitch = delay(m, a.pitch, 1, name="pitch")
        channels = delay(m, a.channels, 1, name="channels_1")
        start = delay(m, (a.base + a.channel)[:ADDRESS_BITS], 1, name="start_1")

        position = Signal(ADDRESS_BITS, reset_less=True)
        step = Signal(ADDRESS_BITS, reset_less=True)
        m.d.sync += [
            position.eq(sum_tree([*partial_products(row, pitch), column])),
            step.eq(sum_tree(partial_products(channels, pitch))),
        ]
        channels, start = delay(m, channels, 1, name="channels_2"), delay(m, start, 1, name="start_2")

        low = Signal(ADDRESS_BITS, reset_less=True)
        high = Signal(ADDRESS_BITS, reset_less=True)
        m.d.sync += [
            low.eq(sum_tree(partial_products(position, channels[:7]))),
            high.eq(sum_tree([*partial_products(position, channels[7:], 7), start])),
        ]
        word = Signal(ADDRESS_BITS, reset_less=True)
        m.d.sync += word.eq(low + high)
        m.d.comb += [
            self.word.eq(word),
            self.row_step.eq(delay(m, step, 2, name="step")),
            self.channels.eq(delay(m, channels, 2, name="channels")),
            self.bank_row.eq(delay(m, row_rest, 3, name="bank_row")),
            self.bank_column.eq(delay(m, column_rest, 3, name="bank_column")),
        ]
        return m
