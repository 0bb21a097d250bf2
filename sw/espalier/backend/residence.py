"""Which layers' streams are resident and which come from DDR: the choice that costs the fewest cycles.

A rough timeline decides: layers compute one after the other, batches are loaded one after the other, a
layer waits for its batches, and a batch for the room that layers leave.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from espalier.arch.config import HardwareConfig
from espalier.arch.feature_layout import tile_counts
from espalier.arch.operators import STREAM_WORD_BITS
from espalier.arch.program import MOST_BATCHES_AHEAD
from espalier.backend.chain import cut_points
from espalier.backend.plan import RESIDENT, IntArray, Layer, Residence
from espalier.ir.graph import IntegerGraph

# A layer that is read once comes in batches of so much of the room that there is.
_SHARE = 4
_SMALLEST_BATCH = 24  # words
_SECTION_CYCLES, _BATCH_CYCLES = 6, 30  # of loading, besides words and the latency of the memory
_FIXED_WORDS = 2  # of a chain: its first and its last header


@dataclass(frozen=True)
class _Streams:
    """A layer's streams, by PE. words: of the loop with its header, int64[PEs]. tiles: int64[PEs].

    A PE without tiles rests. ends: operators up to the end of every block. cycles: of the layer. pool: it
    has no streams, and works beside other layers.
    """

    words: IntArray
    tiles: IntArray
    ends: list[IntArray]
    cycles: int
    pool: bool

    def parts(self, batches: int) -> IntArray:
        """Words of each PE in each batch, headers included: int64[PEs, batches]."""
        if batches == 1:
            return self.words[:, None]
        sizes = np.ones((len(self.words), batches), np.int64)
        for pe in np.flatnonzero(self.tiles):
            sizes[pe] += np.diff(cut_points(self.ends[pe], int(self.tiles[pe]), batches))
        return sizes

    @property
    def blocks(self) -> int:
        """Blocks of all tiles, in the PE that has fewest: as many batches at most."""
        return min(int(t) * len(e) for t, e in zip(self.tiles, self.ends, strict=True) if t)


def input_cycles(graph: IntegerGraph, config: HardwareConfig) -> int:
    """Cycles that the loading of the network's input takes at least."""
    source = graph.tensors[graph.input]
    tiles_y, tiles_x = tile_counts(source.height, source.width, config.tile_size)
    return tiles_y * tiles_x * source.channels * config.word_beats * config.ddr.beat_cycles


def choose_residences(layers: list[Layer], config: HardwareConfig, begin: int) -> tuple[float, float] | None:
    """Set `residence` of all convolutions, which have mappings and places.

    begin: before that cycle no batch is loaded. Returns the cycles, and those of loading; None: a block of
    some layer is too much for a memory.
    """
    planner = _Planner([_streams(layer, config) for layer in layers], config, begin)
    chosen = planner.choose()
    if chosen is None:
        return None
    for layer, residence in zip(layers, chosen, strict=True):
        layer.residence = residence or RESIDENT
    resident = {n for n, own in enumerate(chosen) if own is not None and not own.batches}
    return planner.timeline(chosen, planner.room(resident))


def _streams(layer: Layer, config: HardwareConfig) -> _Streams:
    if layer.mapping is None:
        none = np.zeros(config.pes, np.int64)
        return _Streams(none, none, [none] * config.pes, 0, pool=True)
    assert layer.pes is not None, "placed convolutions only"
    words, tiles = np.ones(config.pes, np.int64), np.zeros(config.pes, np.int64)
    ends = [np.zeros(0, np.int64)] * config.pes
    for group in layer.mapping.groups:
        for member, branch in enumerate(group.branches):
            for number in range(config.branch_pes(branch)):
                pe, own = config.first_pe(branch) + number, int(layer.pes[branch, number])
                words[pe], tiles[pe] = group.plan.stream_words[member, own], group.tiles
                ends[pe] = group.plan.block_ends(member, own)
    return _Streams(words, tiles, ends, layer.mapping.cycles, pool=False)


class _Planner:
    def __init__(self, layers: list[_Streams], config: HardwareConfig, begin: int) -> None:
        self.layers, self.config, self.begin = layers, config, begin
        self._known: dict[tuple[int, int], int] = {}
        self._sizes: dict[tuple[int, int], list[tuple[int, float]]] = {}

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
            elif batches := self._batches(index, room):
                chosen.append(Residence(batches))
            else:
                return (np.inf, np.inf), None
        return self.timeline(chosen, room), chosen

    def _batches(self, index: int, room: int) -> int:
        """In how many batches a layer is streamed: one, if it is walked often and fits; 0: it cannot be."""
        if (index, room) not in self._known:
            layer = self.layers[index]
            largest = int(layer.words.max())
            if layer.tiles.max() > 1 and largest <= room:
                batches = 1
            else:
                size = max(_SMALLEST_BATCH, room // _SHARE)
                total = int(((layer.words - 1) * layer.tiles).max())
                batches = min(-(-total // (size - 1)), layer.blocks)
                while layer.parts(batches).max() > room:
                    if batches == layer.blocks:
                        batches = 0
                        break
                    batches = min(batches + -(-batches // 4), layer.blocks)
            self._known[index, room] = batches
        return self._known[index, room]

    def timeline(self, chosen: list[Residence | None], room: int) -> tuple[float, float]:
        """Play layers and batches against each other; cycles, and those of loading."""
        now = loaded = float(self.begin)
        loading = 0.0
        ends: list[float] = []  # when batches are left
        places: list[tuple[int, int]] = []
        for layer, own in zip(self.layers, chosen, strict=True):
            if own is None or not own.batches:
                now += layer.cycles
                continue
            for size, cycles in self._loads(layer, own.batches):
                start = places[-1][1] if places else 0
                start = 0 if start + size > room else start
                over = [n for n, (a, b) in enumerate(places) if a < start + size and start < b]
                left = max(over[-1] + 1 if over else 0, len(places) - MOST_BATCHES_AHEAD)
                loaded = max(loaded, ends[left - 1] if left else 0.0) + cycles
                loading += cycles
                now = max(now, loaded) + layer.cycles / own.batches
                ends.append(now)
                places.append((start, start + size))
        return now, loading

    def _loads(self, layer: _Streams, batches: int) -> list[tuple[int, float]]:
        """Words of the fullest PE and cycles of loading of every batch of a layer."""
        key = id(layer), batches
        if key not in self._sizes:
            sizes = layer.parts(batches)
            self._sizes[key] = [(int(own.max()), self._load_cycles(own)) for own in sizes.T]
        return self._sizes[key]

    def _load_cycles(self, words: IntArray) -> float:
        """Cycles that a batch takes: a word each, or what the memory needs for its beats."""
        ddr = self.config.ddr
        beats = float(words.sum()) * STREAM_WORD_BITS / self.config.axi_data_bits * ddr.beat_cycles
        return (
            max(float(words.sum()), beats) + _SECTION_CYCLES * len(words) + _BATCH_CYCLES + ddr.latency_high
        )
