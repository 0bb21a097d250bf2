"""Choice of one mapping per layer: fastest program that fits stream memories and tables."""

from __future__ import annotations

import numpy as np
import numpy.typing as npt

from espalier.arch.config import HardwareConfig
from espalier.backend.plan import RESIDENT, IntArray, Layer, Mapping
from espalier.backend.residence import choose_residences
from espalier.errors import CapacityError

FloatArray = npt.NDArray[np.float64]

_ATTEMPTS = 12
_WORD_PRICES = (0.0, 0.1, 0.3, 1.0, 3.0)  # cycles that the loading of a word may cost


def select_mappings(layers: list[Layer], config: HardwareConfig, begin: int = 0) -> None:
    """Set `mapping`, `pes` and `residence` of every convolution.

    Starts with each layer's fastest mapping; while a memory overflows, the layer changes that loses the
    fewest cycles per word saved. Then layers change where that saves cycles within the memories. If streams
    do not fit, hardware with `streaming` gets some of them from DDR, not before cycle `begin`.

    Raises:
        CapacityError: the smallest mappings do not fit.

    """
    fits = _fit(layers, config)
    if config.streaming:
        fits = _stream(layers, config, begin, fits)
    if not fits:
        _explain(layers, config)


def _fit(layers: list[Layer], config: HardwareConfig) -> bool:
    """Choose mappings whose streams and tables all fit; False if there are none."""
    convs = [layer for layer in layers if layer.candidates]
    depth = np.array([config.stream_depth_words, config.table_depth_words], np.float64)
    budget = depth.copy()
    for _ in range(_ATTEMPTS):
        fitted = _choose(convs, budget)
        _place(layers, config)
        used = np.array(
            [_stream_use(layers, config).max(initial=0), _table_use(layers, config).max(initial=0)]
        )
        if (used <= depth).all():
            return True
        if not fitted:
            return False
        budget -= np.maximum(used - depth, 0) + 1  # the fullest PE holds more than the average
    return False


def _stream(layers: list[Layer], config: HardwareConfig, begin: int, fits: bool) -> bool:
    """Choose mappings whose tables fit, and what is resident; False if there are none.

    Loading a word costs between nothing and a cycle or two, depending on what else there is to wait for.
    fits: what has been chosen fits, and stays if nothing is faster.
    """
    convs = [layer for layer in layers if layer.candidates]
    budget = np.array([np.inf, config.table_depth_words])
    results = []
    if fits:
        if all(layer.mapping is layer.candidates[0] for layer in convs):
            return True
        now = float(begin + sum(layer.mapping.cycles for layer in convs if layer.mapping))
        results.append(((now, 0.0), [(layer.mapping, layer.pes, layer.residence) for layer in layers]))
    for price in _WORD_PRICES:
        if not _choose(convs, budget, price):
            continue
        _place(layers, config)
        cycles = choose_residences(layers, config, begin)
        if cycles is not None:
            results.append((cycles, [(layer.mapping, layer.pes, layer.residence) for layer in layers]))
    if not results:
        _choose(convs, budget)
        _place(layers, config)
        return False
    for layer, found in zip(layers, min(results, key=lambda own: own[0])[1], strict=True):
        layer.mapping, layer.pes, layer.residence = found
    return True


def _choose(convs: list[Layer], budget: FloatArray, word_price: float = 0.0) -> bool:
    """Choose within a budget of words, each word costing so many cycles; False if it cannot be met."""
    for layer in convs:
        layer.mapping = layer.candidates[0]
    moves = [(index, other) for index, layer in enumerate(convs) for other in layer.candidates]
    if not moves:
        return True
    layer_of = np.array([index for index, _ in moves])
    uses = np.array([_mapping_use(other) for _, other in moves])
    cycles = np.array([other.cycles + word_price * other.all_stream_words for _, other in moves])
    starts = [np.flatnonzero(layer_of == index) for index in range(len(convs))]
    chosen = np.array([own[cycles[own].argmin()] if word_price else own[0] for own in starts])
    fitted = _shrink(layer_of, uses, cycles, chosen, budget)
    if fitted:
        _improve(layer_of, uses, cycles, chosen, budget)
    for layer, index in zip(convs, chosen.tolist(), strict=True):
        layer.mapping = moves[index][1]
    return fitted


def _shrink(
    layer_of: IntArray, uses: FloatArray, cycles: FloatArray, chosen: IntArray, budget: FloatArray
) -> bool:
    """Change the layer that loses fewest cycles per word saved until all fit; False if they cannot.

    Of all candidates: layer int64[M], uses float64[M, 2], cycles float64[M]; chosen: int64[layers], changed.
    """
    while True:
        total = uses[chosen].sum(axis=0)
        excess = np.maximum(total - budget, 0)
        if not excess.any():
            return True
        now = chosen[layer_of]
        after = np.maximum(total + uses - uses[now] - budget, 0)
        saved = ((excess - after) / budget).sum(axis=1)
        price = np.where(saved > 1e-9, (cycles - cycles[now]) / np.maximum(saved, 1e-9), np.inf)
        best = int(price.argmin())
        if not np.isfinite(price[best]):
            return False
        chosen[layer_of[best]] = best


def _improve(
    layer_of: IntArray, uses: FloatArray, cycles: FloatArray, chosen: IntArray, budget: FloatArray
) -> None:
    """Change one or two layers at a time as long as that saves cycles and all still fit."""
    other_layer = layer_of[:, None] != layer_of
    while True:
        left = budget - uses[chosen].sum(axis=0)
        more, change = uses - uses[chosen[layer_of]], cycles - cycles[chosen[layer_of]]
        fits = np.logical_and.reduce(
            [own[:, None] + own <= room for own, room in zip(more.T, left, strict=True)]
        )
        # Where one of the two stays what it is, only the other changes.
        gain = np.where(fits & other_layer, change[:, None] + change, 0.0)
        first, second = divmod(int(gain.argmin()), len(cycles))
        if gain[first, second] >= 0:
            return
        chosen[layer_of[[first, second]]] = first, second


def _mapping_use(mapping: Mapping) -> FloatArray:
    return np.array([mapping.mean_stream_words, float(mapping.most_table_entries)])


def _place(layers: list[Layer], config: HardwareConfig) -> None:
    """Give every PE of a plan to a physical one, long streams to the emptiest memories."""
    used = np.zeros((config.branches, config.most_pes), np.int64)
    for layer in layers:
        if layer.mapping is None:
            continue
        layer.pes = np.full((config.branches, config.most_pes), -1, np.int64)
        for group in layer.mapping.groups:
            for member, branch in enumerate(group.branches):
                pes = config.branch_pes(branch)
                emptiest = np.argsort(used[branch, :pes], kind="stable")
                words = group.plan.stream_words[member, :pes]
                layer.pes[branch, emptiest] = np.argsort(-words, kind="stable")
        used += layer_stream_words(layer)


def layer_stream_words(layer: Layer) -> IntArray:
    """Stream words of every physical PE: int64[branches, PEs]; a PE that rests still has a header."""
    assert layer.mapping is not None and layer.pes is not None, "placed convolutions only"
    words = np.ones(layer.pes.shape, np.int64)
    for group in layer.mapping.groups:
        for member, branch in enumerate(group.branches):
            own = layer.pes[branch] >= 0
            words[branch, own] = group.plan.stream_words[member][layer.pes[branch, own]]
    return words


def layer_table_entries(layer: Layer) -> IntArray:
    """Table entries of every physical branch: int64[branches]."""
    assert layer.mapping is not None and layer.pes is not None, "placed convolutions only"
    entries = np.zeros(len(layer.pes), np.int64)
    for group in layer.mapping.groups:
        entries[list(group.branches)] = group.plan.table_entries
    return entries


def _stream_use(layers: list[Layer], config: HardwareConfig) -> IntArray:
    total = np.ones((config.branches, config.most_pes), np.int64)  # the word that ends the stream
    for layer in layers:
        if layer.mapping is not None:
            total += layer_stream_words(layer)
    return total


def _table_use(layers: list[Layer], config: HardwareConfig) -> IntArray:
    total = np.zeros(config.branches, np.int64)
    for layer in layers:
        if layer.mapping is not None:
            total += layer_table_entries(layer)
    return total


def _explain(layers: list[Layer], config: HardwareConfig) -> None:
    convs = [layer for layer in layers if layer.mapping is not None]
    stream, table = _stream_use(layers, config), _table_use(layers, config)
    tables_fit = table.max() <= config.table_depth_words
    if config.streaming and tables_fit:
        raise no_block_fits(config)
    if stream.max() > config.stream_depth_words and not config.streaming:
        branch, pe = np.unravel_index(stream.argmax(), stream.shape)
        name, used, available = (
            f"stream memory of PE {branch}.{pe}",
            int(stream.max()),
            config.stream_depth_words,
        )
        sizes = [int(layer_stream_words(layer)[branch, pe]) for layer in convs]
    else:
        name, used = f"requantisation table of branch {table.argmax()}", int(table.max())
        available = config.table_depth_words
        sizes = [int(layer_table_entries(layer)[table.argmax()]) for layer in convs]
    largest = convs[int(np.argmax(sizes))].node.name
    raise CapacityError(
        f"{name}: the network needs {used} words, the target '{config.name}' has {available}"
        f" ({used - available} too many); the largest layer is {largest} with {max(sizes)} words;"
        " prune more or use fewer weight bits"
    )


def no_block_fits(config: HardwareConfig) -> CapacityError:
    """Make the error that says that stream memories are too small for any batch."""
    return CapacityError(
        f"stream memories: the {config.stream_depth_words} words that the target '{config.name}' has in"
        " each do not hold the operators of a single block of window words; prune more or use fewer"
        " weight bits"
    )


def place_chosen(layers: list[Layer], config: HardwareConfig, begin: int = 0) -> bool:
    """Give every PE of the mappings that were chosen to a physical one; whether streams and tables fit.

    begin: as for `select_mappings`.
    """
    _place(layers, config)
    for layer in layers:
        layer.residence = RESIDENT
    streams, tables = _stream_use(layers, config), _table_use(layers, config)
    if tables.max(initial=0) > config.table_depth_words:
        return False
    if streams.max(initial=0) <= config.stream_depth_words:
        return True
    return config.streaming and choose_residences(layers, config, begin) is not None
