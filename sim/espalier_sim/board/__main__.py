"""Command line of the simulated board."""

from __future__ import annotations

import argparse
import os
import runpy
import sys
from pathlib import Path

from espalier.arch.config import load_config
from espalier.errors import EspalierError
from espalier.runtime.open_device import BOARD_VARIABLE
from espalier_sim.board.activate import activate
from espalier_sim.board.boards import BOARDS, find_board
from espalier_sim.board.files import write_board_files
from espalier_sim.board.settings import LATENCY_VARIABLE, STALLS_VARIABLE, Settings


def main() -> int:
    """Write board files, or run a script; returns the exit code."""
    arguments = _arguments()
    for variable, value in (
        (BOARD_VARIABLE, arguments.board),
        (STALLS_VARIABLE, arguments.stalls),
        (LATENCY_VARIABLE, arguments.host_latency),
    ):
        if value is not None:
            os.environ[variable] = str(value)
    try:
        board = find_board(Settings.of_environment(os.environ).board)
        if arguments.files is not None:
            print(write_board_files(arguments.files, load_config(arguments.target), board))
            return 0
        activate(board.name)
    except EspalierError as error:
        print(f"error: {error}", file=sys.stderr)
        return 2
    script, *rest = arguments.script
    sys.argv = [script, *rest]
    sys.path[0] = str(Path(script).resolve().parent)
    runpy.run_path(script, run_name="__main__")
    return 0


def _arguments() -> argparse.Namespace:
    parser = argparse.ArgumentParser(
        prog="python -m espalier_sim.board", description="Runs a PYNQ script on a simulated board."
    )
    parser.add_argument("--board", choices=sorted(BOARDS), help="zcu104 if not given")
    parser.add_argument("--stalls", type=int, metavar="SEED", help="random stalls on all bus channels")
    parser.add_argument("--host-latency", metavar="CYCLES|LOW-HIGH", help="before each register access")
    parser.add_argument(
        "--files", type=Path, metavar="FOLDER", help="write the placeholder .bit and .hwh there"
    )
    parser.add_argument("--target", default="tiny", help="preset or YAML file for --files")
    parser.add_argument("script", nargs=argparse.REMAINDER, help="the script and its arguments")
    arguments = parser.parse_args()
    if (arguments.files is None) == (not arguments.script):
        parser.error("give either a script or --files")
    return arguments


if __name__ == "__main__":
    sys.exit(main())
