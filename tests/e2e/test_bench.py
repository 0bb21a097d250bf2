"""`sim bench --quick`: every kind of run in RTL, the page, its plots and its JSON twin."""

from __future__ import annotations

import json
import re
from xml.etree import ElementTree

import pytest

from espalier.errors import UserError
from espalier_sim import bench_runs
from espalier_sim.bench import bench

# Sections of the page with runs of which the prediction is compared with RTL.
PREDICTED = ("run", "ablation", "variant", "density", "shape")
PLOTS = ("density.svg", "latency.svg", "layers.svg", "sim_run.svg", "waterfall.svg")

pytestmark = pytest.mark.xdist_group("tiny")


def measure(out):
    bench(out, resources=False, quick=True)
    return out.read_text(encoding="utf-8"), json.loads(out.with_suffix(".json").read_text(encoding="utf-8"))


@pytest.fixture
def cache(tmp_path, monkeypatch):
    """Only finished runs are kept in an empty folder; the simulator is the one of all tests."""
    monkeypatch.setattr(bench_runs, "cache_folder", lambda: tmp_path / "cache")
    return tmp_path / "cache"


def test_page_plots_and_twin(tiny_simulator, cache, tmp_path, monkeypatch):
    text, twin = measure(tmp_path / "first" / "page.md")
    images = tmp_path / "first" / "images"
    assert set(re.findall(r"\]\(images/(\w+\.svg)\)", text)) < set(PLOTS)
    for name in PLOTS:
        ElementTree.parse(images / name)
    for heading in ("Where the cycles go", "Layers", "What each mechanism is worth", "Density"):
        assert f"\n## {heading}\n" in text
    assert "| too large |  |  | does not fit |" in text
    assert "\n| without overlapping layers |" in text

    rows = [row for section in twin.values() if isinstance(section, list) for row in section]
    results = [row["result"] for row in rows if "result" in row]
    assert len(rows) == len(results) + 1
    assert all(result["bit_exact"] for result in results)
    for row in rows:
        if "result" in row:
            assert sum(row["losses"].values()) == pytest.approx(row["result"]["cycles"])
            assert min(row["losses"].values()) > -1e-6
    compared = text.split("\n## Prediction against RTL\n")[1].split("\n## ")[0]
    for row in twin["run"] + twin["density"] + twin["shape"]:
        if "result" in row:
            counted, predicted = (row["result"][name] for name in ("cycles", "predicted_cycles"))
            assert row["prediction"]["total"] == pytest.approx(predicted / counted - 1)
            assert f"{row['name']} | tiny | {row['prediction']['long_layers']} | " in compared
    assert compared.count("| tiny |") == sum(len(twin[name]) for name in PREDICTED) - 1
    main = twin["run"][0]["result"]
    overlap = next(row["result"] for row in twin["ablation"] if row["name"] == "overlapping layers")
    assert overlap["cycles"] > main["cycles"] > sum(layer["cycles"] for layer in main["layers"]) - 1

    # Everything is kept: the same page again, with no run made.
    monkeypatch.setattr(bench_runs, "run_workload", None)
    again, _ = measure(tmp_path / "second" / "page.md")
    assert again.split("## Speed")[0] == text.split("## Speed")[0]
    for name in set(PLOTS) - {"sim_run.svg"}:
        assert (tmp_path / "second" / "images" / name).read_bytes() == (images / name).read_bytes()


def test_one_part_alone(tiny_simulator, cache, tmp_path):
    out = tmp_path / "page.md"
    bench(out, resources=False, quick=True, only=["shape"])
    text = out.read_text(encoding="utf-8")
    assert "## Other networks" in text and "## Density" not in text
    with pytest.raises(UserError, match="--only nothing"):
        bench(out, quick=True, only=["nothing"])


def test_an_interrupted_benchmark_goes_on(tiny_simulator, cache, monkeypatch, tmp_path):
    made = []
    run_workload = bench_runs.run_workload

    def stopping(*arguments):
        if len(made) == 3:
            raise KeyboardInterrupt
        made.append(arguments[0].name)
        return run_workload(*arguments)

    monkeypatch.setattr(bench_runs, "run_workload", stopping)
    with pytest.raises(KeyboardInterrupt):
        measure(tmp_path / "page.md")
    assert not (tmp_path / "page.md").exists()
    assert len(list(cache.rglob("*.json"))) == 3
