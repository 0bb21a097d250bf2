"""Building and caching of simulators."""

from __future__ import annotations

import multiprocessing
import os
import shutil

import pytest
from stand_in import STAND_IN

from espalier.arch.config import load_config
from espalier.errors import InternalError, ToolNotFoundError, UserError
from espalier_sim import tools
from espalier_sim.build import build_simulator, cache_folder

CONFIG = load_config("tiny")


@pytest.fixture
def empty_cache(tmp_path, monkeypatch):
    folder = tmp_path / "a cache"  # make cannot handle the space
    monkeypatch.setenv("ESPALIER_CACHE", str(folder))
    return folder


def _build_in_process(folder, queue):
    os.environ["ESPALIER_CACHE"] = str(folder)
    queue.put(build_simulator({"espalier": STAND_IN}, CONFIG).cached)


def test_each_content_is_built_once(empty_cache):
    context = multiprocessing.get_context("spawn")
    queue = context.Queue()
    processes = [context.Process(target=_build_in_process, args=(empty_cache, queue)) for _ in range(2)]
    for process in processes:
        process.start()
    assert {queue.get(timeout=500) for _ in processes} == {False, True}
    for process in processes:
        process.join()
    messages = []
    again = build_simulator({"espalier": STAND_IN}, CONFIG, progress=messages.append)
    assert again.cached and not messages
    other = build_simulator({"espalier": STAND_IN + "\n// changed\n"}, CONFIG, progress=messages.append)
    assert not other.cached and other.library != again.library
    assert messages[0] == "simulator: translating Verilog"
    assert sorted(empty_cache.rglob("*.so")) == sorted([again.library, other.library])
    assert not list(empty_cache.rglob("*.unfinished"))


def test_refused_verilog_leaves_nothing_behind(empty_cache):
    with pytest.raises(InternalError, match=r"verilator_bin failed with code 1(.|\n)*syntax error"):
        build_simulator({"espalier": "module espalier; oops"}, CONFIG)
    assert not list(empty_cache.rglob("*.so*.unfinished"))


def test_missing_programs_are_named(monkeypatch):
    tools.find_tools.cache_clear()
    monkeypatch.setattr(shutil, "which", lambda name: None if name in ("g++", "make") else f"/bin/{name}")
    with pytest.raises(ToolNotFoundError, match=r"'g\+\+' not found.*'make' not found: install make"):
        tools.find_tools()
    monkeypatch.undo()
    tools.find_tools.cache_clear()


def test_the_cache_is_where_the_environment_says(empty_cache):
    assert cache_folder() == empty_cache


def test_a_cache_that_cannot_be_written_is_named(tmp_path, monkeypatch):
    (tmp_path / "file").touch()
    monkeypatch.setenv("ESPALIER_CACHE", str(tmp_path / "file"))
    with pytest.raises(UserError, match=r"cannot write the cache .*file .*ESPALIER_CACHE"):
        build_simulator({"espalier": STAND_IN}, CONFIG)
