"""How a board is simulated, from the environment."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

from espalier.errors import DeviceError
from espalier.runtime.open_device import BOARD_VARIABLE

STALLS_VARIABLE = "ESPALIER_STALLS"
LATENCY_VARIABLE = "ESPALIER_HOST_LATENCY"
_HOST_LATENCY = (500, 500)  # cycles: a register access from Python takes microseconds on a board
_DEFAULT_BOARD = "zcu104"


@dataclass(frozen=True)
class Settings:
    """board: name. stalls: seed of random stalls; None: none. host_latency: cycles before each access."""

    board: str = _DEFAULT_BOARD
    stalls: int | None = None
    host_latency: tuple[int, int] = _HOST_LATENCY

    @classmethod
    def of_environment(cls, environment: Mapping[str, str]) -> Settings:
        """Read ESPALIER_BOARD, ESPALIER_STALLS (a seed) and ESPALIER_HOST_LATENCY (cycles, or LOW-HIGH).

        Raises:
            DeviceError: a value is no number.

        """
        stalls, latency = environment.get(STALLS_VARIABLE), environment.get(LATENCY_VARIABLE)
        try:
            low, _, high = (latency or "").partition("-")
            return cls(
                environment.get(BOARD_VARIABLE) or _DEFAULT_BOARD,
                int(stalls) if stalls else None,
                (int(low), int(high or low)) if latency else _HOST_LATENCY,
            )
        except ValueError as error:
            raise DeviceError(
                f"{STALLS_VARIABLE} must be a number and {LATENCY_VARIABLE} cycles or LOW-HIGH: {error}"
            ) from error
