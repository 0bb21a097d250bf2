"""Chooses the T+3 rows of a window out of the 3T rows of nine tiles."""

from __future__ import annotations

from amaranth.hdl import Module, Signal, Value
from amaranth.lib import wiring
from amaranth.lib.wiring import In, Out

from espalier.arch.feature_layout import BANK_SIDE
from espalier.arch.operators import WORD_TAPS
from espalier_hw.arbitration import delay, look_up

# Bits of a ring position; the next bit up says that the stride is 2.
START_BITS = 6
_STRIDE_2 = 1 << (START_BITS - 1)


class RowSlots:
    """How a window finds its rows; T is the tile size.

    The rows, as the banks hold them, are a ring of 3T. Row r of a window is ring row start + stride * r.
    First each of `count` slots, which are a ring too, takes one of up to four rows; then all slots turn by
    one of four amounts; then each row of the window takes one of four neighbouring slots.

    From T = 6 on, half as many slots as rows are enough. Of the two halves of the ring (stride 1), or its
    even and odd rows (stride 2), a slot takes what is in the window. If 3T is odd, the second half,
    and the odd rows, have no row for the last slot: the rows of the window that follow skip it.
    """

    def __init__(self, tile_size: int) -> None:
        self.ring = BANK_SIDE * tile_size
        self.rows = tile_size + WORD_TAPS - 1
        self.folded = tile_size >= 6
        self.count = (self.ring + 1) // 2 if self.folded else self.ring
        self.gap = 2 * self.count - self.ring if self.folded else 0
        # One of the four neighbours is there for the gap. In this order no two slots choose between the same
        # two first: synthesis would share that and take two LUTs instead of one.
        self.turns = [index * (4 - self.gap) for index in (0, 3, 1, 2)]
        half = self.count if self.folded else 0
        self.candidates = [
            [slot % self.ring, (slot + half) % self.ring, 2 * slot % self.ring, (2 * slot + 1) % self.ring]
            for slot in range(self.count)
        ]

    def _begin(self, position: int, stride_2: bool) -> tuple[int, int]:
        """Slot of the first row, and which half, or rows of which parity, it belongs to."""
        if stride_2:
            return position // 2, position % 2
        return (position % self.count, position // self.count) if self.folded else (position, 0)

    def fold(self, position: int, stride_2: bool) -> list[int]:
        """Per slot: index of the candidate it takes."""
        first, half = self._begin(position, stride_2)
        swaps = self.folded and (self.gap or not stride_2)
        return [2 * stride_2 + (half ^ int(bool(swaps) and slot < first)) for slot in range(self.count)]

    def turn(self, position: int, stride_2: bool) -> list[int]:
        """Index in `turns`."""
        first, _ = self._begin(position, stride_2)
        return [self.turns.index(first - first % (4 - self.gap))]

    def step(self, position: int, stride_2: bool) -> list[int]:
        """Per row of the window: how many slots on from the slot of its own number, after the turn."""
        first, half = self._begin(position, stride_2)
        skips = self.gap and half
        return [
            first % (4 - self.gap) + int(bool(skips) and first + row >= self.count - 1)
            for row in range(self.rows)
        ]


class WindowRows(wiring.Component):
    """Rows of a window, LATENCY cycles after `moving`, one window a cycle.

    ring: the 3T rows in the order of the banks, `row_bits` each, valid with `moving`. start: ring position
    of the window's first row, plus 32 if the stride is 2, valid in the cycle before. rows: they keep their
    value without `moving`; which of them lie in the region is up to the caller.
    """

    LATENCY = 3

    def __init__(self, tile_size: int, row_bits: int) -> None:
        self.slots = RowSlots(tile_size)
        self.row_bits = row_bits
        super().__init__(
            {
                "moving": In(1),
                "start": In(START_BITS),
                "ring": In(row_bits).array(self.slots.ring),
                "rows": Out(row_bits).array(self.slots.rows),
            }
        )

    def _controls(self, m: Module, name: str, late: int) -> list[Signal]:
        """Two bits for each choice of one step, valid `late` + 1 cycles after `start`."""
        table = getattr(self.slots, name)
        places = [(index % _STRIDE_2 % self.slots.ring, index >= _STRIDE_2) for index in range(2 * _STRIDE_2)]
        values = [table(*place) for place in places]
        index = delay(m, self.start, late, name=f"{name}_start")
        controls = [Signal(2, name=f"{name}_{number}", reset_less=True) for number in range(len(values[0]))]
        for number, control in enumerate(controls):
            m.d.sync += control.eq(look_up(index, [row[number] for row in values], 2))
        return controls

    def elaborate(self, platform: object) -> Module:
        """Three steps, one choice out of four each."""
        m = Module()
        slots, count = self.slots, self.slots.count
        turning = delay(m, self.moving, 1, control=True, name="turning")
        stepping = delay(m, turning, 1, control=True, name="stepping")
        choices = [[self.ring[row] for row in rows] for rows in slots.candidates]
        folded = self._choose(m, self.moving, self._controls(m, "fold", 0), choices, "folded")
        choices = [[folded[(slot + turn) % count] for turn in slots.turns] for slot in range(count)]
        turned = self._choose(m, turning, self._controls(m, "turn", 1) * count, choices, "turned")
        choices = [[turned[(row + step) % count] for step in range(4)] for row in range(slots.rows)]
        rows = self._choose(m, stepping, self._controls(m, "step", 2), choices, "stepped")
        m.d.comb += [port.eq(row) for port, row in zip(self.rows, rows, strict=True)]
        return m

    def _choose(
        self, m: Module, moving: Value, selects: list[Signal], choices: list[list[Value]], name: str
    ) -> list[Signal]:
        """One register for each list of choices."""
        targets = [Signal(self.row_bits, name=f"{name}_{i}", reset_less=True) for i in range(len(choices))]
        with m.If(moving):
            for target, select, rows in zip(targets, selects, choices, strict=True):
                with m.Switch(select):
                    for value, row in enumerate(rows):
                        with m.Case(value):
                            m.d.sync += target.eq(row)
        return targets
