"""Facts of the boards that bitstreams are built for, one YAML file each; they do not enter the RTL.

A board is added by a file in `BOARD_FOLDER`; fields are those of `BoardFacts` without the name.
"""

from __future__ import annotations

import dataclasses
from dataclasses import dataclass
from fractions import Fraction
from pathlib import Path

import yaml

from espalier.arch.registers import ADDRESS_BITS
from espalier.errors import ConfigError

BOARD_FOLDER = Path(__file__).parent / "boards"

# Processing systems by the name of their IP: addresses that their master of the logic's registers reaches.
APERTURES = {
    "zynq_ultra_ps_e": (0xA000_0000, 0xB000_0000),
    "processing_system7": (0x4000_0000, 0x8000_0000),
}
_HP_BITS = {"zynq_ultra_ps_e": (32, 64, 128), "processing_system7": (32, 64)}
_LARGEST_DIVISOR = 63  # each of two dividers in a row has six bits


@dataclass(frozen=True)
class BoardFacts:
    """One board.

    board_part: pattern of the vendor's board files. system: IP of the processing system, a key of
    `APERTURES`. hp_bits: width of its memory port. has_high_ddr: whether memory lies above 4 GiB too.
    io_pll_mhz: source of the logic's clock, MHz. accelerator_address, controller_address: of the registers of
    accelerator and interrupt controller.

    Raises:
        ConfigError: a value cannot be, or the two address ranges do not fit.

    """

    name: str
    title: str
    part: str
    board_part: str
    system: str
    hp_bits: int
    has_high_ddr: bool
    io_pll_mhz: int
    accelerator_address: int
    controller_address: int

    def __post_init__(self) -> None:
        if self.system not in APERTURES:
            raise ConfigError(f"board '{self.name}': system must be one of {', '.join(APERTURES)}")
        if self.hp_bits not in _HP_BITS[self.system]:
            raise ConfigError(f"board '{self.name}': hp_bits must be one of {_HP_BITS[self.system]}")
        low, high = APERTURES[self.system]
        size = 1 << ADDRESS_BITS
        for address in (self.accelerator_address, self.controller_address):
            if address % size or not low <= address <= high - size:
                raise ConfigError(
                    f"board '{self.name}': address 0x{address:X} must be a multiple of 0x{size:X} from"
                    f" 0x{low:X} to 0x{high - size:X}"
                )
        if self.accelerator_address == self.controller_address:
            raise ConfigError(f"board '{self.name}': accelerator and interrupt controller share an address")

    def best_clock(self, limit_mhz: float) -> Fraction:
        """Return the fastest clock, MHz, that two dividers make of the PLL and that is not above a limit.

        Raises:
            ConfigError: none is that slow.

        """
        products = {
            first * second
            for first in range(1, _LARGEST_DIVISOR + 1)
            for second in range(1, _LARGEST_DIVISOR + 1)
        }
        possible = [product for product in products if self.io_pll_mhz <= product * Fraction(limit_mhz)]
        if not possible:
            raise ConfigError(
                f"no clock of {limit_mhz:g} MHz or less can be made of the {self.io_pll_mhz} MHz of"
                f" board '{self.name}'"
            )
        return Fraction(self.io_pll_mhz, min(possible))


def board_names(folder: Path = BOARD_FOLDER) -> list[str]:
    """Names of all boards."""
    return sorted(path.stem for path in folder.glob("*.yaml"))


def load_board(name: str, folder: Path = BOARD_FOLDER) -> BoardFacts:
    """Load the facts of a board.

    Raises:
        ConfigError: no such board, or its file is wrong.

    """
    path = folder / f"{name}.yaml"
    if name not in board_names(folder):
        raise ConfigError(f"unknown board '{name}': choose one of {', '.join(board_names(folder))}")
    content = yaml.safe_load(path.read_text(encoding="utf-8"))
    expected = {field.name for field in dataclasses.fields(BoardFacts)} - {"name"}
    if not isinstance(content, dict) or set(content) != expected:
        raise ConfigError(f"board file {path}: expected exactly the fields {', '.join(sorted(expected))}")
    return BoardFacts(name, **content)
