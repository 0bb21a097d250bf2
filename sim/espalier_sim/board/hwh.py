"""The hardware description (.hwh) of a simulated board, from the one description of registers."""

from __future__ import annotations

from xml.etree import ElementTree

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
from espalier_sim.board.boards import Board

ACCELERATOR, CONTROLLER, CONCATENATION = "espalier_0", "axi_intc_0", "xlconcat_0"
_AXI = "xilinx.com:interface:aximm:1.0"
_CLOCKS = 4  # of the processing system for the logic
_SOURCE_MHZ = 1500  # of the PLL that they come from, on UltraScale+
Element = ElementTree.Element


def hardware_description(config: HardwareConfig, board: Board) -> bytes:
    """Return the smallest .hwh with which PYNQ finds registers, interrupt and clock."""
    root = Element("EDKSYSTEM", EDWVERSION="1.2", VIVADOVERSION="2024.1")
    _add(root, "SYSTEMINFO", NAME=f"espalier_{config.name}_simulation", DEVICE=board.part)
    _add(root, "EXTERNALPORTS")
    modules = _add(root, "MODULES")
    _accelerator(modules, config, board)
    controller = _module(modules, CONTROLLER, "xilinx.com:ip:axi_intc:4.1")
    _slave(controller, "s_axi", board.controller)
    # Only an xlconcat is followed from the controller to the sources, and its inputs must have no gaps.
    _ports(controller, ("intr", "I", CONCATENATION, "dout"), ("irq", "O", _system(board), board.interrupt))
    concatenation = _module(modules, CONCATENATION, "xilinx.com:ip:xlconcat:2.1")
    _ports(concatenation, ("In0", "I", ACCELERATOR, INTERRUPT_PIN), ("dout", "O", CONTROLLER, "intr"))
    _processing_system(modules, config, board)
    text: bytes = ElementTree.tostring(root, encoding="utf-8", xml_declaration=True)
    return text


def _add(parent: Element, tag: str, **attributes: object) -> Element:
    return ElementTree.SubElement(parent, tag, {name: str(value) for name, value in attributes.items()})


def _system(board: Board) -> str:
    return f"{board.system}_0"


def _module(modules: Element, name: str, vlnv: str, kind: str | None = None) -> Element:
    return _add(
        modules, "MODULE", FULLNAME=f"/{name}", INSTANCE=name, VLNV=vlnv, MODTYPE=kind or vlnv.split(":")[2]
    )


def _ports(module: Element, *connections: tuple[str, str, str, str]) -> None:
    ports = _add(module, "PORTS")
    for name, direction, instance, pin in connections:
        port = _add(ports, "PORT", NAME=name, DIR=direction, SIGIS="INTERRUPT", SIGNAME=f"{name}_net")
        _add(_add(port, "CONNECTIONS"), "CONNECTION", INSTANCE=instance, PORT=pin)


def _parameters(module: Element, values: dict[str, object]) -> None:
    parameters = _add(module, "PARAMETERS")
    for name, value in values.items():
        _add(parameters, "PARAMETER", NAME=name, VALUE=value)


def _last(base: int) -> int:
    return base + (1 << ADDRESS_BITS) - 1


def _slave(module: Element, interface: str, base: int) -> None:
    _parameters(module, {"C_BASEADDR": f"0x{base:08X}", "C_HIGHADDR": f"0x{_last(base):08X}"})
    _add(_add(module, "BUSINTERFACES"), "BUSINTERFACE", NAME=interface, TYPE="SLAVE", VLNV=_AXI)


def _accelerator(modules: Element, config: HardwareConfig, board: Board) -> None:
    module = _module(modules, ACCELERATOR, VLNV)
    block = _add(_add(module, "ADDRESSBLOCKS"), "ADDRESSBLOCK", INTERFACE="s_axi_ctrl", USAGE="register")
    registers = _add(block, "REGISTERS")
    for register in REGISTERS:
        entry = _add(registers, "REGISTER", NAME=register.name)
        _properties(
            entry,
            DESCRIPTION=register.doc,
            ADDRESS_OFFSET=f"0x{register.offset:X}",
            SIZE=32,
            ACCESS=ACCESS_WORDS[register.access],
        )
        if register.name in REGISTER_FIELDS:
            fields = _add(entry, "FIELDS")
            for flag in REGISTER_FIELDS[register.name]:
                field = _add(fields, "FIELD", NAME=flag.name)
                _properties(field, BIT_OFFSET=flag.value.bit_length() - 1, BIT_WIDTH=1)
    _slave(module, "s_axi_ctrl", board.base)
    parameters = module.find("PARAMETERS")
    assert parameters is not None, "made by _slave"
    for name, value in ((CLOCK_PARAMETER, config.clock_mhz), ("CONFIG_HASH", f"0x{config.hash:08X}")):
        _add(parameters, "PARAMETER", NAME=name, VALUE=value)
    _ports(module, (INTERRUPT_PIN, "O", CONCATENATION, "In0"))


def _properties(parent: Element, **values: object) -> None:
    for name, value in values.items():
        _add(parent, "PROPERTY", NAME=name, VALUE=value)


def _processing_system(modules: Element, config: HardwareConfig, board: Board) -> None:
    module = _module(modules, _system(board), board.system_vlnv, board.system)
    values: dict[str, object] = {}
    for index in range(_CLOCKS):
        values |= _clock(index, config.clock_mhz, board)
    _parameters(module, values)
    _ports(module, (board.interrupt, "I", CONTROLLER, "irq"))
    _add(_add(module, "BUSINTERFACES"), "BUSINTERFACE", NAME=board.master, TYPE="MASTER", VLNV=_AXI)
    ranges = _add(module, "MEMORYMAP")
    for name, interface, base in (
        (ACCELERATOR, "s_axi_ctrl", board.base),
        (CONTROLLER, "s_axi", board.controller),
    ):
        _add(
            ranges, "MEMRANGE", INSTANCE=name, MASTERBUSINTERFACE=board.master, MEMTYPE="REGISTER",
            SLAVEBUSINTERFACE=interface, BASEVALUE=f"0x{base:08X}", HIGHVALUE=f"0x{_last(base):08X}",
        )  # fmt: skip


def _clock(index: int, mhz: int, board: Board) -> dict[str, object]:
    """Parameters of one clock of the logic; only the first one is enabled."""
    enabled = int(index == 0)
    if not board.is_ultrascale:
        name = f"PCW_FCLK{index}_PERIPHERAL"
        return {
            f"PCW_FPGA_FCLK{index}_ENABLE": enabled,
            f"{name}_CLKSRC": "IO PLL",
            f"{name}_DIVISOR0": 10,
            f"{name}_DIVISOR1": 1,
        }
    name = f"PSU__CRL_APB__PL{index}_REF_CTRL__"
    return {
        f"PSU__FPGA_PL{index}_ENABLE": enabled,
        f"{name}SRCSEL": "IOPLL",
        f"{name}DIVISOR0": -(-_SOURCE_MHZ // mhz),
        f"{name}DIVISOR1": 1,
        f"{name}ACT_FREQMHZ": mhz,
    }
