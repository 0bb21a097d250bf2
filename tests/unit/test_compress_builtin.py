"""The built-in model and its manifest."""

import numpy as np
import pytest

from espalier.compress.evaluate import size_of
from espalier.errors import ModelFileError
from espalier.ir.check import check_graph
from espalier.models import PICTURE, builtin_names, builtin_path, load_builtin, manifest
from espalier.numerics.execute import run_output
from espalier.runtime.preprocess import Preprocessing


def test_the_model_fits_its_budgets_and_its_manifest():
    assert "resnet18" in builtin_names()
    assert builtin_path("resnet18").stat().st_size < 4 << 20
    graph, described = load_builtin("resnet18"), manifest("resnet18")
    check_graph(graph)
    size = size_of(graph)
    assert size.density["conv1"] <= 0.5 and size.mac_fraction <= 0.2 and size.operators <= 1_450_000
    assert described["size"]["operators"] == size.operators
    assert described["accuracy"]["float_top1"] - described["accuracy"]["integer_top1"] <= 0.02
    assert {"source", "licence", "method", "seed", "date"} <= set(described)


def test_the_shipped_picture_is_recognised_as_a_cat():
    graph = load_builtin("resnet18")
    tensor = Preprocessing.of(graph.metadata, graph.tensors[graph.input]).input_tensor(PICTURE)
    scores = run_output(graph, tensor[None]).reshape(-1)
    assert graph.metadata["labels"][int(np.argmax(scores))] == "cat"


def test_an_unknown_name_is_refused():
    with pytest.raises(ModelFileError, match="resnet18"):
        load_builtin("nosuch")
