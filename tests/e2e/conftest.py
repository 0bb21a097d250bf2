"""Fixtures of the end-to-end tests."""

from __future__ import annotations

import pytest

from espalier.arch.config import load_config
from espalier.errors import ToolNotFoundError
from espalier_sim.build import build_simulator
from espalier_sim.tools import find_tools
from espalier_sim.verilog import accelerator_verilog


@pytest.fixture(scope="session")
def tools():
    """Skip where no simulator can be built."""
    try:
        return find_tools()
    except ToolNotFoundError as error:
        pytest.skip(str(error))


@pytest.fixture(scope="session")
def tiny_simulator(tools):
    """The tiny accelerator, compiled."""
    config = load_config("tiny")
    return build_simulator(accelerator_verilog(config), config)
