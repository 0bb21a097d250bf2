"""What the Tcl scripts are told: settings and registers, from configuration, board and register map."""

from __future__ import annotations

from collections.abc import Mapping

from espalier.arch.board import BoardFacts
from espalier.arch.config import HardwareConfig
from espalier.arch.registers import (
    ACCESS_WORDS,
    ADDRESS_BITS,
    CLOCK_PARAMETER,
    INTERRUPT_PIN,
    REGISTER_FIELDS,
    REGISTERS,
    VLNV,
)

HASH_PARAMETER = "DESIGN_HASH"  # of the packaged IP: which design a bitstream was made of


def settings_tcl(config: HardwareConfig, board: BoardFacts, clock_mhz: float, design_hash: str) -> str:
    """Return Tcl that sets the dictionary `settings`; clock_mhz: what the board can make, exactly."""
    parameters = {
        CLOCK_PARAMETER: f"{clock_mhz:g}",
        "CONFIG_HASH": f"0x{config.hash:08X}",
        HASH_PARAMETER: design_hash,
    }
    settings = {
        "part": board.part,
        "board_part": board.board_part,
        "system": board.system,
        "hp_bits": str(board.hp_bits),
        "has_high_ddr": str(int(board.has_high_ddr)),
        "clock_mhz": f"{clock_mhz:.6f}",
        "accelerator_address": f"0x{board.accelerator_address:08X}",
        "controller_address": f"0x{board.controller_address:08X}",
        "register_bytes": str(1 << ADDRESS_BITS),
        "vlnv": VLNV,
        "interrupt_pin": INTERRUPT_PIN,
        "parameters": _pairs(parameters),
    }
    lines = "".join(f"    {name} {{{value}}}\n" for name, value in settings.items())
    return f"set settings {{\n{lines}}}\n"


def registers_tcl() -> str:
    """Return Tcl that sets the list `registers`: name, offset, access, description and fields of each."""
    lines = []
    for register in REGISTERS:
        flags = REGISTER_FIELDS.get(register.name, ())
        fields = _pairs({str(flag.name): str(flag.value.bit_length() - 1) for flag in flags})
        access = ACCESS_WORDS[register.access]
        lines.append(
            f"    {register.name} 0x{register.offset:04X} {access} {{{register.doc}}} {{{fields}}}\n"
        )
    return f"set registers {{\n{''.join(lines)}}}\n"


def _pairs(values: Mapping[str, str]) -> str:
    return " ".join(f"{name} {value}" for name, value in values.items())
