"""Compression of small synthetic networks from end to end."""

import numpy as np
import pytest

from espalier.compress.allocate import fit_densities, weight_scores
from espalier.compress.build import CompressOptions, compress, plan_densities
from espalier.compress.calibrate import (
    GramAccumulator,
    RangeOptions,
    choose_range,
    quantise_maps,
    stack_pictures,
)
from espalier.compress.evaluate import evaluate, size_of
from espalier.compress.execute import float_conv
from espalier.compress.quantise import quantise_weights
from espalier.compress.refit import squared_error
from espalier.errors import CapacityError, InternalError, PictureError, UserError
from espalier.ir.check import check_graph
from espalier.ir.float_graph import FloatConv, FloatGraph, FloatPool
from espalier.ir.graph import Tensor
from espalier.numerics.execute import run_output
from espalier.numerics.floating import float_run


def random_conv(generator, name, source, filters, channels, kernel, **rest):
    weights = generator.normal(size=(filters, channels, kernel, kernel)) / np.sqrt(channels * kernel**2)
    bias = generator.normal(size=filters) * 0.1
    return FloatConv(name, source, name, weights.astype(np.float32), bias.astype(np.float32), **rest)


@pytest.fixture
def graph():
    """Strided stem, pooling, a residual block with a signed shortcut, average, classifier."""
    generator = np.random.default_rng(7)
    pad = (1, 1, 1, 1)
    nodes = [
        random_conv(generator, "stem", "in", 12, 3, 3, stride=2, pads=pad, relu=True),
        FloatPool("max", "stem", "max", "max", (3, 3), 2, pad),
        random_conv(generator, "first", "max", 16, 12, 3, pads=pad, relu=True),
        random_conv(generator, "shortcut", "max", 16, 12, 1),
        random_conv(generator, "second", "first", 16, 16, 3, pads=pad, relu=True, residual="shortcut"),
        FloatPool("mean", "second", "mean", "global"),
        random_conv(generator, "fc", "mean", 5, 16, 1),
    ]
    shapes = {"in": (3, 24, 24), "stem": (12, 12, 12), "max": (12, 6, 6), "mean": (16, 1, 1), "fc": (5, 1, 1)}
    shapes.update(dict.fromkeys(("first", "shortcut", "second"), (16, 6, 6)))
    return FloatGraph("small", "in", "fc", nodes, shapes)


@pytest.fixture
def pictures():
    generator = np.random.default_rng(3)
    coarse = generator.normal(size=(24, 3, 6, 6))
    return np.kron(coarse, np.ones((1, 1, 4, 4))).astype(np.float32)


def relative_error(graph, integer, pictures):
    wanted = float_run(graph, pictures)[graph.output]
    source, target = integer.tensors[integer.input], integer.tensors[integer.output]
    stored = run_output(integer, quantise_maps(pictures, source))
    found = (stored.astype(float) - target.zero_point) * target.scale
    centred = wanted - wanted.mean(axis=0)
    return float(((found - wanted) ** 2).sum() / (centred**2).sum())


def dense(**rest):
    return CompressOptions(
        densities=dict.fromkeys(("stem", "first", "shortcut", "second", "fc"), 1.0), **rest
    )


def test_dense_eight_bits_are_nearly_lossless(graph, pictures):
    integer = compress(graph, pictures, dense(bits=8))
    check_graph(integer)
    assert relative_error(graph, integer, pictures) < 0.005


def test_fewer_bits_cost_accuracy_but_stay_close(graph, pictures):
    errors = [relative_error(graph, compress(graph, pictures, dense(bits=b)), pictures) for b in (8, 4, 2)]
    assert errors[0] < errors[1] < errors[2] < 0.5
    assert errors[1] < 0.05


def test_pruning_with_refit_follows_the_float_network(graph, pictures):
    options = {"densities": dict.fromkeys(("stem", "first", "second"), 0.4), "mac_fraction": 0.9}
    admm = compress(graph, pictures, CompressOptions(bits=6, **options))
    magnitude = compress(graph, pictures, CompressOptions(bits=6, prune_method="magnitude", **options))
    assert size_of(admm).density["first"] <= 0.4
    error = relative_error(graph, admm, pictures)
    assert error < 0.2
    assert error < relative_error(graph, magnitude, pictures)


def test_plain_rounding_of_magnitude_masks_is_worse(graph, pictures):
    best = compress(graph, pictures, CompressOptions(bits=4, density=0.6))
    options = CompressOptions(bits=4, density=0.6, prune_method="magnitude", rounding="plain")
    plain = compress(graph, pictures, options)
    assert all(kept <= 0.6 for kept in size_of(best).density.values())
    assert relative_error(graph, best, pictures) < 0.5 * relative_error(graph, plain, pictures)


def test_patterns_reach_the_weights(graph, pictures):
    options = CompressOptions(bits=6, pattern="2:4", densities={"stem": 1.0})
    layers = {node.name: node for node in compress(graph, pictures, options).nodes}
    for name in ("first", "second"):
        banks = (layers[name].weights.reshape(-1, 4) != 0).sum(axis=1)
        assert banks.max() == 2
    assert size_of(compress(graph, pictures, options)).density["stem"] > 0.9


def test_the_result_depends_on_the_seed_alone(graph, pictures):
    options = CompressOptions(mac_fraction=0.5, positions=10, seed=5)
    first, second = (compress(graph, iter(pictures), options) for _ in range(2))
    for a, b in zip(first.nodes, second.nodes, strict=True):
        for field in ("multiplier", "shift", "bias"):
            assert np.array_equal(getattr(a.requantisation, field), getattr(b.requantisation, field))
        if hasattr(a, "weights"):
            assert np.array_equal(a.weights, b.weights)


def test_signed_tensors_get_a_zero_point_and_relu_outputs_none(graph, pictures):
    tensors = compress(graph, pictures, dense()).tensors
    assert 60 < tensors["shortcut"].zero_point < 200
    assert tensors["stem"].zero_point == tensors["second"].zero_point == 0
    assert (tensors["max"].scale, tensors["max"].zero_point) == (tensors["stem"].scale, 0)


def test_progress_reports_every_node(graph, pictures):
    seen = []
    compress(graph, pictures[:4], dense(), lambda *values: seen.append(values))
    assert [values[1] for values in seen] == list(range(1, 8))
    assert seen[0][3].name == "stem" and seen[1][3] is None


def test_budgets_hold(graph, pictures):
    stack = stack_pictures(pictures, graph.shapes["in"])
    options = CompressOptions(mac_fraction=0.3, max_operators=1200)
    densities = plan_densities(graph, stack, options)
    assert densities["stem"] == options.first_layer_density
    sizes = {n.name: n.weights.size for n in graph.nodes if isinstance(n, FloatConv)}
    assert sum(densities[name] * sizes[name] for name in sizes) <= 1200.5
    integer = compress(graph, pictures, options)
    assert size_of(integer).mac_fraction <= 0.3 and size_of(integer).operators <= 1200


def test_a_first_layer_that_would_take_the_budget_gets_less(graph, pictures):
    graph.nodes, graph.output = graph.nodes[:1], "stem"
    stack = stack_pictures(pictures, graph.shapes["in"])
    options = CompressOptions()
    assert plan_densities(graph, stack, options)["stem"] == pytest.approx(options.mac_fraction, abs=0.01)
    assert plan_densities(graph, stack, CompressOptions(mac_fraction=1.0))["stem"] == 0.5


def test_wide_weights_count_twice(graph, pictures):
    stack = stack_pictures(pictures, graph.shapes["in"])
    scores = weight_scores(graph, stack.transpose(1, 0, 2, 3)[:2])
    total = {}
    for bits in (4, 8):
        fitted = fit_densities(graph, scores, dict.fromkeys(scores, bits), 1.0, 2000, {})
        total[bits] = sum(fitted[name] * scores[name].size for name in scores)
    assert total[8] == pytest.approx(1000, rel=0.1) and total[4] == pytest.approx(2000, rel=0.1)


def test_impossible_budgets_are_refused(graph, pictures):
    with pytest.raises(CapacityError, match="too small for this network"):
        compress(graph, pictures, CompressOptions(max_operators=10))


def test_numbers_that_are_none_are_refused(graph, pictures):
    pictures[3, 0, 2, 2] = np.nan
    with pytest.raises(PictureError, match="picture 3"):
        compress(graph, pictures)
    graph.nodes[2].weights[0, 0, 0, 0] = np.inf
    with pytest.raises(UserError, match="layer 'first'"):
        compress(graph, pictures[:2])


def test_wrong_input_is_refused(graph, pictures):
    with pytest.raises(PictureError, match="shape"):
        compress(graph, pictures[:, :, :20])
    with pytest.raises(PictureError, match="no calibration pictures"):
        compress(graph, [])
    with pytest.raises(UserError, match="nosuch"):
        compress(graph, pictures, CompressOptions(densities={"nosuch": 0.5}))
    with pytest.raises(UserError, match="must be above 0"):
        compress(graph, pictures, CompressOptions(densities={"stem": 0.0}))
    with pytest.raises(UserError, match="choose admm or magnitude"):
        compress(graph, pictures, CompressOptions(prune_method="none"))
    with pytest.raises(UserError, match="choose feedback or plain"):
        compress(graph, pictures, CompressOptions(rounding="down"))
    with pytest.raises(UserError, match="unknown pattern"):
        compress(graph, pictures, CompressOptions(pattern="4:2"))


@pytest.mark.parametrize(
    "wrong",
    [
        {"mac_fraction": 0.0}, {"mac_fraction": 2.0}, {"mac_fraction": float("nan")},
        {"first_layer_density": float("nan")}, {"first_layer_density": 0.0},
        {"max_operators": 0}, {"seed": -1}, {"density": 0.0}, {"density": 1.1}, {"density": float("nan")},
    ],
)  # fmt: skip
def test_options_outside_their_range_are_refused(graph, pictures, wrong):
    with pytest.raises(UserError, match="must be"):
        compress(graph, pictures, CompressOptions(**wrong))


def test_inputs_that_hardly_vary_are_rounded_all_the_same(graph, pictures):
    graph.nodes[0].weights *= np.float32(1e-6)
    graph.nodes[0].bias[:] = 1.0
    check_graph(compress(graph, pictures, dense()))


@pytest.mark.parametrize("method", ["max", "percentile", "mse"])
def test_ranges_cover_the_values(method):
    values = np.random.default_rng(0).normal(2.0, 3.0, 10_000)
    tensor = choose_range("t", (1, 1, 1), values, False, RangeOptions(method))
    stored = quantise_maps(values, tensor)
    error = np.abs((stored.astype(float) - tensor.zero_point) * tensor.scale - values)
    assert np.percentile(error, 99) <= tensor.scale * 0.51
    assert choose_range("t", (1, 1, 1), np.abs(values), True, RangeOptions(method)).zero_point == 0


def test_evaluation_counts_pairs(graph, pictures):
    integer = compress(graph, pictures, dense(bits=8))
    labels = float_run(graph, pictures)["fc"].reshape(24, -1).argmax(axis=1)
    accuracy = evaluate(graph, integer, pictures, labels)
    assert accuracy.pictures == 24 and accuracy.float_top1 == 1.0
    assert accuracy.agreement == accuracy.integer_top1 > 0.8


def test_maximum_pooling_keeps_the_scale_of_a_signed_tensor(graph, pictures):
    graph.nodes[0].relu = False
    integer = compress(graph, pictures, dense(bits=8))
    check_graph(integer)
    before, after = integer.tensors["stem"], integer.tensors["max"]
    assert before.zero_point > 0
    assert (after.scale, after.zero_point) == (before.scale, before.zero_point)
    assert relative_error(graph, integer, pictures) < 0.01
    graph.nodes[1].relu = True
    with pytest.raises(InternalError, match="activation"):
        compress(graph, pictures, dense(bits=8))


@pytest.mark.parametrize("gain", [1e-5, 1e6])
def test_activations_of_any_size_are_followed(graph, pictures, gain):
    graph.nodes[0].weights *= np.float32(gain)
    graph.nodes[0].bias *= np.float32(gain)
    for name in ("first", "shortcut"):
        node = next(node for node in graph.nodes if node.name == name)
        node.weights /= np.float32(gain)
    assert relative_error(graph, compress(graph, pictures, dense(bits=8)), pictures) < 0.01


@pytest.mark.parametrize("gain", [1e25, 1e38])
def test_a_network_that_overflows_is_refused(graph, pictures, gain):
    graph.nodes[0].weights *= np.float32(gain)
    with pytest.raises(UserError, match="overflows"), np.errstate(all="ignore"):
        compress(graph, pictures, dense())


@pytest.fixture
def wide_layer():
    """Gram matrices of few pictures with many inputs, of all pictures there are, and the layer's weights."""
    generator = np.random.default_rng(11)
    mixing = generator.normal(size=(40, 40)) * np.linspace(0.05, 1, 40)[:, None]

    def maps(pictures):
        # Pixels of a picture share most of their pattern, so they are no independent samples.
        base = generator.normal(size=(40, pictures, 1, 1))
        noise = generator.normal(size=(40, pictures, 5, 5)) * 0.3
        real = np.maximum(np.tensordot(mixing, base + noise, axes=1), 0)
        return np.clip(np.rint(real / 0.05), 0, 255).astype(np.uint8)

    node = random_conv(generator, "wide", "in", 8, 40, 1)
    tensor = Tensor("in", 40, 5, 5, 0.05, 0)

    def gather(pictures):
        gathered = GramAccumulator(node, 10, np.random.default_rng(0))
        for _ in range(pictures // 10):
            stored = maps(10)
            gathered.add(stored, tensor, float_conv(node, stored.astype(np.float32) * np.float32(0.05)))
        return gathered

    return node.weights.reshape(8, 40).astype(float), gather


def test_shrinkage_rounds_better_for_pictures_not_seen(wide_layer):
    weights, gather = wide_layer
    truth, few = gather(2000).finish(1e-4, shrink=False), gather(20)
    mask = np.ones(weights.shape, bool)
    errors = []
    for shrink in (False, True):
        gram = few.finish(1e-4, shrink).gram
        levels, steps = quantise_weights(weights, gram, weights @ gram, mask, 3)
        errors.append(squared_error(truth.gram, truth.cross, levels * steps[:, None], truth.energy))
    assert errors[1] < 0.9 * errors[0]


@pytest.mark.parametrize(("pictures", "low", "high"), [(20, 0.1, 2.0), (2000, 0.0, 0.02)])
def test_the_more_pictures_the_less_shrinkage(wide_layer, pictures, low, high):
    gathered = wide_layer[1](pictures)
    plain, shrunk = (np.diag(gathered.finish(1e-4, shrink).gram).mean() for shrink in (False, True))
    assert low <= shrunk / plain - 1 <= high
