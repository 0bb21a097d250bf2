"""Patterns of non-zeros: what they admit, that they keep the best of it, and ADMM with them."""

import itertools

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from espalier.compress.patterns import Pattern, parse_pattern
from espalier.compress.prune import admm_mask, magnitude_mask
from espalier.compress.refit import masked_least_squares, squared_error
from espalier.errors import UserError

ALL = ("none", "row", "row:5", "bank:8", "bank:5", "2:4", "1:3", "block:1x4", "block:1x5")


def runs(row, size):
    return [row[start : start + size] for start in range(0, len(row), size)]


@settings(deadline=None, max_examples=60)
@given(st.sampled_from(ALL), st.integers(1, 6), st.integers(1, 30), st.floats(0.02, 1.0), st.integers(0, 99))
def test_masks_obey_their_pattern(text, filters, inputs, density, seed):
    scores = np.random.default_rng(seed).integers(0, 5, (filters, inputs)).astype(np.float32)
    keep = max(1, int(density * scores.size))
    pattern = parse_pattern(text)
    mask = pattern.mask(scores, keep)
    counts = mask.sum(axis=1)
    assert mask.any()
    if text == "none":
        assert mask.sum() == keep
    elif pattern.kind == "row":
        assert (counts == min(inputs, pattern.count or max(1, keep // filters))).all()
    elif pattern.kind == "bank":
        for place in range(0, inputs, pattern.size):
            held = mask[:, place : place + pattern.size].sum(axis=1)
            assert (held == held[0]).all() and held[0] >= 1
            if pattern.count and place + pattern.size <= inputs:
                assert held[0] == pattern.count
    else:
        assert all(run.all() or not run.any() for row in mask for run in runs(row, pattern.size))
        assert mask.sum() <= max(keep, pattern.size)
    if pattern.count is not None:
        assert mask.mean() == pytest.approx(pattern.density(inputs))


def test_the_best_mask_of_a_pattern_is_found():
    scores = np.random.default_rng(4).random((2, 6)).astype(np.float32)
    for text, size in (("2:3", 3), ("row:3", 6)):
        count = 3 if size == 6 else 2
        best = 0.0
        for row in scores:
            for run in runs(row, size):
                best += max(sum(chosen) for chosen in itertools.combinations(run, count))
        assert scores[parse_pattern(text).mask(scores, 99)].sum() == pytest.approx(best)


@pytest.mark.parametrize(
    "text", ["", "rows", "row:0", "bank:", "bank:0", "5:4", "0:4", "block:2x4", "block:1x0", "2:4:8"]
)
def test_unknown_patterns_are_refused(text):
    with pytest.raises(UserError, match="choose none, row"):
        parse_pattern(text)


@pytest.mark.parametrize("text", ["none", "row", "bank:12", "2:4", "block:1x4"])
def test_admm_finds_better_masks_than_magnitude_in_every_pattern(text):
    generator = np.random.default_rng(1)
    mixing = generator.normal(size=(48, 48)) * 0.4 + np.eye(48)
    inputs = np.maximum(mixing @ generator.normal(size=(48, 2000)), 0)
    inputs -= inputs.mean(axis=1, keepdims=True)
    gram = (inputs @ inputs.T / 2000 + 1e-3 * np.eye(48)).astype(np.float32)
    weights = generator.normal(size=(16, 48)).astype(np.float32)
    cross = weights @ gram
    energy = float((cross * weights).sum())
    pattern: Pattern = parse_pattern(text)
    masks = [
        magnitude_mask(weights, gram, weights.size // 2, pattern),
        admm_mask(gram, cross, weights.size // 2, pattern=pattern),
    ]
    errors = [squared_error(gram, cross, masked_least_squares(gram, cross, mask), energy) for mask in masks]
    assert masks[0].sum() == masks[1].sum()
    assert errors[1] < errors[0]
