"""Compiles the accelerator's Verilog and the harness into a shared library, once per content."""

from __future__ import annotations

import fcntl
import hashlib
import json
import os
import shutil
import subprocess
import tempfile
import time
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path

from platformdirs import user_cache_dir

from espalier.arch.config import HardwareConfig
from espalier.errors import InternalError, UserError
from espalier_sim.progress import Progress, silent
from espalier_sim.tools import Tools, check_fst_headers, find_tools

TOP = "espalier"
HARNESS_FOLDER = Path(__file__).parent / "verilator"

_VERILATOR_FLAGS = (
    "--cc", "--exe", "-O3", "--noassert", "--no-timing", "--x-assign", "fast", "--x-initial", "fast",
    "-Wno-fatal", "-Wno-lint", "-Wno-style", "--output-split", "6000", "--prefix", "Vespalier",
)  # fmt: skip
_WAVE_FLAGS = {
    "": (),
    "vcd": ("--trace-vcd", "-CFLAGS", "-DWAVES_VCD"),
    "fst": ("--trace-fst", "-CFLAGS", "-DWAVES_FST"),
}


@dataclass(frozen=True)
class BuiltSimulator:
    """A shared library ready to load. `seconds`: spent on getting it this time."""

    library: Path
    seconds: float
    cached: bool


def cache_folder() -> Path:
    """Where simulators and compiled images are kept: ESPALIER_CACHE, or the user's cache folder."""
    chosen = os.environ.get("ESPALIER_CACHE")
    return Path(chosen) if chosen else Path(user_cache_dir("espalier"))


@contextmanager
def locked(path: Path) -> Iterator[None]:
    """Hold the lock of a cache entry, so that two processes never build the same thing twice.

    Raises:
        UserError: the cache cannot be written.

    """
    lock = path.with_name(f"{path.name}.lock")
    try:
        path.parent.mkdir(parents=True, exist_ok=True)
        stream = lock.open("w", encoding="utf-8")
    except OSError as error:
        raise UserError(
            f"cannot write the cache {cache_folder()} ({error.strerror}): name another folder in the"
            " environment variable ESPALIER_CACHE"
        ) from error
    with stream:
        fcntl.flock(stream, fcntl.LOCK_EX)
        yield


def build_simulator(
    modules: dict[str, str], config: HardwareConfig, waves: str = "", progress: Progress = silent
) -> BuiltSimulator:
    """Return the simulator of `modules` (Verilog by module name, top `espalier`), building it if needed.

    waves: "", "vcd" or "fst", the kind of wave file that the simulator can write.

    Raises:
        ToolNotFoundError: a program needed for the build is missing.
        InternalError: Verilator or the compiler refused the generated code.

    """
    started = time.monotonic()
    tools = find_tools()
    if waves == "fst":
        check_fst_headers(tools)
    folder = cache_folder() / "simulators"
    library = folder / f"{config.name}-{_content_hash(modules, config, waves, tools)}.so"
    cached = True
    if not library.is_file():
        with locked(library):
            # Another process may have built it while this one waited for the lock.
            if not library.is_file():
                _build(modules, config, waves, tools, library, progress)
                cached = False
    return BuiltSimulator(library, time.monotonic() - started, cached)


def _content_hash(modules: dict[str, str], config: HardwareConfig, waves: str, tools: Tools) -> str:
    harness = {
        path.name: path.read_text(encoding="utf-8") for path in sorted(HARNESS_FOLDER.glob("*.[ch]pp"))
    }
    flags = [
        _VERILATOR_FLAGS,
        _WAVE_FLAGS[waves],
        sorted(tools.make_variables.items()),
        _control_file(modules),
    ]
    content = json.dumps([modules, harness, flags, tools.versions, config.lanes_per_pe])
    return hashlib.sha256(content.encode()).hexdigest()[:20]


def _control_file(modules: dict[str, str]) -> str:
    """Keep branch and PE as functions (short builds, fast code), make the trace port readable."""
    lines = ["`verilator_config"]
    lines += [f'no_inline -module "{name}"' for name in modules if name != TOP]
    lines += [f'public_flat_rd -module "{TOP}" -var "trace_*"']
    return "\n".join(lines) + "\n"


def _build(
    modules: dict[str, str],
    config: HardwareConfig,
    waves: str,
    tools: Tools,
    library: Path,
    progress: Progress,
) -> None:
    """Build in a temporary folder (whose name has no spaces, which make needs) and move the result."""
    with tempfile.TemporaryDirectory(prefix="espalier_build_") as name:
        folder = Path(name)
        sources = []
        for module, text in modules.items():
            sources.append(folder / f"{module}.v")
            sources[-1].write_text(text, encoding="utf-8")
        control = folder / "control.vlt"
        control.write_text(_control_file(modules), encoding="utf-8")
        for path in HARNESS_FOLDER.glob("*.[ch]pp"):
            shutil.copy(path, folder)

        progress("simulator: translating Verilog")
        command = [str(tools.verilator), *_VERILATOR_FLAGS, *_WAVE_FLAGS[waves]]
        command += ["--top-module", TOP, "-Mdir", "objects", "-o", "simulator.so"]
        command += ["-CFLAGS", f"-fPIC -pthread -DLANES={config.lanes_per_pe} -I{folder}"]
        command += [
            "-LDFLAGS",
            "-shared -pthread",
            str(control),
            *map(str, sources),
            str(folder / "harness.cpp"),
        ]
        _run(command, folder, tools)
        _compile(folder / "objects", tools, progress)

        library.parent.mkdir(parents=True, exist_ok=True)
        unfinished = library.with_name(f"{library.name}.{os.getpid()}.unfinished")
        try:
            shutil.copy(folder / "objects" / "simulator.so", unfinished)
            unfinished.replace(library)
        finally:
            unfinished.unlink(missing_ok=True)


def _compile(folder: Path, tools: Tools, progress: Progress) -> None:
    """Run make on all cores and count the compiled files."""
    variables = [f"{name}={value}" for name, value in tools.make_variables.items()]
    jobs = f"-j{os.cpu_count() or 1}"
    total = len(list(folder.glob("*.cpp"))) + 3  # and the harness, Verilator's own files
    done = 0

    def line(text: str) -> None:
        nonlocal done
        if " -c " in text:
            done += 1
            progress(f"simulator: compiling {min(done, total)} of about {total} files")

    _run([tools.make, jobs, "-f", "Vespalier.mk", *variables], folder, tools, line)


def _run(command: list[str], folder: Path, tools: Tools, line: Progress = silent) -> None:
    output: list[str] = []
    with subprocess.Popen(
        command, cwd=folder, env=tools.environment(), text=True, errors="replace",
        stdin=subprocess.DEVNULL, stdout=subprocess.PIPE, stderr=subprocess.STDOUT,
    ) as process:  # fmt: skip
        assert process.stdout is not None, "a pipe was asked for"
        try:
            for text in process.stdout:
                output.append(text)
                line(text)
        except BaseException:
            process.terminate()
            raise
    if process.returncode:
        raise InternalError(
            f"{Path(command[0]).name} failed with code {process.returncode}:\n{''.join(output[-30:])}"
        )
