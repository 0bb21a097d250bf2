"""Pruning, refit and rounding of single layers on synthetic Gram matrices."""

import numpy as np
import pytest

from espalier.compress import quantise, refit
from espalier.compress.parameters import fixed_point
from espalier.compress.patterns import top_mask
from espalier.compress.prune import admm_mask, magnitude_mask
from espalier.compress.quantise import grid_of, quantise_weights, round_plainly, round_with_feedback
from espalier.compress.refit import masked_least_squares, squared_error, supports
from espalier.errors import UserError


@pytest.fixture
def layer():
    """Weights [K, n] and the statistics of correlated, ReLU-like inputs."""
    generator = np.random.default_rng(1)
    mixing = generator.normal(size=(48, 48)) * 0.4 + np.eye(48)
    inputs = np.maximum(mixing @ generator.normal(size=(48, 2000)), 0)
    inputs -= inputs.mean(axis=1, keepdims=True)
    gram = (inputs @ inputs.T / 2000 + 1e-3 * np.eye(48)).astype(np.float32)
    weights = generator.normal(size=(16, 48)).astype(np.float32) * generator.uniform(0.2, 2, (16, 1))
    weights = weights.astype(np.float32)
    cross = weights @ gram
    return weights, gram, cross, float((cross * weights).sum())


def test_top_mask_keeps_exactly_as_many_as_asked_even_with_ties():
    assert top_mask(np.ones((4, 5), np.float32), 7).sum() == 7
    assert top_mask(np.ones((4, 5), np.float32), 0).sum() == 0
    assert top_mask(np.ones((4, 5), np.float32), 99).all()


def test_refit_and_admm_lower_the_error(layer):
    weights, gram, cross, energy = layer
    keep = weights.size // 4
    mask = magnitude_mask(weights, gram, keep)
    plain = squared_error(gram, cross, (weights * mask).astype(float), energy)
    refitted = squared_error(gram, cross, masked_least_squares(gram, cross, mask), energy)
    better = admm_mask(gram, cross, keep)
    admm = squared_error(gram, cross, masked_least_squares(gram, cross, better), energy)
    assert mask.sum() == better.sum() == keep
    assert refitted < 0.9 * plain
    assert admm < refitted


def test_least_squares_of_a_full_mask_returns_the_weights(layer):
    weights, gram, cross, _ = layer
    found = masked_least_squares(gram, cross, np.ones(weights.shape, bool))
    np.testing.assert_allclose(found, weights, atol=1e-2)


@pytest.mark.parametrize("bits", range(1, 9))
def test_levels_stay_in_the_range_of_their_bits(layer, bits):
    weights, gram, cross, _ = layer
    mask = magnitude_mask(weights, gram, weights.size // 2)
    levels, steps = quantise_weights(weights * mask, gram, cross, mask, bits)
    grid = grid_of(bits)
    assert levels.min() >= grid.low and levels.max() <= grid.high
    assert not levels[~mask].any()
    assert (steps > 0).all()
    if bits == 1:
        assert (levels[mask] != 0).all()


def test_more_bits_lower_the_error_and_feedback_beats_plain_rounding(layer):
    weights, gram, cross, energy = layer
    mask = np.ones(weights.shape, bool)
    errors = []
    for bits in range(1, 9):
        levels, steps = quantise_weights(weights.astype(float), gram, cross, mask, bits)
        errors.append(squared_error(gram, cross, levels * steps[:, None], energy))
    assert errors == sorted(errors, reverse=True)
    step = np.abs(weights).max(axis=1, keepdims=True) / 7
    rounded = squared_error(gram, cross, np.rint(weights / step).astype(float) * step, energy)
    assert errors[3] < 0.7 * rounded


def test_filters_without_weights_stay_empty(layer):
    weights, gram, cross, _ = layer
    mask = np.ones(weights.shape, bool)
    mask[3] = False
    refitted = masked_least_squares(gram, cross, mask)
    levels, steps = quantise_weights(refitted, gram, cross, mask, 4)
    assert not levels[3].any() and np.isfinite(steps).all()


def test_bits_outside_one_to_eight_are_refused():
    with pytest.raises(UserError, match="choose from 1 to 8"):
        grid_of(9)


@pytest.mark.parametrize("ratio", [1e-4, 0.01, 0.9, 37.5, 4000.0])
def test_fixed_point_has_at_least_nine_bits_of_precision(ratio):
    shifts = (5, 11, 17, 23)
    multiplier, index = fixed_point(ratio, 17, shifts, "test")
    assert 0 < multiplier < 1 << 17
    assert multiplier / 2 ** shifts[index] == pytest.approx(ratio, rel=2**-9)


def test_a_ratio_that_does_not_fit_is_refused():
    with pytest.raises(UserError, match="layer 'a'"):
        fixed_point(5000.0, 17, (5, 11, 17, 23), "layer 'a'")


def gptq(weights, block, step, grid):
    """GPTQ as published, with the inverse: fixed order, error times a row of the factor of the inverse."""
    order = np.argsort(-np.diag(block), kind="stable")
    upper = np.linalg.cholesky(np.linalg.inv(block[np.ix_(order, order)])).T
    remaining, levels = weights[order] / step, np.zeros(len(order))
    for i in range(len(order)):
        levels[order[i]] = grid.nearest(remaining[i : i + 1])[0]
        remaining[i:] -= (remaining[i] - levels[order[i]]) / upper[i, i] * upper[i, i:]
    return levels


@pytest.mark.parametrize("block", [1, 5, 64])
@pytest.mark.parametrize("bits", [1, 3, 4])
def test_error_feedback_is_gptq_without_the_inverse(layer, bits, block, monkeypatch):
    weights, gram, _, _ = layer
    monkeypatch.setattr(quantise, "_BLOCK", block)
    grid, wide = grid_of(bits), gram.astype(np.float64)
    steps = np.abs(weights).max(axis=1).astype(np.float64) / max(grid.high, 1)
    found = round_with_feedback(weights.astype(np.float64), wide, steps, grid)
    wanted = [gptq(row, wide, step, grid) for row, step in zip(weights.astype(float), steps, strict=True)]
    np.testing.assert_array_equal(found, wanted)


def test_all_rows_at_once_give_the_same_least_squares(layer, monkeypatch):
    weights, gram, cross, _ = layer
    mask = magnitude_mask(weights, gram, weights.size // 2)
    one_by_one = masked_least_squares(gram, cross, mask)
    monkeypatch.setattr(refit, "EXACT_WORK", 0.0)
    together = masked_least_squares(gram, cross, mask)
    assert not together[~mask].any()
    np.testing.assert_allclose(together, one_by_one, atol=2e-3)


def test_many_bits_need_no_factorisation_per_row(layer, monkeypatch):
    weights, gram, cross, energy = layer
    mask = magnitude_mask(weights, gram, weights.size // 2)
    refitted = masked_least_squares(gram, cross, mask)
    exact = quantise_weights(refitted, gram, cross, mask, 8)
    monkeypatch.setattr(quantise, "EXACT_WORK", 0.0)
    levels, steps = quantise_weights(refitted, gram, cross, mask, 8)
    errors = [
        squared_error(gram, cross, found * by[:, None], energy) for found, by in (exact, (levels, steps))
    ]
    assert not levels[~mask].any()
    assert errors[1] < 1.05 * errors[0]


def test_supports_partition_the_rows():
    mask = np.array([[1, 0, 1], [0, 0, 0], [1, 0, 1], [1, 1, 1]], bool)
    found = [(rows.tolist(), index.tolist()) for rows, index in supports(mask)]
    assert found == [([0, 2], [0, 2]), ([3], [0, 1, 2])]


@pytest.mark.parametrize("bits", range(1, 9))
def test_plain_rounding_is_worse(layer, bits):
    weights, gram, cross, energy = layer
    mask = np.ones(weights.shape, bool)
    plain = round_plainly(weights.astype(float), mask, bits)
    made_up = quantise_weights(weights.astype(float), gram, cross, mask, bits)
    errors = [
        squared_error(gram, cross, levels * steps[:, None], energy) for levels, steps in (plain, made_up)
    ]
    assert errors[1] < 0.9 * errors[0]
