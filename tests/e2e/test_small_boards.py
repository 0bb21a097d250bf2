"""ResNet-18 on boards that cannot hold it: streams and feature maps from DDR, in RTL, layer by layer."""

from __future__ import annotations

import pytest

from espalier_sim.run import RunOptions, run_model

ALLOWED = 0.02  # of the cycles

pytestmark = [pytest.mark.slow, pytest.mark.xdist_group("small_boards"), pytest.mark.timeout(2400)]


@pytest.mark.parametrize("target", ["kv260", "ultra96v2"])
@pytest.mark.parametrize("stalls", [None, 3])
def test_resnet18_is_bit_exact(tools, target, stalls):
    result = run_model(RunOptions("resnet18", target=target, stalls=stalls))
    assert result.bit_exact and result.layers_checked == len(result.layers)
    if stalls is None:
        assert abs(result.cycles - result.predicted_cycles) <= ALLOWED * result.predicted_cycles
