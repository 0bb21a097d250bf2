"""Choice of mappings: memories that are short, tile groups, filters that are not reordered."""

import dataclasses

import numpy as np
import pytest

from espalier.arch.config import load_config
from espalier.backend.compiler import lower_integer_graph
from espalier.backend.deal import Shape, deal_by_load
from espalier.backend.digits import build_parts
from espalier.backend.lower import lower_graph
from espalier.backend.options import CompileOptions
from espalier.backend.select import _improve, _shrink, select_mappings
from espalier.backend.spread import groupings
from espalier.backend.synthetic import RandomNetwork
from espalier.errors import CapacityError

CONFIG = load_config("zcu104")


def layers_of(net, options=None):
    return lower_graph(lower_integer_graph(net.graph(), CONFIG), CONFIG, options or CompileOptions())


def network(seed=3, size=28, channels=32):
    net = RandomNetwork(seed, size, size)
    net.conv(net.conv("input", channels), channels)
    return net


def cheapest(layer_of, uses, cycles, budget):
    """Try all choices."""
    options = [np.flatnonzero(layer_of == layer) for layer in range(layer_of.max() + 1)]
    choices = np.stack(np.meshgrid(*options), axis=-1).reshape(-1, len(options))
    fits = (uses[choices].sum(axis=1) <= budget).all(axis=1)
    return cycles[choices[fits]].sum(axis=1).min() if fits.any() else None


@pytest.mark.parametrize("seed", range(20))
def test_choice_within_two_memories_is_near_the_best(seed):
    random = np.random.default_rng(seed)
    layer_of = np.repeat(np.arange(4), 5)
    uses = random.integers(1, 100, (20, 2)).astype(float)
    cycles = 1000 - uses @ random.uniform(0.5, 2, 2) + random.uniform(0, 100, 20)
    budget = np.array([180.0, 180.0])
    chosen = np.array(
        [np.flatnonzero(layer_of == layer)[cycles[layer_of == layer].argmin()] for layer in range(4)]
    )
    best = cheapest(layer_of, uses, cycles, budget)
    if _shrink(layer_of, uses, cycles, chosen, budget):
        _improve(layer_of, uses, cycles, chosen, budget)
        assert (uses[chosen].sum(axis=0) <= budget).all()
        assert (layer_of[chosen] == np.arange(4)).all()
        assert cycles[chosen].sum() <= 1.1 * best


def test_layers_give_way_when_streams_are_short():
    layers = layers_of(network(3, 28, 192))
    select_mappings(layers, CONFIG)
    free = sum(layer.mapping.cycles for layer in layers)
    words = sum(layer.mapping.mean_stream_words for layer in layers)
    short = dataclasses.replace(CONFIG, stream_depth_words=int(words * 0.8))
    select_mappings(layers, short)
    assert sum(layer.mapping.cycles for layer in layers) >= free
    assert sum(layer.mapping.mean_stream_words for layer in layers) <= short.stream_depth_words
    with pytest.raises(CapacityError, match="stream memory of PE"):
        select_mappings(layers, dataclasses.replace(CONFIG, stream_depth_words=64))


def test_without_reordering_operators_do_not_matter():
    """Filters in their own order, tiles to all branches, long blocks, whatever the weights are."""
    first, second = network(), network()
    for node in second.graph().nodes:
        node.weights[:] = np.where(node.weights == 0, 1, 0)
    plain = CompileOptions(reorder=False)
    for own, other in zip(layers_of(first, plain), layers_of(second, plain), strict=True):
        mappings = own.candidates[0], other.candidates[0]
        assert [[g.branches for g in m.groups] for m in mappings] == [[(0,), (1,), (2,), (3,)]] * 2
        assert {m.block_words for m in mappings} == {16}
        deals = [m.groups[0].plan.deal.part_at for m in mappings]
        assert (deals[0] == deals[1]).all()


def test_swaps_leave_pes_of_a_branch_alike():
    graph = network(5, 14, 64).graph()
    layer = layers_of(network(5, 14, 64))[1]
    parts = build_parts(graph.nodes[1], layer.geometry, CONFIG.max_weight_sum)
    shape = Shape((16,), 1, 32)
    deal = deal_by_load(parts, parts.block_counts(16), shape)
    counts = np.append(parts.block_counts(16).sum(axis=1), 0)
    loads = counts[deal.part_at].sum(axis=(2, 3))
    assert loads.max() <= 1.03 * loads.mean()


def test_unlike_branches_take_part_or_rest():
    mixed = dataclasses.replace(CONFIG, branches=3, lut_branches=1, lut_pes=4)
    assert groupings(mixed, 64, 64) == [
        ((0, 1, 2),), ((0, 2), (1,)), ((0,), (1,), (2,)), ((0, 1),), ((0,), (1,)),
    ]  # fmt: skip
    alike = dataclasses.replace(mixed, lut_pes=16)
    assert groupings(alike, 64, 64) == [((0, 1, 2),), ((0,), (1,)), ((0,), (1,), (2,))]
