"""Bit fields with names: the common description of operators, table entries and descriptors."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from espalier.errors import InternalError


@dataclass(frozen=True)
class Field:
    """One named bit field, least significant bit first in declaration order."""

    name: str
    bits: int
    doc: str
    signed: bool = False

    @property
    def low(self) -> int:
        """Smallest value."""
        return -(1 << (self.bits - 1)) if self.signed else 0

    @property
    def high(self) -> int:
        """Largest value."""
        return (1 << (self.bits - 1)) - 1 if self.signed else (1 << self.bits) - 1


def total_bits(fields: Sequence[Field]) -> int:
    """Width of all fields together."""
    return sum(field.bits for field in fields)


def pack(fields: Sequence[Field], values: Mapping[str, int], base: int = 0) -> int:
    """Pack named values into an integer; absent names are zero.

    Raises:
        InternalError: a value does not fit its field or a name is unknown.
    """
    unknown = set(values) - {field.name for field in fields}
    if unknown:
        raise InternalError(f"no such field: {', '.join(sorted(unknown))}")
    word, offset = 0, base
    for field in fields:
        value = int(values.get(field.name, 0))
        if not field.low <= value <= field.high:
            raise InternalError(f"field {field.name}: {value} is outside {field.low}..{field.high}")
        word |= (value & ((1 << field.bits) - 1)) << offset
        offset += field.bits
    return word


def unpack(fields: Sequence[Field], word: int, base: int = 0) -> dict[str, int]:
    """Inverse of `pack`."""
    values, offset = {}, base
    for field in fields:
        value = (word >> offset) & ((1 << field.bits) - 1)
        if field.signed and value >> (field.bits - 1):
            value -= 1 << field.bits
        values[field.name] = value
        offset += field.bits
    return values
