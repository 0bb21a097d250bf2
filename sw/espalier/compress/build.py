"""From a float graph and calibration pictures to the integer graph: prune, refit, quantise, layer by layer.

Layers are compressed in execution order. Each sees the quantised outputs of the compressed layers before it
and aims at the outputs of the float network, so that it also makes up for their errors.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass, field
from typing import Any

import numpy as np
import numpy.typing as npt

from espalier.compress.allocate import LEAST_DENSITY, fit_densities, weight_scores
from espalier.compress.calibrate import (
    GramAccumulator,
    LayerStatistics,
    RangeOptions,
    choose_range,
    compact,
    quantise_maps,
    real_maps,
    sample,
    stack_pictures,
)
from espalier.compress.execute import Stored, float_conv, float_pool
from espalier.compress.parameters import (
    LayerWeights,
    Parameters,
    dense_macs,
    integer_graph,
    make_conv,
    make_pool,
)
from espalier.compress.patterns import Mask, parse_pattern
from espalier.compress.prune import admm_mask, magnitude_mask
from espalier.compress.quantise import grid_of, quantise_weights, round_plainly
from espalier.compress.refit import masked_least_squares, squared_error
from espalier.errors import InternalError, UserError
from espalier.ir.float_graph import FloatConv, FloatGraph, FloatPool
from espalier.ir.graph import IntegerGraph, Tensor
from espalier.numerics.convolution import prepare_conv
from espalier.numerics.pooling import pool_maps

_SCORE_PICTURES = 8  # pictures that the choice of densities looks at


@dataclass(frozen=True)
class CompressOptions:
    """How to compress; the defaults fit ResNet-18-sized networks into the `zcu104` preset.

    bits: weight bits of layers that `layer_bits` does not name.
    densities: share of weights kept, by layer; layers not named get theirs from the budgets.
    density: share kept in every layer that `densities` does not name, instead of the budgets.
    mac_fraction, max_operators: the budgets, see `allocate.fit_densities`.
    first_layer_density: share of weights that the first layer keeps (pictures are too smooth for scores of
        single weights to say how many it needs); only the most, if it would take over half of a budget.
    prune_method: "admm" or "magnitude".
    pattern: where non-zeros may lie, see `patterns.parse_pattern`. One that says how many there are (row:K,
        N:M) replaces the budgets for layers that `densities` does not name.
    rounding: "feedback" (least-squares refit, error feedback, coordinate descent, bias correction) or "plain"
        (the float weights to the nearest levels, nothing made up for; to measure the first against).
    positions: pixels per picture in the Gram matrices.
    shrink: raise the damping of a layer to what the spread of the pictures calls for.
    damping: pull towards the original weights, relative to the mean diagonal of the Gram matrix.
    chunk: pictures processed at once.
    """

    bits: int = 4
    layer_bits: Mapping[str, int] = field(default_factory=dict)
    densities: Mapping[str, float] = field(default_factory=dict)
    density: float | None = None
    mac_fraction: float = 0.198
    max_operators: int = 1_450_000
    first_layer_density: float = 0.5
    prune_method: str = "admm"
    pattern: str = "none"
    rounding: str = "feedback"
    ranges: RangeOptions = field(default_factory=RangeOptions)
    positions: int = 400
    damping: float = 0.01
    shrink: bool = True
    sweeps: int = 3
    chunk: int = 8
    seed: int = 0


@dataclass(frozen=True)
class LayerReport:
    """What became of a layer.

    density: share of weights kept; pruning_error, error: relative squared error of the outputs, before and
    after quantisation.
    """

    name: str
    bits: int
    density: float
    non_zeros: int
    pruning_error: float
    error: float


Progress = Callable[[str, int, int, LayerReport | None], None]


def compress(
    graph: FloatGraph,
    pictures: Iterable[npt.NDArray[Any]],
    options: CompressOptions | None = None,
    progress: Progress | None = None,
) -> IntegerGraph:
    """Compress a network.

    Args:
        graph: the float network.
        pictures: float32[C, height, width] each, preprocessed as in use.
        options: what to aim for.
        progress: called as progress(node name, nodes done, nodes in all, report of a convolution or None).

    Raises:
        UserError: weights or pictures that are not finite, wrong shapes, unknown options, budgets too small.

    """
    parameters = compress_parameters(graph, pictures, options, progress)
    return integer_graph(graph, parameters)


def compress_parameters(
    graph: FloatGraph,
    pictures: Iterable[npt.NDArray[Any]],
    options: CompressOptions | None = None,
    progress: Progress | None = None,
) -> Parameters:
    """As `compress`, but return the scales and weights of which `integer_graph` makes the integer graph."""
    options = options or CompressOptions()
    _check(graph, options)
    stack = stack_pictures(pictures, graph.shapes[graph.input])
    densities = plan_densities(graph, stack, options)
    return _Compressor(graph, stack, densities, options).run(progress)


def plan_densities(graph: FloatGraph, stack: npt.NDArray[Any], options: CompressOptions) -> dict[str, float]:
    """Density of every convolution: the user's where given, the rest from the budgets."""
    convs = [node for node in graph.nodes if isinstance(node, FloatConv)]
    given = _given_densities(convs, options)
    if all(node.name in given for node in convs):
        return {node.name: given[node.name] for node in convs}
    scores = weight_scores(graph, stack[:, :_SCORE_PICTURES].transpose(1, 0, 2, 3))
    return budget_densities(graph, scores, options)


def _given_densities(convs: list[FloatConv], options: CompressOptions) -> dict[str, float]:
    """Densities that options or pattern say without looking at the weights."""
    pattern = parse_pattern(options.pattern)
    found = {}
    for node in convs:
        density = pattern.density(node.weights[0].size)
        density = options.density if density is None else density
        if density is not None:
            found[node.name] = density
    return {**found, **options.densities}


def budget_densities(
    graph: FloatGraph, scores: Mapping[str, npt.NDArray[np.float64]], options: CompressOptions
) -> dict[str, float]:
    """As `plan_densities`, from the weights' scores (see `allocate.weight_scores`) or a sample of them.

    Raises:
        CapacityError: the budgets are too small for the network.

    """
    convs = [node for node in graph.nodes if isinstance(node, FloatConv)]
    given = dict(options.densities)
    bounds = {name: (density, density) for name, density in given.items()}
    bits = {node.name: options.layer_bits.get(node.name, options.bits) for node in convs}
    bounds.setdefault(convs[0].name, _first_layer_bounds(graph, convs, options))
    fitted = fit_densities(graph, scores, bits, options.mac_fraction, options.max_operators, bounds)
    return {**fitted, **given}


def _first_layer_bounds(
    graph: FloatGraph, convs: list[FloatConv], options: CompressOptions
) -> tuple[float, float]:
    """Return the wanted density, or a range up to it in small networks, where it would starve the others."""
    first, wanted = convs[0], options.first_layer_density
    macs = wanted * dense_macs(graph, first)
    operators = wanted * first.weights.size
    budget = options.mac_fraction * sum(dense_macs(graph, node) for node in convs)
    affordable = macs <= budget / 2 and operators <= options.max_operators / 2
    return (wanted if affordable else min(wanted, LEAST_DENSITY)), wanted


def _check(graph: FloatGraph, options: CompressOptions) -> None:
    names = {node.name for node in graph.nodes if isinstance(node, FloatConv)}
    if not names:
        raise UserError(f"network '{graph.name}' has no convolution: nothing to compress")
    unknown = sorted((set(options.densities) | set(options.layer_bits)) - names)
    if unknown:
        raise UserError(f"options name layers that the network does not have: {', '.join(unknown)}")
    for name, density in options.densities.items():
        if not 0 < density <= 1:
            raise UserError(f"density of layer '{name}' is {density}: must be above 0 and at most 1")
    for name, share in (
        ("density", 1.0 if options.density is None else options.density),
        ("share of the multiply-accumulates", options.mac_fraction),
        ("density of the first layer", options.first_layer_density),
    ):
        if not 0 < share <= 1:
            raise UserError(f"{name} is {share}: must be above 0 and at most 1")
    if options.max_operators < 1 or options.seed < 0:
        raise UserError(
            f"{options.max_operators} operators, seed {options.seed}: must be at least 1 operator, seed 0"
        )
    for bits in (options.bits, *options.layer_bits.values()):
        grid_of(bits)
    if options.damping <= 0 or options.positions < 1 or options.chunk < 1:
        raise UserError("damping must be above 0, positions and chunk at least 1")
    if options.prune_method not in ("admm", "magnitude"):
        raise UserError(f"pruning method '{options.prune_method}': choose admm or magnitude")
    parse_pattern(options.pattern)
    if options.rounding not in ("feedback", "plain"):
        raise UserError(f"rounding '{options.rounding}': choose feedback or plain")
    for node in graph.nodes:
        if isinstance(node, FloatConv) and not (
            np.isfinite(node.weights).all() and np.isfinite(node.bias).all()
        ):
            raise UserError(f"layer '{node.name}' holds weights that are not finite numbers: export it again")


class _Compressor:
    """Walks the graph with all activations that are still needed, float and quantised."""

    def __init__(
        self,
        graph: FloatGraph,
        stack: npt.NDArray[np.floating[Any]],
        densities: dict[str, float],
        options: CompressOptions,
    ) -> None:
        self.graph, self.options, self.densities = graph, options, densities
        self.generator = np.random.default_rng(options.seed)
        self.count = stack.shape[1]
        self.real: dict[str, npt.NDArray[np.floating[Any]]] = {graph.input: stack}
        self.stored: dict[str, Stored] = {}
        self.parameters = Parameters()
        tensor = self._range(graph.input, non_negative=False)
        self.stored[graph.input] = quantise_maps(stack, tensor)

    def run(self, progress: Progress | None) -> Parameters:
        for index, node in enumerate(self.graph.nodes):
            report = None
            if isinstance(node, FloatConv):
                report = self._conv(node)
            else:
                self._pool(node)
            self._release(index)
            if progress is not None:
                progress(node.name, index + 1, len(self.graph.nodes), report)
        return self.parameters

    def _range(self, name: str, non_negative: bool) -> Tensor:
        values = sample(self.real[name], self.generator)
        tensor = choose_range(name, self.graph.shapes[name], values, non_negative, self.options.ranges)
        self.parameters.tensors[name] = tensor
        return tensor

    def _chunks(self) -> list[slice]:
        size, step = self.count, self.options.chunk
        return [slice(start, min(start + step, size)) for start in range(0, size, step)]

    def _release(self, done: int) -> None:
        needed = {self.graph.output}
        for node in self.graph.nodes[done + 1 :]:
            needed.add(node.input)
            if isinstance(node, FloatConv) and node.residual is not None:
                needed.add(node.residual)
        for store in (self.real, self.stored):
            for name in [name for name in store if name not in needed]:
                del store[name]

    def _pool(self, node: FloatPool) -> None:
        tensors = self.parameters.tensors
        self.real[node.output] = np.concatenate(
            [
                compact(float_pool(node, self.real[node.input][:, chunk].astype(np.float32)))
                for chunk in self._chunks()
            ],
            axis=1,
        )
        if node.kind == "max":
            if node.relu:
                raise InternalError(f"pooling '{node.name}': its activation belongs to the node before it")
            source = tensors[node.input]
            shape = self.graph.shapes[node.output]
            tensors[node.output] = Tensor(node.output, *shape, source.scale, source.zero_point)
        else:
            self._range(node.output, node.relu or float(self.real[node.output].min()) >= 0)
        pool = make_pool(node, self.parameters)
        zeros = tensors[node.input].zero_point, tensors[node.output].zero_point
        self.stored[node.output] = np.concatenate(
            [pool_maps(pool, self.stored[node.input][:, chunk], *zeros) for chunk in self._chunks()], axis=1
        )

    def _conv(self, node: FloatConv) -> LayerReport:
        statistics = self._statistics(node)
        self._range(node.output, node.relu)
        bits = self.options.layer_bits.get(node.name, self.options.bits)
        layer, report = compress_layer(node, statistics, self.densities[node.name], bits, self.options)
        self.parameters.layers[node.name] = layer
        tensors = self.parameters.tensors
        zeros = [tensors[name].zero_point for name in (node.input, node.output, node.residual) if name]
        conv = prepare_conv(make_conv(node, layer, self.parameters, dense_macs(self.graph, node)), *zeros)
        outputs = []
        for chunk in self._chunks():
            residual = self.stored[node.residual][:, chunk] if node.residual else None
            outputs.append(conv(self.stored[node.input][:, chunk], residual))
        self.stored[node.output] = np.concatenate(outputs, axis=1)
        return report

    def _statistics(self, node: FloatConv) -> LayerStatistics:
        """Run the float layer on all pictures, gathering what it should have put out."""
        gathered = GramAccumulator(node, self.options.positions, self.generator)
        tensors = self.parameters.tensors
        outputs = []
        for chunk in self._chunks():
            residual = self.real[node.residual][:, chunk].astype(np.float32) if node.residual else None
            output = float_conv(node, self.real[node.input][:, chunk].astype(np.float32), residual)
            wanted = output
            if node.residual is not None:
                wanted = output - real_maps(self.stored[node.residual][:, chunk], tensors[node.residual])
            gathered.add(self.stored[node.input][:, chunk], tensors[node.input], wanted)
            if not np.isfinite(output).all():
                raise UserError(
                    f"layer '{node.name}' puts out values that are not finite numbers: the float network"
                    " overflows on the calibration pictures; check their scaling"
                )
            outputs.append(compact(np.maximum(output, 0) if node.relu else output))
        self.real[node.output] = np.concatenate(outputs, axis=1)
        return gathered.finish(self.options.damping, self.options.shrink)


def compress_layer(
    node: FloatConv, statistics: LayerStatistics, density: float, bits: int, options: CompressOptions
) -> tuple[LayerWeights, LayerReport]:
    """Prune, refit and quantise one layer from its statistics; the bias takes up the change of the mean.

    With plain rounding neither weights nor bias make up for anything.
    """
    gram, cross = statistics.gram, statistics.cross
    keep = max(1, int(density * node.weights.size))
    pattern = parse_pattern(options.pattern)
    if density >= 1:
        mask: Mask = np.ones(cross.shape, dtype=bool)
    elif options.prune_method == "admm":
        mask = admm_mask(gram, cross, keep, pattern=pattern)
    else:
        mask = magnitude_mask(node.weights.reshape(cross.shape), gram, keep, pattern)
    if options.rounding == "plain":
        weights = node.weights.reshape(cross.shape).astype(np.float64) * mask
        levels, steps = round_plainly(weights, mask, bits)
        bias = node.bias.astype(np.float64)
    else:
        weights = masked_least_squares(gram, cross, mask)
        levels, steps = quantise_weights(weights, gram, cross, mask, bits, options.sweeps)
        bias = statistics.output_mean - (levels * steps[:, None]) @ statistics.input_mean
    pruning_error = squared_error(gram, cross, weights, statistics.energy)
    real = levels * steps[:, None]
    layer = LayerWeights(levels.reshape(node.weights.shape), steps, bias, bits)
    non_zeros = int(np.count_nonzero(levels))
    error = squared_error(gram, cross, real, statistics.energy)
    return layer, LayerReport(node.name, bits, non_zeros / levels.size, non_zeros, pruning_error, error)
