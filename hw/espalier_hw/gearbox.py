"""Byte gearbox: 16-byte beats in, 9-byte memory words out."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from amaranth.hdl import Cat, Module, Signal
from amaranth.lib import stream, wiring
from amaranth.lib.wiring import In, Out

BEAT_BYTES = 16
WORD_BYTES = 9


def words_of_beats(beats: Sequence[int]) -> list[int]:
    """Cut the 72-bit words that are complete in the given 128-bit beats; reference."""
    content = b"".join(beat.to_bytes(BEAT_BYTES, "little") for beat in beats)
    return [
        int.from_bytes(content[start : start + WORD_BYTES], "little")
        for start in range(0, len(content) - WORD_BYTES + 1, WORD_BYTES)
    ]


class Gearbox(wiring.Component):
    """Cuts the byte sequence of 128-bit beats into 72-bit words, one a cycle.

    clear: pulse, forget what is buffered; the next beat starts a new sequence (no beat may be offered then).
    """

    def __init__(self) -> None:
        super().__init__(
            {
                "beats": In(stream.Signature(8 * BEAT_BYTES)),
                "words": Out(stream.Signature(8 * WORD_BYTES)),
                "clear": In(1),
            }
        )

    def elaborate(self, platform: Any) -> Module:
        """Two beats are held; a word starts at byte `offset` of the older one."""
        m = Module()
        older, newer = (Signal(8 * BEAT_BYTES, reset_less=True, name=n) for n in ("older", "newer"))
        have_older, have_newer, advance = Signal(), Signal(), Signal()
        offset, next_offset = Signal(range(BEAT_BYTES)), Signal(range(2 * BEAT_BYTES))
        held = Cat(older, newer[: 8 * (WORD_BYTES - 1)])
        m.d.comb += [
            next_offset.eq(offset + WORD_BYTES),
            self.words.payload.eq((held >> (offset << 3))[: 8 * WORD_BYTES]),
            self.words.valid.eq(have_older & ((next_offset <= BEAT_BYTES) | have_newer)),
            advance.eq(~have_older | (self.words.valid & self.words.ready & (next_offset >= BEAT_BYTES))),
            self.beats.ready.eq(~have_newer | advance),
        ]
        with m.If(self.words.valid & self.words.ready):
            m.d.sync += offset.eq(next_offset)  # modulo the beat
        with m.If(advance):
            m.d.sync += [older.eq(newer), have_older.eq(have_newer)]
        with m.If(self.beats.ready):
            m.d.sync += [newer.eq(self.beats.payload), have_newer.eq(self.beats.valid)]
        with m.If(self.clear):
            m.d.sync += [have_older.eq(0), have_newer.eq(0), offset.eq(0)]
        return m
