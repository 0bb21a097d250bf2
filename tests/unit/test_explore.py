"""Design-space exploration: front, state file, search with and without interruption, the command."""

from __future__ import annotations

import dataclasses
import json
import shutil
import time
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st
from typer.testing import CliRunner

import espalier
from espalier.arch.config import PRESET_FOLDER, Device, load_config
from espalier.backend.synthetic import RandomNetwork
from espalier.cli.main import app
from espalier.errors import CapacityError, UserError
from espalier.estimate.resources import ResourceCount, check_fits
from espalier.explore.design import Lanes
from espalier.explore.evaluate import Outcome, Task
from espalier.explore.identity import code_identity, identity_of
from espalier.explore.pareto import Point, pareto_front
from espalier.explore.regions import regions
from espalier.explore.search import COMPLETE, ENOUGH, OUT_OF_TIME, SHAPES, STOPPED, Search, starts, thinned
from espalier.explore.space import DesignSpace
from espalier.explore.state import State
from espalier.ir.storage import save_graph

TINY = load_config("tiny")
TINY_FILE = PRESET_FOLDER / "tiny.yaml"
SMALL = Device("xczu3eg-sbva484-1-i", lut=70560, ff=141120, bram36=216, uram=48, dsp=360)
BASE = dataclasses.replace(TINY, device=SMALL)


IDENTITY = {"model": "m", "target": "t", "version": "v"}


def evaluate(config):
    return Task(network()).evaluate(config)


def network(side=16):
    net = RandomNetwork(3, side, side, name="small")
    tensor = net.conv("input", 8, (3, 3), 1, (1, 1, 1, 1), density=0.5)
    net.conv(tensor, 4, (1, 1), density=0.9)
    return net.graph()


@pytest.fixture(scope="module")
def space():
    return DesignSpace(network(), BASE)


class ByBound:
    """Outcomes that cost no compilation: a tenth more than the bound, two per cent more with small rings.

    No odd number of branches runs.

    stops: raises KeyboardInterrupt at the evaluation of that number.
    """

    def __init__(self, space, stops=None):
        self.facts, self.stops, self.asked = space.facts, stops, []

    def run(self, configs, deadline):
        for index, config in enumerate(configs):
            if time.monotonic() >= deadline:
                return
            if len(self.asked) == self.stops:
                raise KeyboardInterrupt
            self.asked.append(config)
            if config.branches % 2 and config.branches > 1:
                yield index, Outcome(None, "odd")
            else:
                work = self.facts[config.tile_size].operators / config.pes
                yield index, Outcome(round(work * (1.1 if config.ring_words == 64 else 1.12)))

    def close(self):
        pass


def searching(space, executor, path=None, **options):
    return Search(space, executor, State(path, IDENTITY), lambda message: None, **options)


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
        outcome = evaluate(candidate.design.config(space.base))
        assert outcome.cycles is not None and outcome.cycles >= candidate.bound


def test_a_stopped_search_goes_on_and_finds_the_same(space, tmp_path):
    whole = searching(space, ByBound(space), designs=40)
    whole.run()
    assert whole.end == ENOUGH and whole.evaluated == 40 and whole.front
    assert whole.failed and all(reason == "odd" for reason in whole.failed.values())

    path, asked = tmp_path / "state.jsonl", []
    for stops in (7, 13, None):
        executor = ByBound(space, stops)
        search = searching(space, executor, path, designs=40)
        if stops is None:
            search.run()
        else:
            with pytest.raises(KeyboardInterrupt):
                search.run()
            assert search.end == STOPPED and search.points
        asked += executor.asked
        with path.open("a") as file:
            file.write('{"design": "cut o')
    assert found(search) == found(whole)
    assert len(asked) == 41, "nothing is evaluated twice, and the target once"


def test_regions_are_refined_and_not_the_fastest_only(space):
    starts_only = len(starts(list(space.shapes()), regions(space.limits)))
    first, last = (searching(space, ByBound(space), designs=count) for count in (starts_only, 60))
    first.run()
    last.run()
    points = [[p for points in search.points.values() for p in points] for search in (first, last)]
    better = 0
    for region in regions(space.limits):
        before, after = (region.best(some) for some in points)
        assert (before is None) <= (after is None or before is None)
        if before is not None:
            assert region.holds(after.total) and after.cycles <= before.cycles
            better += after.cycles < before.cycles
    assert better >= 3
    lut, dsp = ({getattr(p.total, name) for p in last.front} for name in ("lut", "dsp"))
    assert min(lut) < 0.5 * max(lut) and min(dsp) < 0.1 * max(dsp)


def test_time_that_is_up_ends_the_search(space):
    executor = ByBound(space)
    search = searching(space, executor, seconds=0)
    search.run()
    assert search.end == OUT_OF_TIME and not executor.asked and not search.front


def test_a_complete_search_leaves_nothing_promising(space):
    search = searching(space, ByBound(space), designs=10**6)
    search.run()
    assert search.end == COMPLETE and not search._promising()


def test_crashes_are_reported_and_not_kept(space, tmp_path):
    class Crashing(ByBound):
        def run(self, configs, deadline):
            for index, outcome in super().run(configs, deadline):
                crash = configs[index].branches == 2
                yield index, Outcome(None, "broken", crashed=True) if crash else outcome

    path = tmp_path / "state"
    search = searching(space, Crashing(space), path, designs=30)
    search.run()
    assert search.crashed and search.points and set(search.crashed.values()) == {"broken"}
    assert not set(State(path, IDENTITY).outcomes) & set(search.crashed)


def test_state_of_another_identity_is_refused(tmp_path):
    path = tmp_path / "state"
    State(path, IDENTITY).add("design", Outcome(5))
    assert State(path, IDENTITY).outcomes == {"design": Outcome(5)}
    for key, word in (("model", "another model"), ("version", "another version of Espalier's compiler")):
        with pytest.raises(UserError, match=f"{word}.*--restart"):
            State(path, {**IDENTITY, key: "x"})
    assert not State(path, {**IDENTITY, "model": "x"}, restart=True).outcomes
    path.write_text("not a state")
    for restart in (False, True):
        with pytest.raises(UserError, match="is no state of an exploration"):
            State(path, IDENTITY, restart)
    assert path.read_text() == "not a state"


def test_a_last_line_without_its_end_is_mended(tmp_path):
    path = tmp_path / "state"
    State(path, IDENTITY).add("one", Outcome(5))
    path.write_text(path.read_text()[:-1])
    State(path, IDENTITY).add("two", Outcome(6))
    assert State(path, IDENTITY).outcomes == {"one": Outcome(5), "two": Outcome(6)}


def test_identity_follows_content(monkeypatch, tmp_path):
    own = identity_of(network(), BASE)
    assert own == identity_of(network(), dataclasses.replace(BASE, name="x", clock_mhz=7))
    changed = network()
    changed.nodes[0].weights[0, 0, 0, 0] += 1
    other = identity_of(changed, BASE)
    assert own["model"] != other["model"] and own["target"] == other["target"]
    assert identity_of(network(), dataclasses.replace(BASE, max_layers=32))["target"] != own["target"]
    assert identity_of(network(), TINY)["target"] != own["target"]
    # Any change of the compiler's sources is another version.
    package = shutil.copytree(Path(espalier.__file__).parent, tmp_path / "espalier")
    monkeypatch.setattr(espalier, "__file__", str(package / "__init__.py"))
    code_identity.cache_clear()
    try:
        assert code_identity() == own["version"]
        for name in ("backend/select.py", "estimate/resource_fit.json", "arch/config.py"):
            (package / name).open("a").write(" ")
            before, _ = own["version"], code_identity.cache_clear()
            own["version"] = code_identity()
            assert own["version"] != before
    finally:
        monkeypatch.undo()
        code_identity.cache_clear()


def test_a_network_that_is_too_large_names_the_resource():
    base = dataclasses.replace(BASE, device=dataclasses.replace(SMALL, bram36=20, uram=0))
    search = searching(DesignSpace(network(), base), ByBound(DesignSpace(network(), base)))
    with pytest.raises(CapacityError, match=r"needs [\d.]+ block RAMs where 16 may be used"):
        search.run()


@pytest.mark.parametrize("part", ["xc7z020clg400-1", "xczu3eg-sbva484-1-i"])
def test_devices_without_ultra_ram(part):
    series_7 = part.startswith("xc7")
    device = dataclasses.replace(SMALL, part=part, uram=0)
    base = dataclasses.replace(TINY, device=device, pair_spacing_bits=16 if series_7 else 18)
    space = DesignSpace(network(), base)
    search = searching(space, ByBound(space), designs=30)
    search.run()
    assert search.front
    for point in search.front:
        config = point.design.config(base, point.lanes)
        assert check_fits(config).total == point.total and point.total.uram == 0
    assert search.front[0].design.stream_depth_words % 512 == 0
    assert evaluate(search.front[0].design.config(base)).cycles >= space.facts[
        search.front[0].design.tile_size
    ].bound(search.front[0].design)


def test_networks_that_fit_nothing():
    with pytest.raises(CapacityError):
        DesignSpace(network(1200), BASE)


def test_outcome_of_a_network_that_does_not_fit():
    shallow = dataclasses.replace(TINY, stream_depth_words=64, feature_depth_words=64)
    outcome = Task(network(64)).evaluate(shallow)
    assert outcome.cycles is None and "words" in outcome.reason


def test_command(tmp_path):
    model, target = tmp_path / "net.espalier", tmp_path / "board.yaml"
    save_graph(network(), model)
    text = [line for line in (TINY_FILE.read_text()).splitlines() if not line.startswith("name:")]
    device = "\n".join(f"  {name}: {value}" for name, value in dataclasses.asdict(SMALL).items())
    target.write_text("name: board\n" + "\n".join(text) + f"\ndevice:\n{device}\n")
    result, best = tmp_path / "out.json", tmp_path / "best.yaml"
    args = ["explore", str(model), "--target", str(target), "--designs", "8", "--jobs", "1"]
    args += ["--json", str(result), "--output", str(best), "--state", str(tmp_path / "state")]
    shown = CliRunner().invoke(app, args)
    assert shown.exit_code == 0, shown.output
    front = json.loads(result.read_text())["front"]
    assert front and front[0]["cycles"] == min(row["cycles"] for row in front)
    config = load_config(str(best))
    assert config.name == "best"
    check_fits(config)
    assert evaluate(config).cycles == front[0]["cycles"]
    first = best.read_text().splitlines()[0]
    assert first == f"# Found by `espalier explore {model} --target {target} --designs 8`:"


def test_command_names_a_wrong_output(tmp_path):
    with pytest.raises(UserError, match=r"ends with \.yaml"):
        CliRunner().invoke(
            app, ["explore", "resnet18", "--output", str(tmp_path / "x.txt")], catch_exceptions=False
        )
