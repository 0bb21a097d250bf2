"""Which layers' streams are resident and which come from DDR: the choice that costs the fewest cycles.

A rough timeline decides: layers compute one after the other, batches are loaded one after the other, a
layer waits for its batches, and a batch for the room that layers leave.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

import numpy as np

from espalier.arch.config import HardwareConfig
from espalier.arch.feature_layout import tile_counts
from espalier.arch.operators import STREAM_WORD_BITS
from espalier.arch.program import MOST_BATCHES_AHEAD
from espalier.backend.chain import strip_cuts
from espalier.backend.plan import RESIDENT, Group, IntArray, Layer, Residence
from espalier.ir.graph import IntegerGraph

# A layer that is read once comes in batches of so much of the room that there is.
_SHARE = 4
_SMALLEST_BATCH = 24  # words
_SECTION_CYCLES, _BATCH_CYCLES = 6, 30  # of loading, besides words and the latency of the memory
_FIXED_WORDS = 2  # of a chain: its first and its last header


@dataclass(frozen=True)
class LayerCost:
    """Cycles of a layer, and how many of them it needs the read port for its feature maps."""

    cycles: float
    loading: float = 0.0


# Cycles of a layer, and tiles of one of its groups in every strip.
CostOf = Callable[[Layer], LayerCost]
StripsOf = Callable[[Layer, Group], list[int]]


def whole_cost(layer: Layer) -> LayerCost:
    """Return what a layer takes whose tensors are all on the chip."""
    return LayerCost(float(layer.mapping.cycles) if layer.mapping is not None else 0.0)


def whole_strip(layer: Layer, group: Group) -> list[int]:
    """Tiles of a layer that is not cut into strips."""
    return [group.tiles]


@dataclass(frozen=True)
class _Streams:
    """A layer's streams, by PE. words: of the loop with its header, int64[PEs].

    strips: tiles in every strip, int64[PEs, strips]; a PE without any rests. ends: operators up to the end of
    every block. work: what the layer takes. pool: it has no streams, and works beside other layers.
    """

    words: IntArray
    strips: IntArray
    ends: list[IntArray]
    work: LayerCost
    pool: bool

    def parts(self, own: Residence) -> IntArray:
        """Words of each PE in each batch, headers included: int64[PEs, batches]."""
        if own.batches == 1:
            return self.words[:, None]
        sizes = np.ones((len(self.words), own.batches), np.int64)
        for pe in np.flatnonzero(self.tiles):
            sizes[pe] += np.diff(strip_cuts(self.ends[pe], self.strips[pe].tolist(), own.of_strips))
        return sizes

    @property
    def tiles(self) -> IntArray:
        """Tiles of all strips: int64[PEs]."""
        total: IntArray = self.strips.sum(axis=1)
        return total

    @property
    def blocks(self) -> IntArray:
        """Blocks of every strip, in the PE that has fewest: as many batches at most. int64[strips]."""
        work = [t * len(e) for t, e in zip(self.strips, self.ends, strict=True) if t.any()]
        fewest: IntArray = np.min(work, axis=0)
        return fewest


def input_cycles(graph: IntegerGraph, config: HardwareConfig) -> int:
    """Cycles that the loading of the network's input takes at least."""
    source = graph.tensors[graph.input]
    tiles_y, tiles_x = tile_counts(source.height, source.width, config.tile_size)
    return tiles_y * tiles_x * source.channels * config.word_beats * config.ddr.beat_cycles


def choose_residences(
    layers: list[Layer],
    config: HardwareConfig,
    begin: int,
    cost: CostOf = whole_cost,
    strips: StripsOf = whole_strip,
) -> tuple[float, float] | None:
    """Set `residence` of all convolutions, which have mappings and places.

    begin: before that cycle no batch is loaded. cost, strips: of layers. Returns the cycles, and those of
    loading; None: a block of some layer is too much for a memory.
    """
    planner = _Planner([_streams(layer, config, cost, strips) for layer in layers], config, begin)
    chosen = planner.choose()
    if chosen is None:
        return None
    for layer, residence in zip(layers, chosen, strict=True):
        layer.residence = residence or RESIDENT
    resident = {n for n, own in enumerate(chosen) if own is not None and not own.batches}
    return planner.timeline(chosen, planner.room(resident))


def _streams(layer: Layer, config: HardwareConfig, cost: CostOf, strips: StripsOf) -> _Streams:
    if layer.mapping is None:
        none = np.zeros(config.pes, np.int64)
        return _Streams(none, none[:, None], [none] * config.pes, cost(layer), pool=True)
    assert layer.pes is not None, "placed convolutions only"
    of_group = [strips(layer, group) for group in layer.mapping.groups]
    words = np.ones(config.pes, np.int64)
    tiles = np.zeros((config.pes, len(of_group[0])), np.int64)
    ends = [np.zeros(0, np.int64)] * config.pes
    for group, own_tiles in zip(layer.mapping.groups, of_group, strict=True):
        if not any(own_tiles):
            continue
        for member, branch in enumerate(group.branches):
            for number in range(config.branch_pes(branch)):
                pe, own = config.first_pe(branch) + number, int(layer.pes[branch, number])
                words[pe], tiles[pe] = group.plan.stream_words[member, own], own_tiles
                ends[pe] = group.plan.block_ends(member, own)
    return _Streams(words, tiles, ends, cost(layer), pool=False)


class _Planner:
    def __init__(self, layers: list[_Streams], config: HardwareConfig, begin: int) -> None:
        self.layers, self.config, self.begin = layers, config, begin
        self._known: dict[tuple[int, int], Residence | None] = {}
        self._sizes: dict[tuple[int, Residence], list[tuple[int, float]]] = {}

    def choose(self) -> list[Residence | None] | None:
        """Make layers resident as long as that saves cycles, or time of the memory; None if nothing fits.

        Of the residences, None is that of a layer without streams.
        """
        resident: set[int] = set()
        best, found = self._judge(resident)
        while True:
            tries = [(*self._judge(resident | {index}), index) for index in self._candidates(resident)]
            least, chosen, index = min(tries, key=lambda own: own[0], default=(best, found, -1))
            if least >= best:
                return found
            best, found = least, chosen
            resident.add(index)

    def _candidates(self, resident: set[int]) -> list[int]:
        """Layers that could be resident too."""
        used = self._used(resident)
        return [
            index
            for index, layer in enumerate(self.layers)
            if not layer.pool
            and index not in resident
            and int((used + layer.words).max()) + _SMALLEST_BATCH < self.config.stream_depth_words
        ]

    def room(self, resident: set[int]) -> int:
        """Words that every PE has for batches."""
        return self.config.stream_depth_words - int(self._used(resident).max())

    def _used(self, resident: set[int]) -> IntArray:
        used = np.full(self.config.pes, _FIXED_WORDS, np.int64)
        for index in resident:
            used += self.layers[index].words
        return used

    def _judge(self, resident: set[int]) -> tuple[tuple[float, float], list[Residence | None] | None]:
        """Cycles and cycles of loading, infinite if something does not fit, and the residences."""
        room = self.room(resident)
        chosen: list[Residence | None] = []
        for index, layer in enumerate(self.layers):
            if layer.pool or index in resident:
                chosen.append(None if layer.pool else RESIDENT)
            elif (own := self._batches(index, room)) is not None:
                chosen.append(own)
            else:
                return (np.inf, np.inf), None
        return self.timeline(chosen, room), chosen

    def _batches(self, index: int, room: int) -> Residence | None:
        """Batches of a streamed layer: one, if it fits and is walked often; None: it cannot be."""
        if (index, room) not in self._known:
            layer = self.layers[index]
            loop = layer.tiles.max() > 1 and int(layer.words.max()) <= room
            self._known[index, room] = Residence(1) if loop else self._parts(layer, room)
        return self._known[index, room]

    def _parts(self, layer: _Streams, room: int) -> Residence | None:
        """Cut a layer that is read once into batches that fit, none of which is of two strips."""
        most = layer.blocks
        if not most.all():
            return None  # a strip leaves a group nothing, and a part would be empty
        size = max(_SMALLEST_BATCH, room // _SHARE)
        total = ((layer.words - 1)[:, None] * layer.strips).max(axis=0)
        counts = np.minimum(np.maximum(-(-total // (size - 1)), 1), most)
        while True:
            own = Residence(int(counts.sum()), tuple(counts.tolist()))
            if layer.parts(own).max() <= room:
                return own
            if (counts == most).all():
                return None
            counts = np.minimum(counts + -(-counts // 4), most)

    def timeline(self, chosen: list[Residence | None], room: int) -> tuple[float, float]:
        """Play layers and batches against each other; cycles, and those of loading."""
        now = loaded = float(self.begin)
        loading = 0.0
        ends: list[float] = []  # when batches are left
        places: list[tuple[int, int]] = []
        for layer, own in zip(self.layers, chosen, strict=True):
            loaded += layer.work.loading
            if own is None or not own.batches:
                now += layer.work.cycles
                continue
            for size, cycles in self._loads(layer, own):
                start = places[-1][1] if places else 0
                start = 0 if start + size > room else start
                over = [n for n, (a, b) in enumerate(places) if a < start + size and start < b]
                left = max(over[-1] + 1 if over else 0, len(places) - MOST_BATCHES_AHEAD)
                loaded = max(loaded, ends[left - 1] if left else 0.0) + cycles
                loading += cycles
                now = max(now, loaded) + layer.work.cycles / own.batches
                ends.append(now)
                places.append((start, start + size))
        return now, loading

    def _loads(self, layer: _Streams, own: Residence) -> list[tuple[int, float]]:
        """Words of the fullest PE and cycles of loading of every batch of a layer."""
        key = id(layer), own
        if key not in self._sizes:
            sizes = layer.parts(own)
            self._sizes[key] = [(int(part.max()), self._load_cycles(part)) for part in sizes.T]
        return self._sizes[key]

    def _load_cycles(self, words: IntArray) -> float:
        """Cycles that a batch takes: a word each, or what the memory needs for its beats."""
        ddr = self.config.ddr
        beats = float(words.sum()) * STREAM_WORD_BITS / self.config.axi_data_bits * ddr.beat_cycles
        return (
            max(float(words.sum()), beats) + _SECTION_CYCLES * len(words) + _BATCH_CYCLES + ddr.latency_high
        )
