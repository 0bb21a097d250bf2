"""How the lanes of a tile are spread over the beats of the output stage."""

from __future__ import annotations

from collections.abc import Sequence

from amaranth.hdl import Cat, Mux, Value

from espalier.arch.config import HardwareConfig


def beat_slots(config: HardwareConfig) -> list[list[int]]:
    """Lane of every slot in every beat: element [slot][beat].

    `output_pairs` pairs follow each other in a beat. Lanes of an odd slot are high lanes of their pair, those
    of the slot before the low ones. A slot that has nothing to do in the last beat repeats its lane. If
    the tile's last pair, which has one lane, is all that keeps a beat from having a pair less, it gets a
    slot of its own and goes along in every beat: a slot less in all.
    """
    lanes, beats, pairs = config.lanes_per_pe, config.output_beats, config.output_pairs
    single = lanes % 2 == 1 and config.pairs - 1 == beats * (pairs - 1)
    width = 2 * (pairs - 1) if single else 2 * pairs
    slots = [[beat * width + slot for beat in range(beats)] for slot in range(width)]
    if single:
        slots.append([lanes - 1] * beats)
    return [[lane if lane < lanes else row[0] for lane in row] for row in slots]


def choose_beat(word: Value, bits: int, slots: Sequence[Sequence[int]], index: Value) -> Value:
    """Lanes of beat `index` from a word of `bits` bits a lane, in the order of `slots`."""
    fields = [[word[lane * bits : (lane + 1) * bits] for lane in row] for row in slots]
    return Cat(
        select(field[:1] if len(set(row)) == 1 else field, index)
        for field, row in zip(fields, slots, strict=True)
    )


def select(values: Sequence[Value], index: Value) -> Value:
    """Element `index`, or the last if that is past the end, as a tree of two-way choices.

    Synthesis makes a six-input LUT of four bits and two of the index; not so from other forms.
    """
    if len(values) == 1:
        return values[0]
    half = 1 << ((len(values) - 1).bit_length() - 1)
    return Mux(index[half.bit_length() - 1], select(values[half:], index), select(values[:half], index))
