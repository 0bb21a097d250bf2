"""Single passes of the compiler: windows, digits, dealing, run lengths, tiles, averages."""

import dataclasses

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from espalier.arch.config import DSP_SLICES, load_config
from espalier.arch.operators import (
    ACCUMULATOR_DISTANCE,
    DIGIT_HIGH,
    OPERATORS_PER_WORD,
)
from espalier.backend.deal import Shape, deal_by_load, deal_in_order, drain_order
from espalier.backend.digits import build_parts, group_sums, prove_bounds
from espalier.backend.geometry import kernel_geometry
from espalier.backend.plan import Deal
from espalier.backend.runs import run_lengths
from espalier.backend.share import Sharing, tournament
from espalier.backend.spread import groupings, spread_tiles
from espalier.backend.synthetic import RandomNetwork
from espalier.errors import CapacityError, InternalError
from espalier.ir.check import check_graph
from espalier.ir.graph import Conv
from espalier.numerics import run
from espalier.passes.lower_average import lower_average
from espalier.passes.space_to_depth import rearrange_picture, space_to_depth

BOUND = load_config("tiny").max_weight_sum


@settings(deadline=None)
@given(
    kernel=st.tuples(st.integers(1, 9), st.integers(1, 9)),
    stride=st.integers(1, 2),
    pads=st.tuples(st.integers(0, 4), st.integers(0, 4)),
    dilation=st.integers(1, 3),
    size=st.integers(4, 8),
)
def test_every_tap_finds_its_pixel(kernel, stride, pads, dilation, size):
    try:
        geometry = kernel_geometry(np.ones(kernel, np.bool_), stride, pads, dilation, size, "layer")
    except CapacityError:
        return
    for (ky, kx), number in np.ndenumerate(geometry.pattern_of):
        pattern, tap = geometry.patterns[number], geometry.tap_of[ky, kx]
        row = pattern.tile_dy * size + pattern.row_offset + stride * tap
        assert row == ky * dilation - pads[0]
        assert pattern.tile_dx * size + pattern.column_offset == kx * dilation - pads[1]
        assert -size <= pattern.row_offset + stride * tap <= 2 * size - 1 - stride * (size - 1)
        assert 2 - size <= pattern.column_offset <= 2 * size - 1 - stride * (size - 1)
        assert pattern.taps >> tap & 1


def test_a_3x3_kernel_needs_one_window():
    geometry = kernel_geometry(np.ones((3, 3), np.bool_), 1, (1, 1), 1, 7, "layer")
    assert len(geometry.patterns) == 3
    assert geometry.fetches == 1


def one_conv(weights, bits):
    net = RandomNetwork(weights.shape[1], 8, 8)
    net.conv("input", weights.shape[0], weights.shape[2:], bits=bits)
    return dataclasses.replace(net.nodes[0], weights=weights.astype(np.int8))


def geometry_of(node):
    used = (node.weights != 0).any(axis=(0, 1))
    return kernel_geometry(used, 1, (0, 0), 1, 7, "layer")


@settings(deadline=None, max_examples=60)
@given(
    seed=st.integers(0, 10**6),
    bits=st.sampled_from([1, 3, 4, 5, 8]),
    channels=st.integers(1, 300),
    density=st.floats(0, 1),
    bias=st.floats(-1, 1),
    spacing=st.sampled_from(sorted(DSP_SLICES)),
)
def test_no_part_can_overflow_and_all_weights_are_there(seed, bits, channels, density, bias, spacing):
    random = np.random.default_rng(seed)
    limit = {1: 1, 3: 3, 4: 7, 5: 15, 8: 119}[bits]
    shape = (5, channels, 3, 3)
    weights = np.clip(np.round(random.normal(bias, 1, shape) * limit), -limit, limit)
    node = one_conv(weights * (random.random(shape) < density), bits)
    geometry = geometry_of(node)
    config = dataclasses.replace(load_config("tiny"), pair_spacing_bits=spacing)
    parts = build_parts(node, geometry, config.max_weight_sum)
    # The worst pixels: 255 wherever a digit has the sign, 0 elsewhere.
    worst = 255 * group_sums(parts.part, parts.digit, parts.count)
    assert worst.max(initial=0) < 1 << spacing - 1
    assert (np.diff(parts.first_part) >= 1).all()
    rebuilt = np.zeros((5, parts.words, 4), np.int64)
    digit = parts.digit * np.where(parts.high[parts.part] == 1, 16, 1)
    np.add.at(rebuilt, (parts.filter_of[parts.part], parts.word, parts.tap), digit)
    k, c, ky, kx = np.nonzero(node.weights)
    word = c * len(geometry.patterns) + geometry.pattern_of[ky, kx]
    assert (rebuilt[k, word, geometry.tap_of[ky, kx]] == node.weights[k, c, ky, kx]).all()
    assert np.abs(rebuilt).sum() == np.abs(node.weights.astype(np.int64)).sum()


def test_sums_beyond_the_accumulator_are_refused():
    node = one_conv(np.full((1, 800, 3, 3), 119), 8)
    with pytest.raises(CapacityError, match=r"layer conv0, filter 0: sums can reach"):
        build_parts(node, geometry_of(node), BOUND)
    with pytest.raises(InternalError, match="do not fit"):
        geometry = geometry_of(one_conv(np.ones((1, 1, 1, 1)), 4))
        build_parts(one_conv(np.full((1, 1, 1, 1), 9), 4), geometry, BOUND)


def test_digits_have_three_bits_and_a_sign():
    for bits, weights in ((4, range(-8, 8)), (8, range(-119, 120))):
        values = np.array(list(weights))
        node = one_conv(values.reshape(1, -1, 1, 1), bits)
        parts = build_parts(node, geometry_of(node), BOUND)
        assert np.abs(parts.digit).max() <= DIGIT_HIGH
        rebuilt = np.bincount(parts.word, parts.digit * 16 ** parts.high[parts.part])
        assert (rebuilt == values).all()
        operators = np.bincount(parts.word, minlength=len(values))
        assert operators[values == 8].tolist() == [2] * np.count_nonzero(values == 8)  # 4 + 4, not 16 - 4 - 4
        assert operators[values == -8] == 2


@settings(deadline=None, max_examples=60)
@given(
    target=st.sampled_from(["tiny", "mixed", "zcu104"]), tiles=st.integers(1, 60), channels=st.integers(1, 9)
)
def test_every_tile_is_taken_once(target, tiles, channels):
    config = load_config("zcu104" if target == "mixed" else target)
    if target == "mixed":
        config = dataclasses.replace(config, lut_branches=1, lut_pes=7)
    for grouping in groupings(config, tiles, channels):
        branches = [branch for group in grouping for branch in group]
        assert len(set(branches)) == len(branches)
        assert all(1 <= len(group) <= channels for group in grouping)
        costs = [1000 // sum(config.branch_pes(branch) for branch in group) for group in grouping]
        groups = spread_tiles(grouping, [None] * len(grouping), costs, tiles)
        if groups is None:
            continue
        places = np.concatenate([group.places() for group in groups])
        assert sorted(places) == list(range(tiles))
        assert all((np.diff(group.places()) > 0).all() for group in groups)
        if len(grouping) == config.branches and tiles >= 40:  # all branches work, each as fast as it can
            work = [group.tiles * cost for group, cost in zip(groups, costs, strict=True)]
            assert max(work) < 1.35 * sum(work) / len(work)


def operators_of(parts):
    columns = (parts.filter_of[parts.part], parts.high[parts.part], parts.word, parts.tap, parts.digit)
    return sorted(zip(*(column.tolist() for column in columns), strict=True))


@pytest.mark.parametrize("players", [2, 3, 4, 7, 16])
def test_in_a_tournament_everybody_meets_everybody_once(players):
    met = set()
    for left, right in tournament(players):
        assert len({*left.tolist(), *right.tolist()}) == 2 * len(left)
        met |= {frozenset(pair) for pair in zip(left.tolist(), right.tolist(), strict=True)}
    assert len(met) == players * (players - 1) // 2


def test_sharing_evens_out_every_block():
    net = RandomNetwork(64, 8, 8, seed=3)
    net.conv("input", 48, density=0.3, bits=3)
    parts = build_parts(net.nodes[0], geometry_of(net.nodes[0]), BOUND)
    shape = Shape((16,), 1, 32)

    def drift(own, deal):
        lengths = run_lengths(np.concatenate((own.block_counts(8), np.zeros((1, 24), np.int32))), deal)
        load = lengths.sum(axis=(2, 4))[0].cumsum(axis=1)
        return (load - load.mean(axis=0)).std()

    plain = deal_by_load(parts, parts.block_counts(8).sum(axis=1), shape)
    shared = Sharing(parts).variants(parts.block_counts(8), 8, [(shape, 2)])[0]
    assert drift(shared.build(), shared.deal) < 0.5 * drift(parts, plain)


def check_runs(runs):
    """Which runs may be left out, and the distance of a filter's runs; runs: [passes, blocks, filters]."""
    assert (runs[:, 0] > 0).all()
    assert (runs[:, :, :1] > 0).all()
    assert ((runs[:, :, 1:] > 0) | (runs[:, :, :-1] > 0)).all()
    passes, blocks, filters = runs.shape
    for which in range(passes) if filters > 1 else ():
        done, ended = 0, {}
        for block, slot in np.ndindex(blocks, filters):
            if runs[which, block, slot]:
                assert done - ended.get(slot, -ACCUMULATOR_DISTANCE) >= ACCUMULATOR_DISTANCE
                done += runs[which, block, slot]
                ended[slot] = done


@settings(deadline=None, max_examples=100)
@given(
    slots=st.integers(1, 9),
    pes=st.lists(st.tuples(st.integers(1, 9), st.integers(0, 3)), min_size=1, max_size=4),
    passes=st.integers(1, 2),
    blocks=st.integers(1, 12),
    mean=st.sampled_from([0.0, 0.3, 1.0, 2.4]),
    seed=st.integers(0, 9999),
)
def test_runs_are_short_and_obey_the_hardware(slots, pes, passes, blocks, mean, seed):
    """PEs of any numbers of filters, some of which have no part in a pass."""
    rng = np.random.default_rng(seed)
    filters = np.array([[min(count, slots) for count, _ in pes]])
    part_at = np.full((1, len(pes), passes, slots), -1)
    for pe, (count, unused) in enumerate(pes):
        for which in range(passes):
            first = min(unused * which, min(count, slots) - 1)
            part_at[0, pe, which, first : filters[0, pe]] = -2
    part_at[part_at == -2] = np.arange(np.count_nonzero(part_at == -2))
    counts = rng.poisson(mean, (int(part_at.max()) + 2, blocks)).astype(np.int32)
    counts[-1] = 0
    lengths = run_lengths(counts, Deal(part_at, filters))
    needed = np.swapaxes(counts[part_at], 3, 4)
    assert (lengths >= needed).all()
    for pe in range(len(pes)):
        own = filters[0, pe]
        runs, busy = lengths[0, pe, ..., :own], needed[0, pe, ..., :own]
        assert not lengths[0, pe, ..., own:].any()
        check_runs(runs)
        if own > 2 * ACCUMULATOR_DISTANCE:  # no nulls but in empty runs that have to be there, and in front
            more = runs - np.maximum(busy, 1) * (runs > 0)
            assert 0 <= more[0, 0, 0] < OPERATORS_PER_WORD
            more[0, 0, 0] = 0
            assert not more.any()
            left_out = (busy == 0)[:, 1:, 1:] & (runs[:, 1:, :-1] > 0)
            assert (runs[:, 1:, 1:][left_out] == 0).all()


@settings(deadline=None, max_examples=100)
@given(
    filters=st.integers(1, 60),
    pes=st.lists(st.integers(1, 4), min_size=1, max_size=3).map(tuple),
    passes=st.integers(1, 3),
    balance=st.booleans(),
    density=st.sampled_from([0.0, 0.05, 0.3]),
    seed=st.integers(0, 999),
    cuts=st.integers(-1, 3),
    bits=st.sampled_from([3, 8]),
    bound=st.sampled_from([128, 514]),
)
def test_deals_and_runs_obey_the_hardware(filters, pes, passes, balance, density, seed, cuts, bits, bound):
    net = RandomNetwork(30, 8, 8, seed=seed)
    net.conv("input", filters, density=density, bits=bits)
    parts = build_parts(net.nodes[0], geometry_of(net.nodes[0]), bound)
    shape, branches = Shape(pes, passes, 8), len(pes)
    counts = parts.block_counts(8)
    if not balance:
        deal = deal_in_order(parts, shape)
    elif cuts < 0:
        deal = deal_by_load(parts, np.maximum(counts, 1).sum(axis=1), shape)
    else:
        shared = Sharing(parts).variants(counts, 8, [(shape, cuts)])[0]
        if shared is None:
            return
        before, parts, deal = parts, shared.build(), shared.deal
        prove_bounds(parts, net.nodes[0])
        assert operators_of(parts) == operators_of(before)
        counts = parts.block_counts(8)
        assert (shared.counts == counts).all()
    if deal is None:
        full = parts.count > sum(pes) * passes * 8 - 20 * shape.bins
        assert not balance or full or filters < shape.bins
        return
    dealt = np.sort(deal.part_at[deal.part_at >= 0])
    assert (dealt == np.arange(parts.count)).all()
    lengths = run_lengths(np.concatenate((counts, np.zeros_like(counts[:1]))), deal)
    for branch, pe in np.ndindex(deal.filters.shape):
        assert (deal.filters[branch, pe] > 0) == (pe < pes[branch])
        runs = lengths[branch, pe, :, :, : deal.filters[branch, pe]]
        assert runs.sum() % OPERATORS_PER_WORD == 0
        assert lengths[branch, pe, :, :, deal.filters[branch, pe] :].sum() == 0
        check_runs(runs)
    for branch in range(branches):
        for which in range(passes):
            pe, part = drain_order(deal, parts, branch, which)
            for index in range(pes[branch]):
                in_order = part[pe == index]
                expected = deal.part_at[branch, index, which, : deal.filters[branch, index]]
                assert (in_order == expected).all()
            unused = np.count_nonzero(part < 0)
            assert (part[:unused] < 0).all()  # what is dropped comes first, so that a filter ends the pass
            assert unused < len(part)
            assert (np.diff(part[unused:]) > 0).all()


@settings(deadline=None, max_examples=60)
@given(
    channels=st.integers(1, 9),
    size=st.tuples(st.integers(1, 12), st.integers(1, 12)),
    kernel=st.tuples(st.integers(1, 4), st.integers(1, 4)),
    stride=st.integers(1, 2),
    pads=st.tuples(*[st.integers(0, 2)] * 4),
    zero=st.integers(0, 255),
)
def test_averages_as_convolutions_are_the_same(channels, size, kernel, stride, pads, zero):
    if size[0] + pads[0] + pads[2] < kernel[0] or size[1] + pads[1] + pads[3] < kernel[1]:
        return
    net = RandomNetwork(channels, *size, zero_point=zero)
    net.pool("input", "average", kernel, stride, pads)
    graph, picture = net.graph(), net.picture()
    lowered = lower_average(graph)
    check_graph(lowered)
    (node,) = lowered.nodes
    whole = kernel == size and not any(pads)
    assert node.kind == "global" if whole else isinstance(node, Conv)
    assert (run(graph, picture)[graph.output] == run(lowered, picture)[graph.output]).all()


def test_a_maximum_that_rescales_is_refused():
    net = RandomNetwork(2, 8, 8, zero_point=9)
    name = net.pool("input", "max", (2, 2))
    graph = net.graph()
    check_graph(graph)
    values = graph.nodes[0].requantisation
    half = dataclasses.replace(values, multiplier=values.multiplier // 2)
    graph.nodes[0] = dataclasses.replace(graph.nodes[0], requantisation=half)
    graph.tensors[name] = dataclasses.replace(graph.tensors[name], zero_point=0)
    with pytest.raises(
        InternalError, match=r"rescales \(factor 4096 / 8192.*moves the zero point from 9 to 0"
    ):
        check_graph(graph)


@settings(deadline=None, max_examples=60)
@given(
    kernel=st.integers(2, 11),
    stride=st.sampled_from([2, 4]),
    pad=st.integers(0, 5),
    size=st.tuples(st.integers(11, 30), st.integers(11, 30)),
    dilation=st.integers(1, 2),
)
def test_space_to_depth_changes_nothing(kernel, stride, pad, size, dilation):
    if dilation * (kernel - 1) + 1 > min(size) + 2 * pad:
        return
    net = RandomNetwork(3, *size, zero_point=77)
    net.conv("input", 4, (kernel, kernel), stride, (pad,) * 4, dilation, density=0.7, bits=8)
    graph, picture = net.graph(), net.picture()
    packed = space_to_depth(graph)
    check_graph(packed)
    assert packed.metadata["space_to_depth"] == 2
    assert np.count_nonzero(packed.nodes[0].weights) == np.count_nonzero(graph.nodes[0].weights)
    before = run(graph, picture)[graph.output]
    after = run(packed, rearrange_picture(picture, 2, 77))[graph.output]
    assert (before == after).all()


def test_resnet_first_layer_becomes_4x4():
    net = RandomNetwork(3, 56, 56)
    net.conv("input", 4, (7, 7), 2, (3, 3, 3, 3))
    node = space_to_depth(net.graph()).nodes[0]
    assert node.weights.shape == (4, 12, 4, 4)
    assert node.pads == (2, 2, 1, 1)
    assert node.stride == 1
