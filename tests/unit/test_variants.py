"""Networks for timing: shapes, densities, and that equal seeds give equal networks."""

from __future__ import annotations

import numpy as np
import pytest

from espalier.ir.check import check_graph
from espalier.ir.graph import Conv
from espalier_sim import density_search, variants


def convolutions(graph):
    return [node for node in graph.nodes if isinstance(node, Conv)]


@pytest.mark.parametrize(
    ("graph", "convs", "weights"),
    [
        (variants.resnet(density=0.1), 21, 11_678_912),
        (variants.vgg(density=0.1), 14, 14_710_464 + 512_000),
    ],
)
def test_shapes_have_the_weights_of_the_originals(graph, convs, weights):
    check_graph(graph)
    found = convolutions(graph)
    assert len(found) == convs
    assert sum(conv.weights.size for conv in found) == weights
    kept = sum(int(np.count_nonzero(conv.weights)) for conv in found)
    assert kept == pytest.approx(0.1 * weights, rel=0.02)


def test_resnet_of_other_depth_and_width():
    graph = variants.resnet((1, 2), 8, 40, 0.5, first=1.0, classes=7)
    check_graph(graph)
    found = convolutions(graph)
    assert [len(conv.weights) for conv in found] == [8, 8, 8, 16, 16, 16, 16, 16, 7]
    assert sum(conv.residual is not None for conv in found) == 3
    assert np.count_nonzero(found[0].weights) == found[0].weights.size


def test_masks_have_the_density_asked_for_and_keep_the_padding():
    graph = variants.resnet((1,), 8, 32, 1.0, classes=4)
    first = convolutions(graph)[0]
    first.weights[:, 1, 2, :] = 0  # no filter has a weight there
    masked = variants.masked(graph, variants.first_and_rest(0.5, 0.1))
    shares = [np.count_nonzero(conv.weights) / conv.weights.size for conv in convolutions(masked)]
    assert shares[0] == pytest.approx(0.5 * np.count_nonzero(first.weights) / first.weights.size, abs=0.01)
    assert shares[1:] == pytest.approx([0.1] * (len(shares) - 1), abs=0.03)
    assert not convolutions(masked)[0].weights[:, 1, 2, :].any()
    again = variants.masked(graph, variants.first_and_rest(0.5, 0.1))
    for one, other in zip(convolutions(masked), convolutions(again), strict=True):
        np.testing.assert_array_equal(one.weights, other.weights)


def test_distributed_densities_keep_the_share_of_the_macs():
    graph = variants.resnet((1, 1), 8, 40, 1.0, classes=5)
    names = [node.name for node in convolutions(graph)[1:]]
    shares = {name: 1.0 + number for number, name in enumerate(names)}
    masked = variants.redistributed(graph, 0.5, 0.1, shares)

    def macs(conv):
        output = graph.tensors[conv.output]
        return output.height * output.width * np.array([np.count_nonzero(conv.weights), conv.weights.size])

    kept, dense = sum(macs(conv) for conv in convolutions(masked)[1:])
    assert kept / dense == pytest.approx(0.1, rel=0.05)
    first, *rest = convolutions(masked)
    assert np.count_nonzero(first.weights) == pytest.approx(0.5 * first.weights.size, rel=0.01)
    densities = [np.count_nonzero(conv.weights) / conv.weights.size for conv in rest]
    assert densities[-2] > 2 * densities[0]
    for conv in convolutions(masked):
        counts = np.count_nonzero(conv.weights, axis=(1, 2, 3))
        assert counts.max() - counts.min() <= 1


def test_search_keeps_only_what_is_faster():
    start = {"a": 1.0, "b": 1.0}
    said = []
    found = density_search.search(
        lambda own: abs(np.log(own["a"] / 2)) + abs(np.log(own["b"])), start, 0.2, 1, said.append
    )
    assert found["a"] == pytest.approx(2, rel=0.1) and found["b"] == pytest.approx(1, rel=0.1)
    assert said and start == {"a": 1.0, "b": 1.0}
