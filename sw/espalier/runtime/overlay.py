"""The accelerator as PYNQ overlay and IP driver. Importing this imports `pynq`."""

from __future__ import annotations

from typing import Any

import pynq
from pynq.overlay import UnsupportedConfiguration

from espalier.arch.config import ARCH_VERSION
from espalier.arch.registers import CLOCK_PARAMETER, MAGIC, VLNV, offset_of
from espalier.errors import DeviceError
from espalier.runtime.board_lock import LOCK
from espalier.runtime.event_loop import in_board_thread
from espalier.runtime.placeholder import is_placeholder

_LARGEST_DIVISOR = 63
_TOLERANCE = 1e-3  # of clocks: PLL frequencies are no round numbers
_IP_TYPE = VLNV.rpartition(":")[0]


class EspalierIP(pynq.DefaultIP):  # type: ignore[misc]  # pynq has no types
    """Driver of the accelerator's registers, bound by PYNQ to the IP's VLNV in any overlay.

    Raises:
        UnsupportedConfiguration: the identification registers are not those of this version's accelerators.

    """

    bindto = (VLNV,)

    def __init__(self, description: dict[str, Any]) -> None:
        super().__init__(description)
        magic, version = (self.mmio.read(offset_of(name)) for name in ("MAGIC", "VERSION"))
        if (magic, version) != (MAGIC, ARCH_VERSION):
            raise UnsupportedConfiguration(
                f"{description['fullpath']} reads MAGIC 0x{magic:08x} and VERSION {version}, expected"
                f" 0x{MAGIC:08x} and {ARCH_VERSION}: the bitstream is stale or its address is wrong"
            )
        self.config_hash = self.mmio.read(offset_of("CONFIG_HASH"))


class EspalierOverlay(pynq.Overlay):  # type: ignore[misc]  # pynq has no types
    """An overlay with one accelerator, which this process has for itself until `free`.

    bitfile_name: absolute, relative, or the name of one in `espalier.overlays`. clock_mhz: of the
    accelerator; None: as fast as the bitstream was built for. Other arguments are those of `pynq.Overlay`.

    Raises:
        DeviceError: another process uses the board, the bitstream is a placeholder for simulations, the clock
            is faster than the one the bitstream was built for, or there is no accelerator in it.

    """

    def __init__(self, bitfile_name: str, clock_mhz: float | None = None, **options: Any) -> None:
        self._asked_mhz = clock_mhz
        LOCK.take()
        self._holds_lock = True
        try:
            super().__init__(bitfile_name, **options)
            self._ip = self._find()
        except BaseException:
            self._release()
            raise

    def download(self, dtbo: str | None = None) -> None:
        """Load the bitstream and set the clock; refuses placeholders on boards."""
        if is_placeholder(self.bitfile_name) and not getattr(self.device, "is_simulated", False):
            raise DeviceError(
                f"{self.bitfile_name} is a placeholder for simulations: no board can be programmed with it"
            )
        super().download(dtbo)
        self.clock_mhz = set_clock(self._limit())

    @property
    def built_mhz(self) -> float | None:
        """Clock that the bitstream was built for, as its .hwh says; None: it does not."""
        for details in self.ip_dict.values():
            value = details.get("parameters", {}).get(CLOCK_PARAMETER)
            if _is_ours(details) and value is not None:
                return float(value)
        frequency = self.clock_dict.get(0, {}).get("frequency")
        return None if frequency is None else float(frequency)

    @property
    def accelerator(self) -> EspalierIP:
        """Driver of the accelerator."""
        ip: EspalierIP = self._ip
        return ip

    def free(self) -> None:
        """Give the board free for other processes."""
        super().free()
        self._release()

    def _release(self) -> None:
        if self._holds_lock:
            self._holds_lock = False
            LOCK.release()

    def _limit(self) -> float:
        built, asked = self.built_mhz, self._asked_mhz
        limit = asked if asked is not None else built
        if limit is None:
            raise DeviceError(
                f"{self.bitfile_name} does not say which clock it was built for: give `clock_mhz`"
            )
        if built is not None and asked is not None and asked > built * (1 + _TOLERANCE):
            raise DeviceError(
                f"{self.bitfile_name} was built for {built:g} MHz: {asked:g} MHz are too fast for it"
            )
        return float(limit)

    def _find(self) -> EspalierIP:
        names = [name for name, details in self.ip_dict.items() if _is_ours(details)]
        if len(names) != 1:
            raise DeviceError(
                f"{self.bitfile_name} has {len(names)} accelerators, expected one: load a bitstream of"
                " Espalier"
            )

        def bind() -> Any:
            ip: Any = self
            for part in names[0].split("/"):
                ip = getattr(ip, part)
            return ip

        ip = in_board_thread(bind)
        if not isinstance(ip, EspalierIP):
            raise DeviceError(
                f"{names[0]} in {self.bitfile_name} does not answer as an accelerator of this version: see"
                " PYNQ's warning above, and build the bitstream again"
            )
        return ip


def _is_ours(details: dict[str, Any]) -> bool:
    return str(details.get("type", "")).startswith(f"{_IP_TYPE}:")


def set_clock(limit_mhz: float) -> float:
    """Set clock 0 of the logic to the fastest that is not above `limit_mhz`, and return what it is then, MHz.

    PYNQ itself takes the nearest one, which may be faster than timing allows.

    Raises:
        DeviceError: the clock read back is too fast, or none that slow can be made.

    """
    clocks = pynq.Clocks
    clocks.set_pl_clk(0, div0=_LARGEST_DIVISOR, div1=1)
    source = _LARGEST_DIVISOR * clocks.fclk0_mhz
    smallest = source / (limit_mhz * (1 + _TOLERANCE))
    pairs = [(first, max(1, -int(-smallest // first))) for first in range(1, _LARGEST_DIVISOR + 1)]
    possible = [pair for pair in pairs if pair[1] <= _LARGEST_DIVISOR]
    if not possible:
        raise DeviceError(f"no clock of {limit_mhz:g} MHz or less can be made of {source:g} MHz")
    first, second = min(possible, key=lambda pair: pair[0] * pair[1])
    clocks.set_pl_clk(0, div0=first, div1=second)
    found = float(clocks.fclk0_mhz)
    if not 0 < found <= limit_mhz * (1 + _TOLERANCE):
        raise DeviceError(f"the clock reads back {found:g} MHz, at most {limit_mhz:g} MHz were set")
    return found
