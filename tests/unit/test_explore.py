"""Design-space exploration: front, state file, search with and without interruption, the command."""

from __future__ import annotations

import dataclasses
import json

import pytest
from hypothesis import given
from hypothesis import strategies as st
from typer.testing import CliRunner

from espalier.arch.config import PRESET_FOLDER, Device, load_config
from espalier.backend.synthetic import RandomNetwork
from espalier.cli.main import app
from espalier.errors import CapacityError, UserError
from espalier.estimate.resources import ResourceCount, check_fits
from espalier.explore.design import Lanes
from espalier.explore.evaluate import Outcome, evaluate, here
from espalier.explore.pareto import Point, pareto_front
from espalier.explore.search import SHAPES, Search, thinned
from espalier.explore.space import DesignSpace
from espalier.explore.state import State
from espalier.ir.storage import save_graph

TINY = load_config("tiny")
TINY_FILE = PRESET_FOLDER / "tiny.yaml"
SMALL = Device("xczu3eg-sbva484-1-i", lut=70560, ff=141120, bram36=216, uram=48, dsp=360)
BASE = dataclasses.replace(TINY, device=SMALL)


def network(side=16):
    net = RandomNetwork(3, side, side, name="small")
    tensor = net.conv("input", 8, (3, 3), 1, (1, 1, 1, 1), density=0.5)
    net.conv(tensor, 4, (1, 1), density=0.9)
    return net.graph()


@pytest.fixture(scope="module")
def space():
    return DesignSpace(network(), BASE)


def by_bound(space):
    """Outcomes that cost no compilation: a tenth more than the bound, and no odd number of branches runs."""
    asked = []

    def run(configs):
        asked.extend(configs)
        facts = space.facts
        return [
            Outcome(None, "odd")
            if config.branches % 2 and config.branches > 1
            else Outcome(round(1.1 * facts[config.tile_size].operators / config.pes) + config.branches)
            for config in configs
        ]

    return run, asked


def found(search):
    return [(point.costs, point.design.key) for point in search.front]


COSTS = st.tuples(*[st.integers(0, 6)] * 3)


@given(st.lists(COSTS, max_size=30))
def test_front_has_what_nothing_beats(space, costs):
    design = next(space.shapes()).design
    lanes = Lanes(0, 0, 0)
    points = [Point(design, lanes, ResourceCount(lut=lut, dsp=dsp), cycles) for cycles, lut, dsp in costs]
    front = [point.costs for point in pareto_front(points)]
    assert front == sorted(set(front))
    for one in costs:
        assert any(all(a <= b for a, b in zip(best, one, strict=True)) for best in front)
    for best in front:
        others = [one for one in costs if one != best]
        assert not any(all(a <= b for a, b in zip(one, best, strict=True)) for one in others)


def test_bounds_are_below_predictions_and_designs_fit(space):
    chosen = thinned(space.shapes())
    assert 3 < len(chosen) <= SHAPES
    for candidate in chosen[:: len(chosen) // 4]:
        for lanes, total in candidate.made:
            config = candidate.design.config(space.base, lanes)
            assert check_fits(config).total == total
        outcome = evaluate(network(), candidate.design.config(space.base))
        assert outcome.cycles is not None and outcome.cycles >= candidate.bound


def test_a_stopped_search_goes_on_and_finds_the_same(space, tmp_path):
    run, _ = by_bound(space)
    whole = Search(space, run, State(None, "n"), 1e9, lambda message: None)
    whole.run()
    assert whole.finished and whole.front
    assert all(reason == "odd" for reason in whole.failed.values())

    path, asked = tmp_path / "state.jsonl", []
    for calls in (2, 3, 10**6):
        run, new = by_bound(space)
        left = iter(range(calls))

        def stops(configs, run=run, left=left):
            if next(left, None) is None:
                raise KeyboardInterrupt
            return run(configs)

        search = Search(space, stops, State(path, "n"), 1e9, lambda message: None)
        try:
            search.run()
        except KeyboardInterrupt:
            assert calls < 10
        asked += new
        with path.open("a") as file:
            file.write('{"design": "cut o')
    assert found(search) == found(whole)
    assert len(asked) == len(set(asked)), "nothing is evaluated twice"


def test_time_that_is_up_ends_the_search(space):
    run, asked = by_bound(space)
    search = Search(space, run, State(None, "n"), 0, lambda message: None)
    search.run()
    assert not search.finished and not asked and not search.front


def test_state_of_another_network_is_refused(tmp_path):
    path = tmp_path / "state"
    State(path, "one")
    with pytest.raises(UserError, match="no state of an exploration of this model"):
        State(path, "other")
    path.write_text("\0")
    with pytest.raises(UserError):
        State(path, "one")


def test_networks_that_fit_nothing():
    with pytest.raises(CapacityError):
        DesignSpace(network(1200), BASE)


def test_outcome_of_a_network_that_does_not_fit():
    shallow = dataclasses.replace(TINY, stream_depth_words=64, feature_depth_words=64)
    outcome = evaluate(network(64), shallow)
    assert outcome.cycles is None and "words" in outcome.reason
    assert here(network(64))([shallow]) == [outcome]


def test_command(tmp_path):
    model, target = tmp_path / "net.espalier", tmp_path / "board.yaml"
    save_graph(network(), model)
    text = [line for line in (TINY_FILE.read_text()).splitlines() if not line.startswith("name:")]
    device = "\n".join(f"  {name}: {value}" for name, value in dataclasses.asdict(SMALL).items())
    target.write_text("name: board\n" + "\n".join(text) + f"\ndevice:\n{device}\n")
    result, best = tmp_path / "out.json", tmp_path / "best.yaml"
    args = ["explore", str(model), "--target", str(target), "--budget-minutes", "0.05", "--jobs", "1"]
    args += ["--json", str(result), "--output", str(best), "--state", str(tmp_path / "state")]
    shown = CliRunner().invoke(app, args)
    assert shown.exit_code == 0, shown.output
    front = json.loads(result.read_text())["front"]
    assert front and front[0]["cycles"] == min(row["cycles"] for row in front)
    config = load_config(str(best))
    assert config.name == "best"
    check_fits(config)
    assert evaluate(network(), config).cycles == front[0]["cycles"]
    assert "espalier explore" in best.read_text().splitlines()[0]


def test_command_names_a_wrong_output(tmp_path):
    with pytest.raises(UserError, match=r"ends with \.yaml"):
        CliRunner().invoke(
            app, ["explore", "resnet18", "--output", str(tmp_path / "x.txt")], catch_exceptions=False
        )
