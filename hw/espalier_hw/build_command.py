"""The `espalier build` command: from a target to Verilog, and to a bitstream where Vivado is installed."""

from __future__ import annotations

from enum import Enum
from pathlib import Path
from typing import Annotated, NoReturn

import typer

from espalier.arch.board import BoardFacts, board_names, load_board
from espalier.arch.config import HardwareConfig, load_config
from espalier.errors import ConfigError

EXIT_TOOL_MISSING = 3


class StopAfter(str, Enum):
    """Where a build may end."""

    VERILOG = "verilog"
    IP = "ip"
    SYNTH = "synth"


def build(
    target: Annotated[str, typer.Option(help="preset name or configuration file")] = "zcu104",
    out: Annotated[Path, typer.Option(help="folder that gets one folder per target")] = Path("bitstreams"),
    board: Annotated[str | None, typer.Option(help="board, if not the one called as the target")] = None,
    clock_mhz: Annotated[float | None, typer.Option(help="at most so fast; else the target's clock")] = None,
    jobs: Annotated[int, typer.Option(min=1, help="processes that Vivado may start")] = 2,
    stop_after: Annotated[StopAfter | None, typer.Option(help="end early")] = None,
) -> None:
    """Build the bitstream of TARGET, stage by stage; what is there already is not made again.

    Without Vivado it writes everything up to it, names what is missing and exits with code 3.
    """
    from espalier.estimate.resources import check_fits
    from espalier_hw.vivado import deliver, stages

    config = load_config(target)
    facts = _board_of(config, board)
    clock = None if facts is None else deliver.clock_of(config, facts, clock_mhz)
    check_fits(config)
    folder = out / config.name
    verilog = deliver.write_verilog(folder, config, _progress)
    manifest = {
        "target": config.name,
        "board": facts.name if facts else None,
        "part": facts.part if facts else config.device.part if config.device else None,
        "clock_mhz": clock,
        "config_hash": f"{config.hash:08x}",
        "verilog_sha256": verilog,
        "tool": None,
        "design_hash": None,
    }
    if facts is None or clock is None:
        deliver.withdraw(folder)
        deliver.write_manifest(folder, manifest)
        if stop_after is not StopAfter.VERILOG:
            _missing(
                f"no board is called '{config.name}'; choose one with --board: {', '.join(board_names())}",
                folder,
            )
        return
    vivado = stages.find_vivado()
    before = deliver.read_manifest(folder)
    # Where there is no Vivado, results that another machine has built are still what they were.
    tool = stages.vivado_version(vivado) if vivado else str(before.get("tool") or "no Vivado")
    manifest["tool"] = tool
    design_hash = deliver.write_scripts(folder, config, facts, clock, verilog, tool)
    manifest["design_hash"] = design_hash
    if before.get("design_hash") != design_hash:
        deliver.withdraw(folder)
    deliver.write_manifest(folder, manifest)
    if stop_after is StopAfter.VERILOG:
        return
    if vivado is None:
        if (folder / "espalier.bit").is_file():
            typer.echo(f"{folder / 'espalier.bit'} is up to date, built with {tool}")
            return
        checked = stages.check_scripts(folder, design_hash)
        if checked:
            _progress(f"the scripts pass their check; {checked} shows the address map that they build")
        _missing("Vivado is not installed here (2022.1 or later, `vivado` on the PATH)", folder)
    stages.Build(folder, vivado, design_hash, jobs).run(stop_after.value if stop_after else None, _progress)
    if stop_after is None:
        deliver.deliver(folder)
        deliver.write_manifest(folder, manifest)
        typer.echo(
            f"wrote {folder / 'espalier.bit'}, espalier.hwh and espalier.xsa for {facts.title}, {clock:g} MHz"
        )


def _board_of(config: HardwareConfig, name: str | None) -> BoardFacts | None:
    """Return the board of a configuration; None: there is none of its name."""
    if name is None and config.name not in board_names():
        return None
    facts = load_board(name or config.name)
    if config.device is not None and config.device.part != facts.part:
        raise ConfigError(
            f"configuration '{config.name}' is for {config.device.part}, but board '{facts.name}' has"
            f" {facts.part}"
        )
    return facts


def _progress(message: str) -> None:
    typer.echo(message, err=True)


def _missing(what: str, folder: Path) -> NoReturn:
    typer.echo(
        f"no bitstream: {what}. All that was made so far is in {folder} and will be used again.", err=True
    )
    raise typer.Exit(EXIT_TOOL_MISSING)
