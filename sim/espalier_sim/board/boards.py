"""The boards that can be simulated, as far as PYNQ sees them."""

from __future__ import annotations

from dataclasses import dataclass

from espalier.errors import DeviceError


@dataclass(frozen=True)
class Board:
    """A board. base: address of the accelerator's registers; controller: of the interrupt controller.

    master: bus interface of the processing system that reaches them; interrupt: its interrupt pin.
    """

    name: str
    part: str
    is_ultrascale: bool
    base: int
    controller: int
    system: str
    system_vlnv: str
    master: str
    interrupt: str

    @property
    def arch(self) -> str:
        """Name of the processor's architecture, by which PYNQ tells the two families apart."""
        return "aarch64" if self.is_ultrascale else "armv7l"


BOARDS = {
    board.name: board
    for board in (
        Board(
            "zcu104", "xczu7ev-ffvc1156-2-e", True, 0xA000_0000, 0xA001_0000, "zynq_ultra_ps_e",
            "xilinx.com:ip:zynq_ultra_ps_e:3.5", "M_AXI_HPM0_FPD", "pl_ps_irq0",
        ),
        Board(
            "pynqz2", "xc7z020clg400-1", False, 0x43C0_0000, 0x4180_0000, "processing_system7",
            "xilinx.com:ip:processing_system7:5.5", "M_AXI_GP0", "IRQ_F2P",
        ),
    )
}  # fmt: skip


def find_board(name: str) -> Board:
    """Return a board by name.

    Raises:
        DeviceError: no such board.

    """
    if name not in BOARDS:
        raise DeviceError(f"no simulated board '{name}': choose one of {', '.join(BOARDS)}")
    return BOARDS[name]
