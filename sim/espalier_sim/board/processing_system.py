"""The registers of the processing system that PYNQ itself touches: PLLs, clock dividers, bus widths."""

from __future__ import annotations

from espalier_sim.board.boards import Board

_ULTRASCALE = {
    0xFF5E0020: 90 << 8 | 1 << 16,  # IOPLL: 33.333 MHz x 90 / 2
    0xFF5E0030: 45 << 8 | 1 << 16,
    0xFD1A0020: 72 << 8 | 1 << 16,
    0xFD1A002C: 64 << 8 | 1 << 16,
    0xFD1A0038: 90 << 8 | 1 << 16,
    0xFD1A0060: 1 << 8,
}
_ULTRASCALE |= {0xFF5E00C0 + 4 * index: 1 << 24 | 1 << 16 | 15 << 8 for index in range(4)}
_ZYNQ_7000 = {
    0xF8000100: 26 << 12,
    0xF8000104: 21 << 12,
    0xF8000108: 20 << 12,  # IO PLL: 50 MHz x 20
    0xF8000120: 2 << 8,
}
_ZYNQ_7000 |= {0xF8000170 + 0x10 * index: 2 << 20 | 5 << 8 for index in range(4)}
_ULTRASCALE_CLOCK, _ZYNQ_7000_CLOCK = 0xFF5E00C0, 0xF8000170
_IO_PLL_MHZ = {True: 33.333 * 45, False: 50.0 * 20}


class ProcessingSystem:
    """Plain registers that start with plausible values."""

    def __init__(self, board: Board) -> None:
        self._board = board
        self._values = dict(_ULTRASCALE if board.is_ultrascale else _ZYNQ_7000)

    def owns(self, address: int) -> bool:
        """Whether an address lies in the processing system."""
        if self._board.is_ultrascale:
            return 0xFD00_0000 <= address < 1 << 32
        return 0xF800_0000 <= address < 0xF800_1000

    def read(self, address: int) -> int:
        """Read a register; zero if it was never written."""
        return self._values.get(address, 0)

    def write(self, address: int, value: int) -> None:
        """Write a register."""
        self._values[address] = value

    @property
    def clock_mhz(self) -> float:
        """Clock 0 of the logic, MHz."""
        ultrascale = self._board.is_ultrascale
        value = self.read(_ULTRASCALE_CLOCK if ultrascale else _ZYNQ_7000_CLOCK)
        first, second = value >> 8 & 63, value >> (16 if ultrascale else 20) & 63
        return _IO_PLL_MHZ[ultrascale] / max(1, first * second)
