"""Random networks on the tiny accelerator in cocotb, with cocotbext-axi on both ports."""

from __future__ import annotations

import os
from pathlib import Path

import pytest
from cocotb_tools.check_results import get_results

from espalier.errors import ToolNotFoundError
from espalier_sim.build import TOP
from espalier_sim.tools import find_tools

pytestmark = [pytest.mark.cocotb, pytest.mark.xdist_group("cocotb")]
QUICK = 12
MANY = int(os.environ.get("ESPALIER_COCOTB_NETWORKS", "200"))


@pytest.fixture(scope="session")
def runner():
    """The bench, built once."""
    return bench(18)


def bench(spacing):
    """The bench of the tiny accelerator with products so many bits apart."""
    try:
        find_tools()
    except ToolNotFoundError as error:
        pytest.skip(str(error))
    from bench_build import built_bench

    return built_bench(spacing)


def run_seeds(runner, tmp_path: Path, first: int, last: int, spacing: int = 18) -> None:
    """Run the networks `first` to `last` and fail if one of them does."""
    results = runner.test(
        test_module="bench_networks",
        hdl_toplevel=TOP,
        hdl_toplevel_lang="verilog",
        build_dir=runner.build_dir,
        test_dir=tmp_path,
        results_xml=str(tmp_path / "results.xml"),
        extra_env={
            "ESPALIER_SEEDS": f"{first}:{last}",
            "ESPALIER_SPACING": str(spacing),
            "COCOTB_LOG_LEVEL": "WARNING",
        },
        log_file=tmp_path / "log.txt",
    )
    tests, failures = get_results(results)
    assert (tests, failures) == (last - first, 0), (tmp_path / "log.txt").read_text()[-3000:]


def test_a_dozen_networks(runner, tmp_path):
    run_seeds(runner, tmp_path, 0, QUICK)


def test_networks_on_sums_of_16_bits(tmp_path):
    """Parts are smaller there: network 8 would need more passes than there are."""
    run_seeds(bench(16), tmp_path, 0, 8, spacing=16)


@pytest.mark.slow
@pytest.mark.parametrize("first", range(QUICK, QUICK + MANY, 20))
def test_many_networks(runner, tmp_path, first):
    run_seeds(runner, tmp_path, first, min(first + 20, QUICK + MANY))
