"""Random layers for the blocks that walk windows, and what offers them one after the other."""

from __future__ import annotations

import dataclasses

from amaranth.hdl import Module
from layers import pattern_words, set_layer, write_memory

from espalier.arch.program import MAX_PATTERNS
from espalier_hw.layer_stage import LayerStage


@dataclasses.dataclass
class WalkedLayer:
    """Descriptor of one layer as one branch gets it."""

    common: dict
    branch: dict
    patterns: list

    def tiles(self):
        """Tiles (y, x) in the order of the walk: runs in raster order, with jumps between."""
        y, x = self.branch["tile_y0"], self.branch["tile_x0"]
        for number in range(1, self.branch["tiles"] + 1):
            yield y, x
            jump = number % self.branch["run"] == 0
            y, x = (y + self.branch["jump_y"], x + self.branch["jump_x"]) if jump else (y, x + 1)
            if x >= self.common["out_tiles_x"]:
                y, x = y + 1, x - self.common["out_tiles_x"]

    def words(self):
        """(tile, channel, pattern) of all words, in order."""
        for tile in self.tiles():
            for _ in range(self.common["passes"]):
                for channel in range(self.branch["channels"]):
                    for pattern in self.patterns:
                        yield tile, channel, pattern

    @property
    def sets(self):
        return self.branch["tiles"] * self.common["passes"]


def random_pattern(rng, size, stride):
    offsets = range(2 - size, 2) if stride == 2 else range(-(size // 2), size - size // 2)
    return {
        "tile_dy": int(rng.integers(-2, 3)),
        "tile_dx": int(rng.integers(-2, 3)),
        "row_offset": int(rng.integers(-size, size)),
        "column_offset": int(rng.choice(list(offsets))),
        "taps": int(rng.integers(0, 16)),
        "fetch": 1,
    }


def random_layer(rng, size, index, rests=0.2):
    """One layer; with probability `rests` the branch has no tiles in it."""
    stride = int(rng.integers(1, 3))
    out_y, out_x = int(rng.integers(1, 5)), int(rng.integers(1, 5))
    patterns = []
    for _ in range(int(rng.integers(1, 6))):
        pattern = random_pattern(rng, size, stride)
        if patterns and rng.random() < 0.5:
            pattern = {**patterns[-1], "column_offset": pattern["column_offset"], "fetch": 0}
        patterns.append(pattern)
    common = {
        "opcode": 2,
        "layer": index,
        "stride": stride,
        "pattern_count": len(patterns),
        "passes": int(rng.integers(1, 4)),
        "block_words": int(rng.choice([8, 16])),
        "in_base": int(rng.integers(0, 1000)),
        "in_tiles_y": stride * out_y,
        "in_tiles_x": stride * out_x,
        "in_channels": 50,
        "in_pitch": int(rng.integers(1, 100)),
        "in_pad": int(rng.integers(0, 256)),
        "out_tiles_y": out_y,
        "out_tiles_x": out_x,
    }
    start = int(rng.integers(0, out_y * out_x))
    branch = {
        "tile_y0": start // out_x,
        "tile_x0": start % out_x,
        "tiles": 200,
        "run": int(rng.integers(1, 6)),
        "jump_y": int(rng.integers(0, 2)),
        "jump_x": int(rng.integers(0, out_x)),
        "channels": int(rng.integers(1, 6)),
        "group_mask": int(rng.integers(1, 8)),
    }
    layer = WalkedLayer(common, branch, patterns)
    inside = sum(1 for y, _ in layer.tiles() if y < out_y)
    branch["tiles"] = 0 if rng.random() < rests else int(rng.integers(1, inside + 1))
    return layer


def staged(block):
    """Module of `block` behind a `LayerStage`; returns both."""
    m = Module()
    m.submodules.stage, m.submodules.block = stage, _ = LayerStage(), block
    m.d.comb += [
        stage.busy.eq(block.busy),
        stage.allow.eq(1),
        block.go.eq(stage.go),
        block.layer.eq(stage.current),
        block.branch.eq(stage.current_branch),
        block.bank.eq(stage.current_bank),
    ]
    return m, stage


async def offer_layer(ctx, stage, block, layer, bank):
    """Write the patterns, then offer the layer and wait until it is taken."""
    await write_memory(ctx, block.pattern_write, pattern_words(layer.patterns), bank * MAX_PATTERNS)
    set_layer(ctx, stage, layer.common, layer.branch)
    ctx.set(stage.bank, bank)
    ctx.set(stage.offer, 1)
    await ctx.tick()
    ctx.set(stage.offer, 0)
    while ctx.get(stage.pending):
        await ctx.tick()
