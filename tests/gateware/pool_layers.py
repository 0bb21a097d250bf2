"""Pooling layers for tests of the pool unit, and a feature memory that answers it."""

from __future__ import annotations

import dataclasses

import numpy as np
from layers import pattern_words, to_bytes, to_integer, walk_tiles, write_memory

from espalier.arch.feature_layout import tensor_pitch
from espalier.arch.fields import pack
from espalier.arch.program import BRANCH_FIELDS, COMMON_FIELDS, MAX_PATTERNS, Opcode
from espalier.backend.geometry import global_geometry, pool_geometry
from espalier_hw.pool_model import pool_words


@dataclasses.dataclass
class PoolLayer:
    """One POOL descriptor. picture: uint8[channels, rows, columns], without padding."""

    common: dict
    branch: dict
    patterns: list
    picture: np.ndarray

    def window(self, config, channel, tile_y, tile_x, row_offset):
        """What the window reader delivers; rows beyond the region are 255."""
        size = config.tile_size
        rows = size * tile_y + row_offset + self.common["stride"] * np.arange(config.word_rows)
        columns = size * tile_x + np.arange(2 - size, 2 * size)
        inside_y = (rows >= 0) & (rows < self.picture.shape[1])
        inside_x = (columns >= 0) & (columns < self.picture.shape[2])
        clipped = self.picture[
            channel,
            rows.clip(0, self.picture.shape[1] - 1)[:, None],
            columns.clip(0, self.picture.shape[2] - 1),
        ]
        window = np.where(inside_y[:, None] & inside_x, clipped, self.common["in_pad"]).astype(np.uint8)
        window[rows > size * (tile_y + 2) - 1] = 255
        return window

    def words(self, config):
        """All words that the unit must write, in order."""
        tiles = walk_tiles(self.common, self.branch)
        return list(
            pool_words(
                config,
                self.common,
                self.branch["channels"],
                self.patterns,
                tiles,
                lambda *place: self.window(config, *place),
            )
        )


def fields(geometry):
    """Patterns as mappings."""
    return [dataclasses.asdict(pattern) for pattern in geometry.patterns]


def make_layer(rng, config, picture, shape, patterns, pad, **extra):
    """Describe a layer that writes a map of `shape` pixels."""
    size = config.tile_size
    tiles_y, tiles_x = (-(-extent // size) for extent in shape)
    in_y, in_x = (-(-extent // size) for extent in picture.shape[1:])
    run = int(rng.integers(1, 4))
    common = {
        "opcode": Opcode.POOL,
        "layer": int(rng.integers(256)),
        "ordered": int(rng.integers(2)),
        "stride": 1,
        "passes": 1,
        "pattern_count": len(patterns),
        "in_base": int(rng.integers(1 << 12)),
        "in_tiles_y": in_y,
        "in_tiles_x": in_x,
        "in_channels": len(picture) + int(rng.integers(3)),
        "in_pitch": tensor_pitch(in_x),
        "in_pad": pad,
        "out_base": int(rng.integers(1 << 12)),
        "out_tiles_y": tiles_y,
        "out_tiles_x": tiles_x,
        "out_channels": len(picture) + int(rng.integers(3)),
        "out_pitch": tensor_pitch(tiles_x),
        "out_pad": int(rng.integers(256)),
        "out_rows_last": shape[0] - size * (tiles_y - 1),
        "out_columns_last": shape[1] - size * (tiles_x - 1),
        "reduce": 0,
        "out_zero": 0,
        **extra,
    }
    branch = {
        "tiles": tiles_y * tiles_x,
        "run": run,
        "tile_y0": 0,
        "tile_x0": 0,
        "jump_y": int(tiles_x == 1),
        "jump_x": int(tiles_x > 1),
        "channels": len(picture),
        "group_mask": 1 << config.branches,
    }
    return PoolLayer(common, branch, patterns, picture)


def max_layer(rng, config, kernel, stride, pads, shape, channels):
    """Max-pooling of a random picture of `shape` rows and columns, and its result uint8[channels, y, x]."""
    picture = rng.integers(0, 256, (channels, *shape), dtype=np.uint8)
    padded = np.pad(picture, ((0, 0), (pads[0], pads[0]), (pads[1], pads[1])))
    views = np.lib.stride_tricks.sliding_window_view(padded, kernel, axis=(1, 2))
    result = views[:, ::stride, ::stride].max(axis=(3, 4))
    patterns = fields(pool_geometry(kernel, stride, pads, config.tile_size, "test"))
    layer = make_layer(rng, config, picture, result.shape[1:], patterns, 0, stride=stride)
    return layer, result


def average_layer(rng, config, shape, channels):
    """Global average of a random picture with lanes outside the map that hold any value."""
    picture = rng.integers(0, 256, (channels, *shape), dtype=np.uint8)
    tiles = [-(-extent // config.tile_size) for extent in shape]
    return make_layer(
        rng,
        config,
        picture,
        (1, 1),
        fields(global_geometry(*tiles, "test")),
        int(rng.integers(256)),
        reduce=1,
        out_zero=int(rng.integers(256)),
        pool_multiplier=int(rng.integers(1 << 17)) >> int(rng.integers(4)),
        pool_shift=int(rng.integers(4)),
        pool_bias=int(rng.integers(-(1 << 14), 1 << 10)),
    )


async def offer_layers(ctx, dut, layers):
    """What the sequencer does: patterns into alternating banks while the layer before runs."""
    ctx.set(dut.progress[dut.config.branches].complete, 1)  # words are in the memory at once
    for number, layer in enumerate(layers):
        bank = number % 2
        await write_memory(ctx, dut.pattern_write, pattern_words(layer.patterns), bank * MAX_PATTERNS)
        while ctx.get(dut.pending):
            await ctx.tick()
        ctx.set(dut.layer.as_value(), pack(COMMON_FIELDS, layer.common))
        ctx.set(dut.branch.as_value(), pack(BRANCH_FIELDS, layer.branch))
        ctx.set(dut.bank, bank)
        ctx.set(dut.offer, 1)
        await ctx.tick()
        ctx.set(dut.offer, 0)
        await ctx.tick()
        assert not ctx.get(dut.idle)
        while ctx.get(dut.pending):
            await ctx.tick()
        # Nobody else has the layer pending: the ports may change.
        ctx.set(dut.layer.as_value(), (1 << 60) - 1)


def window_memory(dut, config, layers, dice, lazy):
    """Answers the requests of all layers in order, some cycles later."""

    async def run(ctx):
        cycle, pending, current = 0, [], -1
        while True:
            ctx.set(dut.window_request.ready, dice.random() >= lazy)
            ctx.set(dut.window_valid, 0)
            ctx.set(dut.window_data, (1 << len(dut.window_data)) - 1)
            if pending and pending[0][0] <= cycle and dice.random() >= lazy:
                ctx.set(dut.window_valid, 1)
                ctx.set(dut.window_data, pending.pop(0)[1])
            _, _, valid, ready, taken, request = await ctx.tick().sample(
                dut.window_request.valid,
                dut.window_request.ready,
                dut.taken,
                dut.window_request.payload,
            )
            cycle += 1
            if valid and ready:
                pending.append((cycle + 8, to_integer(answer(config, layers[current], request))))
            current += taken

    return run


def answer(config, layer, request):
    """Check what a layer's requests have in common, and cut the window."""
    common, centre = layer.common, request.centre
    assert request.group_mask == 1 << config.branches
    assert (centre.base, centre.pitch, centre.channels) == tuple(
        common[name] for name in ("in_base", "in_pitch", "in_channels")
    )
    assert (request.tiles_y, request.tiles_x) == (common["in_tiles_y"], common["in_tiles_x"])
    assert (request.pad, request.stride) == (common["in_pad"], common["stride"])
    return layer.window(config, centre.channel, centre.tile_y, centre.tile_x, request.row_offset)


async def check_words(ctx, dut, config, layer, dice, lazy):
    """Compare all words of a layer; returns the cycles from the first to the last."""
    words, common, cycle, first = layer.words(config), layer.common, 0, 0
    for number, (place, tile) in enumerate(words):
        accepted = False
        while not accepted:
            ctx.set(dut.write.ready, dice.random() >= lazy)
            _, _, valid, ready, payload = await ctx.tick().sample(
                dut.write.valid, dut.write.ready, dut.write.payload
            )
            accepted = valid and ready
            cycle += 1
        first = first or cycle
        address, marks = payload.address, payload.marks
        assert (address.tile_y, address.tile_x, address.channel) == place
        assert (address.base, address.pitch, address.channels) == tuple(
            common[name] for name in ("out_base", "out_pitch", "out_channels")
        )
        assert (marks.layer, marks.ordered) == (common["layer"], common["ordered"])
        assert marks.final_tile == (number >= len(words) - layer.branch["channels"])
        assert marks.last == (number == len(words) - 1)
        np.testing.assert_array_equal(to_bytes(payload.data, tile.shape), tile)
    ctx.set(dut.write.ready, 0)
    return cycle - first
