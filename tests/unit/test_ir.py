"""Graph invariants and graph files."""

from __future__ import annotations

import dataclasses
import zipfile

import numpy as np
import pytest

from espalier.errors import InternalError, ModelFileError
from espalier.ir.check import check_graph
from espalier.ir.graph import Conv, IntegerGraph, Pool, Requantisation, Residual, Tensor
from espalier.ir.storage import load_graph, save_graph


def requantisation(count):
    return Requantisation(
        np.full(count, 70000, np.int64), np.full(count, 2, np.int64), np.arange(count, dtype=np.int64) - 3
    )


def graph():
    rng = np.random.default_rng(0)
    tensors = [
        Tensor("x", 3, 8, 8, 0.02, 120),
        Tensor("a", 4, 4, 4, 0.1, 0),
        Tensor("b", 4, 4, 4, 0.1, 0),
        Tensor("y", 4, 1, 1, 0.1, 128),
    ]
    w1, w2 = (rng.integers(-8, 8, (4, c, 3, 3)).astype(np.int8) for c in (3, 4))
    nodes = [
        Conv("one", "x", "a", w1, requantisation(4), 2, (1, 1, 1, 1), dense_macs=1728),
        Conv("two", "a", "b", w2, requantisation(4), 1, (1, 1, 1, 1), 1, Residual("a", 300, 1)),
        Pool("three", "b", "y", "global", requantisation(1)),
    ]
    metadata = {"mean": [0.5, np.float32(0.25)], "labels": ["cat", "größe"], "picture_size": (8, 8)}
    return IntegerGraph("tiny", "x", "y", nodes, {t.name: t for t in tensors}, metadata)


def change_node(index, **values):
    result = graph()
    result.nodes[index] = dataclasses.replace(result.nodes[index], **values)
    return result


def test_sound_graph_passes():
    check_graph(graph())


@pytest.mark.parametrize(
    ("index", "values", "message"),
    [
        (0, {"input": "q"}, "reads tensor q, which does not exist yet"),
        (0, {"input": "b"}, "reads tensor b, which does not exist yet"),
        (1, {"output": "a"}, "writes tensor a, which exists already"),
        (1, {"output": "z"}, "output tensor z is not described"),
        (0, {"stride": 3}, "stride 3"),
        (0, {"stride": 1}, r"computes \(4, 8, 8\), but tensor a is \(4, 4, 4\)"),
        (0, {"weights": np.full((4, 3, 3, 3), 8, np.int8)}, r"weights 8\.\.8 exceed -8\.\.7"),
        (0, {"weights": np.zeros((4, 2, 3, 3), np.int8)}, "on 3 channels"),
        (0, {"weight_bits": 9}, "9 bits"),
        (0, {"requantisation": requantisation(3)}, r"int64\[4\]"),
        (1, {"residual": Residual("x", 1, 0)}, "shape of the output"),
        (1, {"residual": Residual("a", 1 << 16, 0)}, "residual multiplier"),
        (1, {"residual": Residual("a", 1, 4)}, "residual shift"),
        (1, {"name": "one"}, "name is taken"),
        (2, {"kind": "median"}, "median"),
        (2, {"kind": "max", "kernel": (1, 1), "pads": (1, 0, 0, 0)}, "beyond the kernel"),
    ],
)
def test_every_violation_is_found(index, values, message):
    with pytest.raises(InternalError, match=message):
        check_graph(change_node(index, **values))


@pytest.mark.parametrize(
    ("field", "value"), [("multiplier", 1 << 17), ("multiplier", -1), ("shift", 4), ("bias", 1 << 26)]
)
def test_requantisation_ranges(field, value):
    q = dataclasses.replace(requantisation(4), **{field: np.full(4, value, np.int64)})
    with pytest.raises(InternalError, match=field):
        check_graph(change_node(0, requantisation=q))


def test_accumulator_overflow_is_found():
    q = dataclasses.replace(requantisation(4), bias=np.full(4, (1 << 26) - 1, np.int64))
    with pytest.raises(InternalError, match="27 bits"):
        check_graph(change_node(0, requantisation=q))


def test_several_problems_are_named_at_once():
    broken = change_node(0, stride=3)
    broken.tensors["b"] = dataclasses.replace(broken.tensors["b"], zero_point=256, scale=float("nan"))
    broken.tensors["spare"] = Tensor("spare", 1, 1, 1, 1.0, 0)
    with pytest.raises(InternalError) as caught:
        check_graph(broken)
    for text in ("stride 3", "zero point 256", "scale nan", "tensor spare is not computed"):
        assert text in str(caught.value)


def same(left, right):
    if dataclasses.is_dataclass(left):
        return type(left) is type(right) and same(vars(left), vars(right))
    if isinstance(left, dict):
        return left.keys() == right.keys() and all(same(v, right[k]) for k, v in left.items())
    if isinstance(left, (list, tuple)):
        return len(left) == len(right) and all(map(same, left, right))
    if isinstance(left, np.ndarray):
        return left.dtype == right.dtype and np.array_equal(left, right)
    return left == right


def test_file_round_trip(tmp_path):
    path = tmp_path / "m.esp"
    save_graph(graph(), path)
    assert same(load_graph(path), graph())
    first = path.read_bytes()
    save_graph(load_graph(path), path)
    assert path.read_bytes() == first
    assert [p.name for p in tmp_path.iterdir()] == ["m.esp"]


def test_damage_is_reported_wherever_it_is(tmp_path):
    path = tmp_path / "m.esp"
    save_graph(graph(), path)
    sound = path.read_bytes()
    rng = np.random.default_rng(1)
    cuts = [sound[: int(n)] for n in rng.integers(0, len(sound), 30)]
    flips = []
    for position in rng.integers(0, len(sound), 200):
        damaged = bytearray(sound)
        damaged[position] ^= 1 << int(rng.integers(8))
        flips.append(bytes(damaged))
    for content in cuts + flips:
        path.write_bytes(content)
        try:
            loaded = load_graph(path)
        except ModelFileError as error:
            assert str(path) in str(error)
        else:  # a field of the zip that carries nothing
            assert same(loaded, graph())


def test_other_files_are_refused(tmp_path):
    with pytest.raises(ModelFileError, match="No such file"):
        load_graph(tmp_path / "absent.esp")
    with pytest.raises(ModelFileError, match="cannot read"):
        load_graph(tmp_path)
    with zipfile.ZipFile(tmp_path / "z.esp", "w") as archive:
        archive.writestr("graph.json", '{"format": "espalier-integer-graph", "version": 99}')
    with pytest.raises(ModelFileError, match="format version 99"):
        load_graph(tmp_path / "z.esp")
    with zipfile.ZipFile(tmp_path / "y.esp", "w") as archive:
        archive.writestr("graph.json", "[1, 2]")
    with pytest.raises(ModelFileError, match="no Espalier model"):
        load_graph(tmp_path / "y.esp")


def test_failed_write_leaves_the_old_file(tmp_path):
    path = tmp_path / "m.esp"
    save_graph(graph(), path)
    broken = graph()
    broken.metadata["mean"] = object()
    with pytest.raises(InternalError, match="metadata"):
        save_graph(broken, path)
    assert same(load_graph(path), graph())
    with pytest.raises(ModelFileError, match="cannot write"):
        save_graph(graph(), tmp_path / "absent" / "m.esp")


def test_sparse_weights_make_small_files(tmp_path):
    """Eleven per cent of 4-bit weights: well under two bits a weight."""
    rng = np.random.default_rng(0)
    shape = (256, 256, 3, 3)
    weights = np.clip(np.round(rng.laplace(0, 2.5, shape)), -7, 7) * (rng.random(shape) < 0.14)
    tensors = {"x": Tensor("x", 256, 3, 3, 1.0, 0), "y": Tensor("y", 256, 1, 1, 1.0, 0)}
    node = Conv("c", "x", "y", weights.astype(np.int8), requantisation(256))
    save_graph(IntegerGraph("g", "x", "y", [node], tensors), tmp_path / "m.esp")
    assert (tmp_path / "m.esp").stat().st_size * 8 < 2 * weights.size
