"""Longest paths between registers in a netlist that yosys has mapped to Xilinx primitives.

Levels are counted: a LUT, a read of LUTRAM and a carry chain (however long) are one each, wide multiplexers
behind LUTs (MUXF7 to MUXF9) none, a multiplication without registers inside its DSP slice DSP_LEVELS. Ports
of the design count as registers. Levels say nothing about wires, so they bound the clock only from above.
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from typing import Any

DSP_LEVELS = 6  # what an unregistered multiplication is taken for
LIMIT = 6  # more than that between registers is reported

_CLOCK_PINS = ("C", "CLK", "WCLK", "CLKARDCLK", "CLKBWRCLK")
_LUT = re.compile(r"LUT[1-6]|LUT6_2|INV")
_LUTRAM = re.compile(r"RAM\d+(X1S|X1D|M|M16|M8)")
_CARRY_ENTRIES = ("CI", "CYINIT", "CI_TOP")

Bit = int | str
Pin = tuple[str, str, int]  # cell, port, index


@dataclass(frozen=True)
class LogicPath:
    """One path: levels, names of the registers (or ports) at its ends, named nets between them."""

    levels: int
    start: str
    end: str
    through: tuple[str, ...] = ()


@dataclass(frozen=True)
class PathReport:
    """Longest paths of a design.

    longest: the path of most levels; long: to every end of more than LIMIT levels the longest one, by end
    (bits of a vector together), longest first.
    """

    longest: LogicPath
    long: tuple[LogicPath, ...]


def longest_paths(netlist: Mapping[str, Any], top: str) -> PathReport:
    """Analyse module `top` of a flattened netlist as `write_json` writes it.

    Raises:
        ValueError: the netlist has a combinational loop.
    """
    return _Netlist(netlist["modules"][top]).report()


class _Netlist:
    """Levels of every net bit, computed on demand."""

    def __init__(self, module: Mapping[str, Any]) -> None:
        self.cells: Mapping[str, Any] = module["cells"]
        self.ports: Mapping[str, Any] = module["ports"]
        self.driver: dict[Bit, Pin] = {}
        for name, cell in self.cells.items():
            for port, direction in cell["port_directions"].items():
                if direction != "input":
                    for index, bit in enumerate(cell["connections"][port]):
                        self.driver[bit] = (name, port, index)
        self.names = _net_names(module["netnames"])
        self.levels: dict[Bit, int] = {}
        self.before: dict[Bit, Bit] = {}

    def report(self) -> PathReport:
        """Compare the levels in front of all pins that end a path."""
        worst: dict[str, tuple[int, Bit]] = {}
        for bit, extra, end in self._ends():
            levels = self.level(bit) + extra
            if end not in worst or levels > worst[end][0]:
                worst[end] = (levels, bit)
        paths = sorted(
            (self._path(levels, bit, end) for end, (levels, bit) in worst.items()),
            key=lambda path: (-path.levels, path.end, path.start),
        )
        longest = paths[0] if paths else LogicPath(0, "", "")
        return PathReport(longest, tuple(path for path in paths if path.levels > LIMIT))

    def level(self, bit: Bit) -> int:
        """Levels between registers and a net; depth first without recursion, as chains are long."""
        stack, open_bits = [bit], {bit}
        while stack:
            current = stack[-1]
            if current in self.levels:
                open_bits.discard(stack.pop())
                continue
            arcs = list(self._arcs(current))
            missing = [source for source, _ in arcs if source not in self.levels]
            if missing:
                if not open_bits.isdisjoint(missing):
                    raise ValueError(f"combinational loop through {self._name(current)}")
                stack.append(missing[0])
                open_bits.add(missing[0])
                continue
            best = self._start_levels(current)
            for source, cost in arcs:
                if self.levels[source] + cost > best or current not in self.before:
                    best = max(best, self.levels[source] + cost)
                    self.before[current] = source
            self.levels[current] = best
        return self.levels[bit]

    def _start_levels(self, bit: Bit) -> int:
        if bit not in self.driver:
            return 0
        cell = self.cells[self.driver[bit][0]]
        multiplies = cell["type"].startswith("DSP48") and not _registered(cell, "MREG", "PREG")
        return DSP_LEVELS if multiplies else 0

    def _arcs(self, bit: Bit) -> Iterator[tuple[Bit, int]]:
        """Nets that reach `bit` through one cell without a register, with the levels of that cell."""
        if bit not in self.driver:
            return
        name, port, index = self.driver[bit]
        cell = self.cells[name]
        kind, connections = cell["type"], cell["connections"]
        for source_port, bits in connections.items():
            if cell["port_directions"][source_port] != "input" or not _reaches(kind, source_port, port):
                continue
            if kind.startswith("CARRY"):
                yield from self._carry_arcs(source_port, bits, index)
            elif kind.startswith("DSP48"):
                if not _registered(cell, "MREG", "PREG", f"{source_port}REG"):
                    yield from ((source, DSP_LEVELS) for source in bits if isinstance(source, int))
            else:
                cost = 0 if kind.startswith(("MUXF", "BUFG")) else 1
                yield from ((source, cost) for source in bits if isinstance(source, int))

    def _carry_arcs(self, port: str, bits: list[Bit], index: int) -> Iterator[tuple[Bit, int]]:
        """Carry from the chain before costs nothing; operands reach only outputs of their place and above."""
        for place, source in enumerate(bits):
            if not isinstance(source, int) or (port not in _CARRY_ENTRIES and place > index):
                continue
            driver = self.driver.get(source)
            chained = driver is not None and driver[1] == "CO" and self._kind(driver).startswith("CARRY")
            yield source, 0 if chained and port in _CARRY_ENTRIES else 1

    def _kind(self, pin: Pin) -> str:
        kind: str = self.cells[pin[0]]["type"]
        return kind

    def _ends(self) -> Iterator[tuple[Bit, int, str]]:
        """Nets at pins that are clocked or leave the design, with levels behind the pin and the end's name.

        Outputs of the design, and inputs of black boxes, count as ends.
        """
        for name, port in self.ports.items():
            if port["direction"] == "output":
                yield from ((bit, 0, name) for bit in port["bits"] if isinstance(bit, int))
        for name, cell in self.cells.items():
            kind = cell["type"]
            if _LUT.fullmatch(kind) or kind.startswith(("CARRY", "MUXF", "BUFG")):
                continue
            for port, bits in cell["connections"].items():
                if cell["port_directions"][port] != "input" or port in _CLOCK_PINS:
                    continue
                # Operands that pass the multiplier before they meet the first register of the slice.
                late = kind.startswith("DSP48") and port in ("A", "B") and not _registered(cell, f"{port}REG")
                for bit in bits:
                    if isinstance(bit, int):
                        yield bit, DSP_LEVELS if late else 0, self._cell_name(name, cell)

    def _cell_name(self, name: str, cell: Mapping[str, Any]) -> str:
        """Name of the net at a cell's first named output, which says more than the cell's own name."""
        for port, direction in cell["port_directions"].items():
            if direction == "output":
                for bit in cell["connections"][port]:
                    if bit in self.names:
                        return (
                            f"{self.names[bit]} ({cell['type']})"
                            if "RAM" in cell["type"]
                            else self.names[bit]
                        )
        return name

    def _name(self, bit: Bit) -> str:
        if bit in self.names:
            return self.names[bit]
        return self._cell_name(*self._cell_of(bit)) if bit in self.driver else str(bit)

    def _cell_of(self, bit: Bit) -> tuple[str, Mapping[str, Any]]:
        name = self.driver[bit][0]
        return name, self.cells[name]

    def _path(self, levels: int, bit: Bit, end: str) -> LogicPath:
        nets = [bit]
        while nets[-1] in self.before:
            nets.append(self.before[nets[-1]])
        through = [self.names[net] for net in reversed(nets[:-1]) if net in self.names]
        unique = tuple(dict.fromkeys(name for name in through if name != end))
        return LogicPath(levels, self._name(nets[-1]), end, unique)


def _reaches(kind: str, source: str, port: str) -> bool:
    """Whether an input of a primitive acts on its output without a clock edge between."""
    if _LUT.fullmatch(kind) or kind.startswith(("CARRY", "MUXF", "BUFG")):
        return True
    if kind.startswith("SRL"):
        return source.startswith("A") and port == "Q"
    if _LUTRAM.fullmatch(kind):
        if port.startswith("DO") and source.startswith("ADDR"):
            return source[4:] == port[2:]
        return source.startswith({"SPO": "A", "DPO": "DPRA", "O": "A"}.get(port, "-"))
    return kind.startswith("DSP48") and source in ("A", "B", "C", "D") and port == "P"


def _registered(cell: Mapping[str, Any], *names: str) -> bool:
    """Whether any of the named register stages of a DSP slice is in use; unnamed parameters are 1."""
    parameters = cell.get("parameters", {})
    return any(int(str(parameters.get(name, "1")), 2) != 0 for name in names)


def _net_names(netnames: Mapping[str, Any]) -> dict[Bit, str]:
    """Best name of every net bit: one that the source gave, the shortest of those."""
    names: dict[Bit, str] = {}
    for name, net in netnames.items():
        if net["hide_name"]:
            continue
        for bit in net["bits"]:
            if isinstance(bit, int) and (bit not in names or _rank(name) < _rank(names[bit])):
                names[bit] = name
    return names


def _rank(name: str) -> tuple[bool, int, str]:
    """Signals that got a name from Amaranth, as they had none, come last."""
    return "$" in name, len(name), name
