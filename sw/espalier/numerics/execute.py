"""Execution of an integer graph, bit for bit as the hardware does it."""

from __future__ import annotations

from collections.abc import Iterator

import numpy as np
import numpy.typing as npt

from espalier.errors import InternalError
from espalier.ir.graph import Conv, IntegerGraph
from espalier.numerics.convolution import PreparedConv, prepare_conv
from espalier.numerics.pooling import pool_maps

Bytes = npt.NDArray[np.uint8]

# Pictures go through the network in groups of about this many input pixels: small pictures share the
# cost of a call, large ones run one at a time and stay in the caches.
GROUP_PIXELS = 1 << 15


class Executor:
    """An integer graph prepared for many pictures; weights are converted once."""

    def __init__(self, graph: IntegerGraph) -> None:
        self.graph = graph
        self._convs: dict[str, PreparedConv] = {}
        self._last_use: dict[str, int] = {}
        for index, node in enumerate(graph.nodes):
            self._last_use[node.input] = index
            if not isinstance(node, Conv):
                continue
            residual_zero = 0
            if node.residual is not None:
                self._last_use[node.residual.tensor] = index
                residual_zero = graph.tensors[node.residual.tensor].zero_point
            self._convs[node.name] = prepare_conv(
                node,
                graph.tensors[node.input].zero_point,
                graph.tensors[node.output].zero_point,
                residual_zero,
            )

    def _walk(self, pictures: Bytes, keep: bool) -> dict[str, Bytes]:
        """Run uint8[N, C, H, W]; all tensors as [C, N, H, W], or the output alone unless `keep`."""
        graph = self.graph
        source = graph.tensors[graph.input]
        expected = (source.channels, source.height, source.width)
        if pictures.ndim != 4 or pictures.shape[1:] != expected or pictures.dtype != np.uint8:
            raise InternalError(
                f"graph {graph.name}: pictures are {pictures.dtype}{list(pictures.shape)},"
                f" expected uint8[N, {source.channels}, {source.height}, {source.width}]"
            )
        values: dict[str, Bytes] = {graph.input: np.ascontiguousarray(pictures.transpose(1, 0, 2, 3))}
        for index, node in enumerate(graph.nodes):
            maps = values[node.input]
            if isinstance(node, Conv):
                residual = None if node.residual is None else values[node.residual.tensor]
                values[node.output] = self._convs[node.name](maps, residual)
            else:
                zeros = graph.tensors[node.input].zero_point, graph.tensors[node.output].zero_point
                values[node.output] = pool_maps(node, maps, *zeros)
            if not keep:
                for name in [n for n in values if self._last_use.get(n, index) <= index and n != node.output]:
                    if name != graph.output:
                        del values[name]
        return values

    def run(self, picture: Bytes) -> dict[str, Bytes]:
        """Compute all tensors of one picture uint8[C, H, W], by name, each uint8[channels, height, width]."""
        return {name: value[:, 0] for name, value in self._walk(picture[None], keep=True).items()}

    def outputs(self, pictures: Bytes) -> Iterator[Bytes]:
        """Yield outputs uint8[n, channels, height, width] of consecutive groups of pictures."""
        source = self.graph.tensors[self.graph.input]
        group = max(1, GROUP_PIXELS // (source.height * source.width))
        for first in range(0, len(pictures), group):
            values = self._walk(pictures[first : first + group], keep=False)
            yield values[self.graph.output].transpose(1, 0, 2, 3)


def run(graph: IntegerGraph, picture: Bytes) -> dict[str, Bytes]:
    """Compute all tensors of one picture uint8[C, H, W], by name (use `Executor` for many pictures)."""
    return Executor(graph).run(picture)


def run_output(graph: IntegerGraph, pictures: Bytes) -> Bytes:
    """Compute outputs uint8[N, channels, height, width] of pictures uint8[N, C, H, W]."""
    target = graph.tensors[graph.output]
    output = np.empty((len(pictures), target.channels, target.height, target.width), np.uint8)
    first = 0
    for part in Executor(graph).outputs(pictures):
        output[first : first + len(part)] = part
        first += len(part)
    return output
