"""Address calculation of the feature memory: from tile coordinates to bank and word, without DSP slices."""

from __future__ import annotations

from amaranth.hdl import Cat, Const, Module, Signal, Value, signed
from amaranth.lib import wiring
from amaranth.lib.wiring import In, Out

from espalier.arch.feature_layout import BANK_SIDE, BANKS
from espalier.arch.program import RING_CODES, ring_words
from espalier_hw.arbitration import delay
from espalier_hw.interfaces import TILE_ADDRESS

ADDRESS_BITS = 13

# Division by three of an unsigned number below 2048 is (683 * x) >> 11.
_THIRD_SHIFT, _THIRD_BITS = 11, (0, 1, 3, 5, 7, 9)
# Added to a coordinate, 10 signed bits, to make it positive: three times 2**8, so that it changes
# only the top bits of the coordinate, and of the quotient.
_OFFSET = 768


def sum_tree(terms: list[Value], bits: int) -> Value:
    """Sum of all terms modulo 2**bits, with one carry chain.

    Before it, five or six terms become three, as functions of one LUT each; three become two.
    """
    while len(terms) > 2:
        some = 3 if len(terms) < 5 else min(len(terms), 6)
        counts = _count_ones([Value.cast(term) for term in terms[:some]])
        terms = terms[some:] + [(count << place)[:bits] for place, count in enumerate(counts)]
    return sum(terms, Const(0, 1))[:bits]


def _count_ones(terms: list[Value]) -> list[Value]:
    """Count the ones at each place of three, five or six terms; bits of the count, lowest first."""
    if len(terms) == 3:
        a, b, c = terms
        return [a ^ b ^ c, a & b | a & c | b & c]
    ones, twos = _count_ones(terms[:3])
    if len(terms) == 5:
        ones, more = _count_ones([ones, *terms[3:]])
        return [ones, twos ^ more, twos & more]
    others, more = _count_ones(terms[3:])
    return [ones ^ others, *_count_ones([twos, more, ones & others])]


def recode(factor: Value) -> list[Value]:
    """Digits -2..2 of a factor in base 4, as three flags each: negative, two, one.

    The factor has an odd number of bits, so that the last digit is never negative.
    """
    bits = Cat(Const(0, 1), factor, Const(0, 1))
    digits: list[Value] = []
    for low in range(0, len(factor), 2):
        a, b, c = bits[low], bits[low + 1], bits[low + 2]
        digits.append(Cat(c & ~(a & b), (c & ~a & ~b) | (~c & a & b), a ^ b))
    return digits


def digit_products(value: Value, digits: Value) -> list[Value]:
    """Terms of value * factor modulo 2**ADDRESS_BITS, half as many as the factor has bits.

    `value` has ADDRESS_BITS bits. What an inverted term lacks stands in the free low bits of the next one.
    """
    terms = []
    below: Value = Const(0, 0)
    for place in range(len(digits) // 3):
        negative, two, one = digits.word_select(place, 3)
        twice = (value << 1)[:ADDRESS_BITS]
        chosen = (value & one.replicate(ADDRESS_BITS)) | (twice & two.replicate(ADDRESS_BITS))
        terms.append(Cat(below, chosen ^ negative.replicate(ADDRESS_BITS))[:ADDRESS_BITS])
        below = Cat(Const(0, 2 * place), negative, Const(0, 1))
    return terms


def one_bank(row: Value, column: Value) -> list[Value]:
    """One bit a bank: whether it is the one of this row and column, 0..2 each."""
    return [(row == index // BANK_SIDE) & (column == index % BANK_SIDE) for index in range(BANKS)]


def fixed_bits(ring: Value) -> list[Value]:
    """One bit for every bit of a word: whether it is the base's in such a ring, and not that of the sum."""
    sizes = [ring_words(code) for code in range(RING_CODES)]
    return [
        Cat(ring == code for code, words in enumerate(sizes) if words and 1 << bit >= words).any()
        for bit in range(ADDRESS_BITS)
    ]


class TileAddress(wiring.Component):
    """Where the tile of an address lies, LATENCY cycles later; a new address every cycle.

    `rings`: whether tensors may lie in rings; otherwise `ring` must be 0.
    word: its word, modulo 2**13 and in its ring; fixed: bits of it that all words of the ring share.
    bank_row, bank_column: tile_y mod 3, tile_x mod 3. The same column three tile rows on is `row_step` words
    on, the same row three tile columns on is `channels` words on; row_back and channels_back are the same
    negated, modulo 2**13.
    The reference is `espalier.arch.feature_layout.tile_position`.
    """

    LATENCY = 4

    def __init__(self, rings: bool = False) -> None:
        self.rings = rings
        super().__init__(
            {
                "address": In(TILE_ADDRESS),
                "word": Out(ADDRESS_BITS),
                "fixed": Out(ADDRESS_BITS),
                "row_step": Out(ADDRESS_BITS),
                "channels": Out(ADDRESS_BITS),
                "row_back": Out(ADDRESS_BITS),
                "channels_back": Out(ADDRESS_BITS),
                "bank_row": Out(2),
                "bank_column": Out(2),
            }
        )

    def _divide(self, m: Module, coordinate: Value, name: str) -> tuple[Signal, Value]:
        """Quotient (sign-extended to ADDRESS_BITS) and remainder of a coordinate by 3, one cycle later."""
        top, half = coordinate[-1], coordinate[-2]
        positive = Cat(coordinate[:-2], ~half, ~(half ^ top), half & ~top)
        bits = _THIRD_SHIFT + 9
        total = sum_tree([(positive << bit)[:bits] for bit in _THIRD_BITS], bits)
        quotient = Signal(signed(9), name=f"{name}_quotient", reset_less=True)
        low = Signal(2, name=f"{name}_low", reset_less=True)
        m.d.sync += [quotient.eq(total[_THIRD_SHIFT:] ^ _OFFSET // 3), low.eq(coordinate[:2])]
        extended = Signal(ADDRESS_BITS, name=f"{name}_extended")
        m.d.comb += extended.eq(quotient)
        # x - 3q modulo 4, which x + q equals.
        return extended, (low + quotient[:2])[:2]

    def elaborate(self, platform: object) -> Module:
        """Cycle 1 divides, 2 and 3 multiply, 4 adds up."""
        m = Module()
        a = self.address
        row, row_rest = self._divide(m, a.tile_y, "row")
        column, column_rest = self._divide(m, a.tile_x, "column")
        pitch = delay(m, Cat(recode(a.pitch)), 1, name="pitch")
        factor = delay(m, Cat(recode(a.channels)), 2, name="factor")
        channels = delay(m, a.channels, 1, name="channels_1")
        start = delay(m, (a.base + a.channel)[:ADDRESS_BITS], 2, name="start")

        position = Signal(ADDRESS_BITS, reset_less=True)
        step = Signal(ADDRESS_BITS, reset_less=True)
        m.d.sync += [
            position.eq(sum_tree([column, *digit_products(row, pitch)], ADDRESS_BITS)),
            step.eq(sum_tree(digit_products(channels, pitch), ADDRESS_BITS)),
        ]
        terms = digit_products(position, factor)
        low = Signal(ADDRESS_BITS, reset_less=True)
        high = Signal(ADDRESS_BITS, reset_less=True)
        m.d.sync += [
            low.eq(sum_tree(terms[::2], ADDRESS_BITS)),
            high.eq(sum_tree([*terms[1::2], start], ADDRESS_BITS)),
        ]
        word = Signal(ADDRESS_BITS, reset_less=True)
        self._last_step(m, word, (low + high)[:ADDRESS_BITS])
        m.d.comb += [
            self.word.eq(word),
            self.row_step.eq(delay(m, step, 2, name="step")),
            self.channels.eq(delay(m, channels, 3, name="channels")),
            self.row_back.eq(delay(m, (~step + 1)[:ADDRESS_BITS], 2, name="row_back")),
            self.channels_back.eq(delay(m, (~channels + 1)[:ADDRESS_BITS], 3, name="channels_back")),
            self.bank_row.eq(delay(m, row_rest, 3, name="bank_row")),
            self.bank_column.eq(delay(m, column_rest, 3, name="bank_column")),
        ]
        return m

    def _last_step(self, m: Module, word: Signal, total: Value) -> None:
        """Keep the word in its ring."""
        if not self.rings:
            m.d.sync += word.eq(total)
            return
        base = delay(m, self.address.base, self.LATENCY - 1, name="ring_base")
        ring = delay(m, self.address.ring, self.LATENCY - 2, name="ring")
        fixed = Signal(ADDRESS_BITS, reset_less=True)
        m.d.sync += [fixed.eq(Cat(fixed_bits(ring))), self.fixed.eq(fixed)]
        m.d.sync += word.eq((total & ~fixed) | (base & fixed))
