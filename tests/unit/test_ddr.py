"""The DDR's numbers, and when beats move."""

from __future__ import annotations

import dataclasses

import pytest

from espalier.arch.config import load_config
from espalier.arch.ddr import DEFAULT_DDR, NAMED, Ddr, parse_ddr
from espalier.errors import UserError
from espalier.estimate.ddr import ReadPort, WritePort

CONFIG = load_config("tiny")


def test_text_becomes_numbers():
    assert parse_ddr("default") == parse_ddr("") == DEFAULT_DDR
    assert parse_ddr("latency=50-500,beat=2,pause=64/128", 3) == Ddr(50, 500, 2, 64, 128, 3)
    assert parse_ddr("latency=40") == Ddr(40, 40)
    assert len({parse_ddr(name) for name in NAMED}) == len(NAMED)


@pytest.mark.parametrize(
    ("text", "reason"),
    [
        ("fast", "'fast' is not known"),
        ("latency=-1", "'latency=-1' is not known"),
        ("latency=9-3", "LOW-HIGH"),
        ("latency=0", "from one cycle on"),
        ("beat=0", "from one cycle on"),
        ("pause=8/8", "shorter than"),
        ("latency=5000000", "the largest number"),
    ],
)
def test_refusals_say_what_to_write(text, reason):
    with pytest.raises(UserError, match=reason) as caught:
        parse_ddr(text)
    assert "slow" in str(caught.value)
    assert "latency=50-500" in str(caught.value)


def test_latencies_are_spread_over_their_range_and_differ_by_seed():
    drawn = [[Ddr(50, 500, seed=seed).latency(burst) for burst in range(2000)] for seed in (0, 1)]
    for latencies in drawn:
        assert min(latencies) < 55
        assert max(latencies) > 495
        assert abs(sum(latencies) / len(latencies) - 275) < 10
    assert drawn[0] != drawn[1]


def read(ddr, beats):
    """Cycle of the last beat out of the read engine, of a user that takes every beat at once."""
    port = ReadPort(dataclasses.replace(CONFIG, ddr=ddr))
    port.command(0, beats)
    for _ in range(beats):
        cycle = port.beat()
        port.take(cycle)
    return cycle


def test_reads_are_bound_by_bandwidth_or_by_latency():
    beats = 4096
    assert beats <= read(Ddr(30, 30), beats) < beats + 50
    assert 2 * beats <= read(Ddr(30, 30, beat_cycles=2), beats) < 2 * beats + 50
    assert 2 * beats <= read(Ddr(30, 30, pause_cycles=64, pause_every=128), beats) < 2 * beats + 200
    # Four bursts of sixteen beats are under way at a time.
    assert read(Ddr(500, 500), beats) == pytest.approx(beats / 64 * 521, rel=0.01)


def test_writes_are_bound_by_bandwidth_or_by_answers():
    def write(ddr, beats=4096):
        port = WritePort(dataclasses.replace(CONFIG, ddr=ddr))
        for beat in range(beats):
            port.beat(0, beat == beats - 1)
        return port.answered

    assert write(Ddr(30, 30)) == 4095 + 30
    assert write(Ddr(30, 30, beat_cycles=2)) == 2 * 4095 + 30
    assert write(Ddr(500, 500)) == pytest.approx(4096 / 128 * 517, rel=0.05)
