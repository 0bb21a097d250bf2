"""Requantisation tables: what the output stage does with every accumulator, in drain order."""

from __future__ import annotations

from espalier.arch.fields import pack
from espalier.arch.program import TABLE_FIELDS, TABLE_WORD_BITS
from espalier.backend.deal import drain_order
from espalier.backend.plan import IntArray, Layer
from espalier.ir.graph import Conv, Requantisation

TABLE_WORD_BYTES = TABLE_WORD_BITS // 8


def conv_table(layer: Layer, branch: int) -> bytes:
    """Table of one physical branch, 9 bytes per entry; empty if the branch rests."""
    node, mapping, pes = layer.node, layer.mapping, layer.pes
    assert isinstance(node, Conv) and mapping is not None and pes is not None, "placed"
    role = mapping.role(branch)
    if role is None:
        return b""
    plan, member = role[0].plan, role[1]
    parts = plan.parts
    physical = {int(own): pe for pe, own in enumerate(pes[branch]) if own >= 0}
    entries = []
    for which in range(plan.passes):
        order = drain_order(plan.deal, parts, member, which)
        for position, (pe, part) in enumerate(zip(*order, strict=True)):
            values = {"pe": physical[int(pe)], "first": 1, "end_of_pass": int(position == len(order[0]) - 1)}
            if part >= 0:
                values |= _part_entry(
                    int(part), parts.filter_of, parts.high, parts.first_part, node.requantisation
                )
            entries.append(values)
    return b"".join(pack(TABLE_FIELDS, entry).to_bytes(TABLE_WORD_BYTES, "little") for entry in entries)


def _part_entry(
    part: int, filter_of: IntArray, high: IntArray, first_part: IntArray, values: Requantisation
) -> dict[str, int]:
    channel = int(filter_of[part])
    return {
        "multiplier": int(values.multiplier[channel]),
        "shift": int(values.shift[channel]),
        "bias": int(values.bias[channel]),
        "out_channel": channel,
        "first": int(part == first_part[channel]),
        "last": int(part == first_part[channel + 1] - 1),
        "high_digit": int(high[part]),
    }
