"""Where evaluations run: what is lost costs only itself; neither processes nor clusters change the front."""

from __future__ import annotations

import contextlib
import dataclasses
import importlib.util
import os
import signal
import subprocess
import sys
import time
from dataclasses import dataclass
from pathlib import Path

import pytest

from espalier.arch.config import PRESET_FOLDER, Device, load_config
from espalier.backend.synthetic import RandomNetwork
from espalier.errors import UserError
from espalier.explore.evaluate import Outcome, Task
from espalier.explore.executors import LocalExecutor
from espalier.explore.identity import identity_of
from espalier.explore.search import STOPPED, Search
from espalier.explore.space import DesignSpace
from espalier.explore.state import State
from espalier.ir.storage import save_graph

DEVICE = Device("xczu3eg-sbva484-1-i", lut=70560, ff=141120, bram36=216, uram=0, dsp=360)
BASE = dataclasses.replace(load_config("tiny"), device=DEVICE)
DESIGNS = 20
FOREVER = float("inf")
needs_dask = pytest.mark.skipif(importlib.util.find_spec("distributed") is None, reason="no distributed")


def network():
    net = RandomNetwork(3, 12, 12, name="small")
    net.conv(net.conv("input", 8), 4)
    return net.graph()


@dataclass(frozen=True)
class Once(Task):
    """Ends its process in the middle of the first evaluation of a single branch, once in all."""

    mark: Path

    def evaluate(self, config):
        if config.branches == 1:
            with contextlib.suppress(FileExistsError):
                self.mark.touch(exist_ok=False)
                os.kill(os.getpid(), signal.SIGKILL)
        return super().evaluate(config)


@dataclass(frozen=True)
class Fatal(Task):
    """Ends its process at every configuration with two PEs a branch."""

    def evaluate(self, config):
        if config.pes_per_branch == 2:
            os.kill(os.getpid(), signal.SIGKILL)
        return Outcome(config.pes_per_branch)


@pytest.fixture(scope="module")
def space():
    return DesignSpace(network(), BASE)


def searched(space, executor, path=None):
    search = Search(
        space, executor, State(path, identity_of(network(), BASE)), lambda message: None, designs=DESIGNS
    )
    try:
        search.run()
    except KeyboardInterrupt:
        assert search.end == STOPPED
    finally:
        executor.close()
    return search


def found(search):
    return [(point.costs, point.design.key, point.lanes) for point in search.front], list(search.points)


@pytest.fixture(scope="module")
def local(space):
    search = searched(space, LocalExecutor(Task(network()), 1))
    assert search.evaluated == DESIGNS and not search.crashed and search.target.cycles
    return found(search)


def test_a_killed_process_loses_nothing(space, local, tmp_path):
    search = searched(space, LocalExecutor(Once(network(), tmp_path / "killed"), 2))
    assert (tmp_path / "killed").exists()
    assert found(search) == local and not search.crashed


def test_an_interrupted_search_goes_on_and_finds_the_same(space, local, tmp_path):
    class Impatient(LocalExecutor):
        def run(self, configs, deadline):
            for count, one in enumerate(super().run(configs, deadline)):
                yield one
                if count == 4:
                    raise KeyboardInterrupt

    path = tmp_path / "state"
    first = searched(space, Impatient(Task(network()), 2), path)
    assert 0 < first.evaluated <= 5
    assert found(searched(space, LocalExecutor(Task(network()), 2), path)) == local


def test_a_fatal_configuration_costs_only_itself():
    configs = [dataclasses.replace(BASE, pes_per_branch=pes) for pes in (1, 2, 3, 4, 2, 5)]
    executor = LocalExecutor(Fatal(network()), 2)
    try:
        outcomes = dict(executor.run(configs, FOREVER))
        assert list(executor.run(configs, time.monotonic())) == []
    finally:
        executor.close()
    assert [outcomes[index].cycles for index in range(6)] == [1, None, 3, 4, None, 5]
    assert [outcomes[index].crashed for index in range(6)] == [False, True, False, False, True, False]
    assert "ended from outside" in outcomes[1].reason


def test_errors_become_outcomes(monkeypatch):
    def broken(graph, config):
        raise ZeroDivisionError("no such case")

    monkeypatch.setattr("espalier.explore.evaluate.compile_graph", broken)
    assert Task(network()).evaluate(BASE) == Outcome(None, "ZeroDivisionError: no such case", crashed=True)


def test_an_exploration_that_was_killed_goes_on(tmp_path):
    """The whole command, ended by SIGKILL; its processes end too."""
    model, target, state = (tmp_path / name for name in ("net.espalier", "board.yaml", "state"))
    save_graph(network(), model)
    tiny = PRESET_FOLDER / "tiny.yaml"
    text = tiny.read_text().replace("name: tiny", "name: board")
    device = "".join(f"  {name}: {value}\n" for name, value in dataclasses.asdict(DEVICE).items())
    target.write_text(f"{text}\ndevice:\n{device}")
    call = "from espalier.cli.main import main; main()"
    command = [sys.executable, "-c", call, "explore", str(model), "--target", str(target), "--jobs", "1"]
    command += ["--designs", "14", "--state", str(state)]
    first = subprocess.Popen(command, stderr=subprocess.DEVNULL, stdout=subprocess.DEVNULL)
    until = time.monotonic() + 120
    while time.monotonic() < until and not (state.exists() and len(state.read_text().splitlines()) > 3):
        time.sleep(0.05)
    first.kill()
    first.wait()
    known = state.read_text().splitlines()
    assert 3 < len(known) < 15
    whole = [tmp_path / "resumed.json", tmp_path / "new.json"]
    subprocess.run([*command, "--json", str(whole[0])], check=True, capture_output=True)
    subprocess.run([*command, "--restart", "--json", str(whole[1])], check=True, capture_output=True)
    assert whole[0].read_bytes() == whole[1].read_bytes()


@needs_dask
def test_a_cluster_that_loses_a_worker_finds_the_same(space, local, tmp_path):
    from espalier.explore.dask_executor import DaskExecutor

    search = searched(space, DaskExecutor(Once(network(), tmp_path / "killed"), 2, None))
    assert (tmp_path / "killed").exists()
    assert found(search) == local and not search.crashed


@needs_dask
def test_a_cluster_that_does_not_answer(monkeypatch):
    from espalier.explore import dask_executor

    monkeypatch.setattr(dask_executor, "_CONNECT_SECONDS", 1)
    with pytest.raises(UserError, match="no Dask scheduler answers"):
        dask_executor.DaskExecutor(Task(network()), 1, "tcp://127.0.0.1:9")
