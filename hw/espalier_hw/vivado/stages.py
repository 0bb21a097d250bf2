"""The stages that Vivado runs: one call of it each, skipped when its result is there already."""

from __future__ import annotations

import json
import os
import shutil
import subprocess
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path

from espalier.errors import BuildError, InternalError
from espalier_hw.vivado.settings import HASH_PARAMETER

SCRIPTS = Path(__file__).parent / "scripts"
STAND_IN = Path(__file__).parent / "stand_in" / "vivado"
_STAMPS = "stages.json"


@dataclass(frozen=True)
class Stage:
    """A call of Vivado. results: files that have to be there afterwards, below the build's folder."""

    name: str
    title: str
    results: tuple[str, ...]


STAGES = (
    Stage("ip", "packaging the accelerator as IP", ("vivado/ip_repo/espalier/component.xml",)),
    Stage("design", "block design", ("vivado/project/project.xpr", "vivado/espalier.hwh")),
    Stage("synth", "synthesis", ("reports/synth_utilization.rpt",)),
    Stage(
        "impl",
        "placement, routing, bitstream",
        (
            *(f"reports/{name}" for name in ("utilization.rpt", "timing.rpt", "power.rpt", "drc.rpt")),
            "reports/slack.txt",
            "vivado/espalier.bit",
            "vivado/espalier.xsa",
        ),
    ),
)


@dataclass(frozen=True)
class Build:
    """One build. folder: of the target; vivado: executable; design_hash: what its results belong to."""

    folder: Path
    vivado: Path
    design_hash: str
    jobs: int = 2

    def run(self, last: str | None, progress: Callable[[str], None]) -> None:
        """Run all stages that are not done, up to the stage `last`, all of them if None.

        A stage that is done again makes those behind it undone.

        Raises:
            BuildError: Vivado fails, or has not written what it should; names the log.

        """
        for name in ("logs", "reports", "vivado"):
            (self.folder / name).mkdir(exist_ok=True)
        for index, stage in enumerate(STAGES):
            title = f"stage {index + 1} of {len(STAGES)}, {stage.name}: {stage.title}"
            if self._is_done(stage):
                progress(f"{title}: up to date")
            else:
                progress(f"{title} ...")
                self._write_stamps(self.done()[:index])
                self._run(stage)
                self._write_stamps([*self.done()[:index], stage.name])
            if stage.name == last:
                return

    def done(self) -> list[str]:
        """Names of the stages that were finished for this design."""
        try:
            content = json.loads((self.folder / "vivado" / _STAMPS).read_text(encoding="utf-8"))
        except (OSError, ValueError):
            return []
        return list(content["stages"]) if content.get("design_hash") == self.design_hash else []

    def _is_done(self, stage: Stage) -> bool:
        return stage.name in self.done() and all(_is_written(self.folder / path) for path in stage.results)

    def _write_stamps(self, stages: list[str]) -> None:
        path = self.folder / "vivado" / _STAMPS
        temporary = path.with_suffix(".tmp")
        temporary.write_text(
            json.dumps({"design_hash": self.design_hash, "stages": stages}), encoding="utf-8"
        )
        temporary.replace(path)

    def _run(self, stage: Stage) -> None:
        for result in stage.results:
            (self.folder / result).unlink(missing_ok=True)
        folder = self.folder.resolve()
        log = folder / "logs" / f"{stage.name}.log"
        command = f"-mode batch -nojournal -log {stage.name}.vivado.log -source".split()
        command += [str(folder / "scripts" / f"{stage.name}.tcl"), "-tclargs", str(folder), str(self.jobs)]
        with log.open("w", encoding="utf-8") as output:
            code = subprocess.run(
                [self.vivado, *command],
                cwd=folder / "logs",
                stdout=output,
                stderr=subprocess.STDOUT,
                check=False,
            ).returncode
        text = log.read_text(encoding="utf-8", errors="replace")
        if code:
            raise BuildError(f"stage {stage.name} failed: {_reason(text, code)}; log: {log}")
        missing = [path for path in stage.results if not _is_written(folder / path)]
        if missing:
            raise BuildError(f"stage {stage.name} has not written {', '.join(missing)}; log: {log}")
        if stage.name == "design":
            self._check_description(folder / "vivado" / "espalier.hwh", log)

    def _check_description(self, path: Path, log: Path) -> None:
        """Refuse a .hwh without register map or hash now, and not after hours."""
        text = path.read_text(encoding="utf-8")
        for what, needle in (("register map", "ADDRESS_OFFSET"), (HASH_PARAMETER, self.design_hash)):
            if needle not in text:
                raise BuildError(f"the .hwh that Vivado wrote has no {what}; log: {log}")


def _is_written(path: Path) -> bool:
    return path.is_file() and path.stat().st_size > 0


def _reason(text: str, code: int) -> str:
    """Return the first error in a log."""
    lines = [line.removeprefix("ERROR:").strip() for line in text.splitlines() if line.startswith("ERROR")]
    return lines[0] if lines else f"Vivado exited with code {code}"


def find_vivado() -> Path | None:
    """Return the Vivado that the environment offers (ESPALIER_VIVADO, else the PATH), if any."""
    found = shutil.which(os.environ.get("ESPALIER_VIVADO") or "vivado")
    return Path(found) if found else None


def vivado_version(vivado: Path) -> str:
    """Return the first line of `vivado -version`."""
    answer = subprocess.run([vivado, "-version"], capture_output=True, text=True, check=False)
    if answer.returncode or not answer.stdout.strip():
        raise BuildError(f"{vivado} -version failed with code {answer.returncode}: {answer.stderr.strip()}")
    return answer.stdout.splitlines()[0].strip()


def check_scripts(folder: Path, design_hash: str) -> Path | None:
    """Run a build's scripts against the stand-in in `folder`/check; return the .hwh, or None without tclsh.

    Raises:
        InternalError: a script does what the stand-in does not accept.

    """
    if shutil.which("tclsh") is None:
        return None
    check = folder / "check"
    shutil.rmtree(check, ignore_errors=True)
    check.mkdir()
    shutil.copytree(folder / "scripts", check / "scripts")
    shutil.copyfile(folder / "espalier.v", check / "espalier.v")
    try:
        Build(check, STAND_IN, design_hash).run(None, lambda message: None)
    except BuildError as error:
        raise InternalError(f"the Vivado scripts do not pass their check: {error}") from error
    description = folder / "espalier.checked.hwh"
    (check / "vivado" / "espalier.hwh").replace(description)
    shutil.rmtree(check)
    return description
