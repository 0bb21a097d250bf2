"""Random tensors in the feature memory, requests for them, and a bench that keeps all answers."""

from __future__ import annotations

import dataclasses

import numpy as np
from stalling import generator, send

from espalier.arch.config import load_config
from espalier.arch.feature_layout import tensor_pitch, tensor_words
from espalier_hw.feature_system import FeatureSystem
from espalier_hw.window_reader import window_model

TINY = load_config("tiny")


def small(tile_size, branches=2, depth=256, uram_banks=2, rest=8192, rings=0):
    return dataclasses.replace(
        TINY,
        tile_size=tile_size,
        branches=branches,
        lut_branches=0,
        lut_pes=0,
        feature_depth_words=depth,
        feature_depth_rest_words=rest,
        dsp_pairs=0,
        uram_banks=uram_banks,
        feature_rings=rings,
    )


class Tensor:
    """A random tensor and where it lies; ring: code of its ring, which must hold all of it."""

    def __init__(self, rng, size, base, tiles_y, tiles_x, channels, ring=0):
        self.words = np.frombuffer(rng.randbytes(tiles_y * tiles_x * channels * size**2), np.uint8).reshape(
            tiles_y, tiles_x, channels, size**2
        )
        self.base, self.pitch, self.channels = base, tensor_pitch(tiles_x), channels
        self.tiles_y, self.tiles_x, self.ring = tiles_y, tiles_x, ring
        self.end = base + tensor_words(tiles_y, tiles_x, channels)

    def address(self, tile_y, tile_x, channel):
        return {
            "base": self.base,
            "pitch": self.pitch,
            "ring": self.ring,
            "channels": self.channels,
            "tile_y": tile_y,
            "tile_x": tile_x,
            "channel": channel,
        }

    def value(self, place):
        return int.from_bytes(self.words[place].tobytes(), "little")

    def write(self, *place, data=None, marks=None):
        data = self.value(place) if data is None else data
        return {"address": self.address(*place), "data": data, "marks": marks or {}}

    def random_tile(self, rng):
        return rng.randrange(self.tiles_y), rng.randrange(self.tiles_x), rng.randrange(self.channels)

    def all_tiles(self):
        return [tuple(int(i) for i in place) for place in np.ndindex(*self.words.shape[:3])]


def offsets(size):
    """All pairs of stride and row offset that a pattern may have."""
    first = [(1, offset) for offset in range(-(size // 2), size - size // 2)]
    return first + [(2, offset) for offset in range(2 - size, 2)]


def window_request(tensor, rng, stride, offset, mask):
    far = rng.random() < 0.2
    tile_y = rng.randint(-12, tensor.tiles_y + 12) if far else rng.randint(-2, tensor.tiles_y + 1)
    tile_x = rng.randint(-12, tensor.tiles_x + 12) if far else rng.randint(-2, tensor.tiles_x + 1)
    return {
        "group_mask": mask,
        "centre": tensor.address(tile_y, tile_x, rng.randrange(tensor.channels)),
        "tiles_y": tensor.tiles_y,
        "tiles_x": tensor.tiles_x,
        "pad": rng.randrange(256),
        "row_offset": offset,
        "stride": stride,
    }


def pixels(config, value):
    """A window as uint8[T+3, 3T-2]."""
    shape = config.word_rows, config.window_columns
    return np.frombuffer(value.to_bytes(shape[0] * shape[1], "little"), np.uint8).reshape(shape)


def check_window(config, tensor, request, value):
    centre = request["centre"]
    place = centre["tile_y"], centre["tile_x"], centre["channel"]
    expected, defined = window_model(
        tensor.words, place, request["row_offset"], request["stride"], request["pad"]
    )
    assert (pixels(config, value)[defined] == expected[defined]).all(), request


class Bench:
    """A feature system with requesters that stall at random, and a monitor that keeps all answers."""

    def __init__(self, config, seed, stall):
        self.config, self.rng, self.stall = config, generator(seed), stall
        self.dut = FeatureSystem(config)
        self.windows = [[] for _ in self.dut.window_valid]
        # Residual tiles per branch, then the tiles to store.
        self.tiles = [[] for _ in range(config.branches + 1)]
        self.trace, self.written = [], [[] for _ in self.dut.write]
        self.window_cycles, self.cycle = [], 0

    @property
    def tile_requests(self):
        return [*self.dut.residual_request, self.dut.store_request]

    async def offer(self, ctx, stream, payloads):
        await send(ctx, stream, payloads, self.rng, self.stall)

    async def fill(self, ctx, tensor, writer=-1):
        await self.offer(ctx, self.dut.write[writer], [tensor.write(*tile) for tile in tensor.all_tiles()])
        await self.settle(ctx)

    async def settle(self, ctx):
        while not ctx.get(self.dut.idle):
            await ctx.tick()

    def answers(self):
        return sum(map(len, [*self.windows, *self.tiles]))

    async def monitor(self, ctx):
        dut = self.dut
        valids = [*dut.window_valid, *dut.residual_valid, dut.store_valid]
        while True:
            _, _, *flags, window, tile, written, trace0, trace1, word0, word1 = await ctx.tick().sample(
                *valids, dut.window_data, dut.tile_data, dut.written, *dut.trace, *dut.written_word
            )
            self.cycle += 1
            for index, answers in enumerate(self.windows):
                if flags[index]:
                    answers.append(window)
                    self.window_cycles.append(self.cycle)
            for index, answers in enumerate(self.tiles, len(self.windows)):
                if flags[index]:
                    answers.append(tile)
            branches = self.config.branches
            shares = written & ((1 << branches) - 1), written >> branches << branches
            for own, trace, word in zip(shares, (trace0, trace1), (word0, word1), strict=True):
                assert (own != 0) == trace.valid
                if not own:
                    continue
                self.trace.append((trace.bank, trace.address, trace.data))
                writer = own.bit_length() - 1
                assert own == 1 << writer
                place = word.tile_y, word.tile_x, word.channel
                marks = {name: int(word.marks[name]) for name in ("layer", "ordered", "final_tile", "last")}
                assert trace.layer == marks["layer"]
                self.written[writer].append((place, marks, trace.data))
            assert not trace0.valid or not trace1.valid or trace0.bank != trace1.bank
