"""Asks for the windows of a layer, in the order in which the branch uses them."""

from __future__ import annotations

from typing import Any

from amaranth.hdl import Module, Mux, Signal, signed
from amaranth.lib import data, stream, wiring
from amaranth.lib.wiring import In, Out

from espalier.arch.config import HardwareConfig
from espalier.arch.program import Opcode
from espalier_hw.interfaces import BRANCH_LAYER, LAYER, PATTERN, WINDOW_REQUEST, memory_write
from espalier_hw.walks import SetWalk, TileWalk

# A pattern on its way to a request: where the output tile maps to, before the pattern's own offset.
_STEP = data.StructLayout({"pattern": PATTERN, "channel": 13, "base_y": 9, "base_x": 9})
# The centre is known; `need` is the last tile row that must have been loaded.
_CENTRE = data.StructLayout(
    {"channel": 13, "row_offset": signed(4), "tile_y": signed(10), "tile_x": signed(10), "need": 8}
)


class WindowWalker(wiring.Component):
    """Walks tiles, passes, channels and patterns and requests a window for each pattern with `fetch`.

    go: pulse, `layer` valid since the cycle before. taken: pulse, a window has left the branch's buffer
    of `window_fifo_depth` windows. Requests are registered, up to one a cycle; a request for rows that
    a running LOAD has not delivered (`rows_ready`) waits, and so do all after it.
    """

    def __init__(self, config: HardwareConfig) -> None:
        self.config = config
        super().__init__(
            {
                "go": In(1),
                "layer": In(LAYER),
                "branch": In(BRANCH_LAYER),
                "pattern_write": In(memory_write(6, PATTERN.size)),
                "rows_ready": In(8),
                "taken": In(1),
                "request": Out(stream.Signature(WINDOW_REQUEST)),
            }
        )

    def elaborate(self, platform: Any) -> Module:
        """Build the block."""
        m = Module()
        step = Signal(_STEP, reset_less=True)
        step_valid, step_ready = Signal(), Signal()
        centre = Signal(_CENTRE, reset_less=True)
        centre_valid, centre_ready, issue = Signal(), Signal(), Signal()
        self._walk(m, step, step_valid, step_ready)
        m.d.comb += [
            step_ready.eq(~step_valid | ~step.pattern.fetch | centre_ready),
            centre_ready.eq(~centre_valid | issue),
        ]
        with m.If(centre_ready):
            m.d.sync += centre_valid.eq(step_valid & step.pattern.fetch)
            self._find_centre(m, step, centre)
        self._issue(m, centre, centre_valid, issue)
        return m

    def _walk(self, m: Module, step: data.View, step_valid: Signal, step_ready: Signal) -> None:
        """Nested counters; each cycle in which `step_ready` is high puts the next pattern into `step`."""
        m.submodules.tiles = tiles = TileWalk()
        m.submodules.set_walk = words = SetWalk()
        active, advance = Signal(), Signal()
        last_pass, pass_index = Signal(6), Signal(6)
        pass_end = Signal()
        for walk in (tiles, words):
            m.d.comb += [
                walk.layer.eq(self.layer),
                walk.branch.eq(self.branch),
                walk.load.eq(self.go),
            ]
        m.d.comb += [
            words.pattern_enable.eq(self.pattern_write.enable),
            words.pattern_address.eq(self.pattern_write.address),
            words.pattern_data.eq(self.pattern_write.data),
            advance.eq(active & step_ready),
            words.step.eq(advance),
            pass_end.eq(words.set_end & (pass_index == last_pass)),
            tiles.step.eq(advance & pass_end),
        ]
        m.d.sync += last_pass.eq(Mux(self.layer.opcode == Opcode.POOL, 0, self.layer.passes - 1))
        with m.If(self.go):
            m.d.sync += [active.eq(1), pass_index.eq(0)]
        with m.Elif(advance & words.set_end):
            m.d.sync += pass_index.eq(Mux(pass_end, 0, pass_index + 1))
            with m.If(pass_end & tiles.last):
                m.d.sync += active.eq(0)
        with m.If(step_ready):
            m.d.sync += [
                step_valid.eq(active),
                step.pattern.eq(words.pattern),
                step.channel.eq(words.channel),
                step.base_y.eq(Mux(self.layer.stride == 2, tiles.tile_y << 1, tiles.tile_y)),
                step.base_x.eq(Mux(self.layer.stride == 2, tiles.tile_x << 1, tiles.tile_x)),
            ]

    def _find_centre(self, m: Module, step: data.View, centre: data.View) -> None:
        """Add the pattern's offset, and find the lowest tile row of the neighbourhood inside the map."""
        last_row = Signal(8)
        centre_y, below = Signal(signed(10)), Signal(signed(11))
        m.d.comb += [
            last_row.eq(self.layer.in_tiles_y - 1),
            centre_y.eq(step.base_y + step.pattern.tile_dy),
            below.eq(centre_y + 1),
        ]
        m.d.sync += [
            centre.channel.eq(step.channel),
            centre.row_offset.eq(step.pattern.row_offset),
            centre.tile_y.eq(centre_y),
            centre.tile_x.eq(step.base_x + step.pattern.tile_dx),
            centre.need.eq(Mux(below < 0, 0, Mux(below > last_row, last_row, below))),
        ]

    def _issue(self, m: Module, centre: data.View, centre_valid: Signal, issue: Signal) -> None:
        """Put the request out once its rows are there and the branch has room for the answer."""
        layer, request = self.layer, self.request
        credits = Signal(range(self.config.window_fifo_depth + 1), init=self.config.window_fifo_depth)
        rows_ready, rows_there = Signal(8), Signal()
        m.d.sync += [rows_ready.eq(self.rows_ready), credits.eq(credits - issue + self.taken)]
        m.d.comb += [
            rows_there.eq(~layer.wait_load | (rows_ready > centre.need)),
            issue.eq(centre_valid & rows_there & (credits != 0) & (~request.valid | request.ready)),
        ]
        # What is the same for all windows of a layer comes straight from the descriptor.
        m.d.comb += [
            request.payload.centre.base.eq(layer.in_base),
            request.payload.centre.pitch.eq(layer.in_pitch),
            request.payload.centre.channels.eq(layer.in_channels),
            request.payload.tiles_y.eq(layer.in_tiles_y),
            request.payload.tiles_x.eq(layer.in_tiles_x),
            request.payload.pad.eq(layer.in_pad),
            request.payload.stride.eq(layer.stride),
        ]
        with m.If(~request.valid | request.ready):
            m.d.sync += request.valid.eq(issue)
        with m.If(issue):
            m.d.sync += [
                request.payload.centre.tile_y.eq(centre.tile_y),
                request.payload.centre.tile_x.eq(centre.tile_x),
                request.payload.centre.channel.eq(centre.channel),
                request.payload.row_offset.eq(centre.row_offset),
            ]
