"""Asks for the windows of a layer, in the order in which the branch or the pool unit uses them."""

from __future__ import annotations

from typing import Any

from amaranth.hdl import Module, Mux, Signal, Value, signed
from amaranth.lib import data, stream, wiring
from amaranth.lib.wiring import In, Out

from espalier.arch.config import HardwareConfig
from espalier_hw.arbitration import RegisterSlice
from espalier_hw.follow_check import FollowCheck
from espalier_hw.interfaces import (
    BRANCH_LAYER,
    LAYER,
    PATTERN,
    PATTERN_ADDRESS_BITS,
    PROGRESS,
    WINDOW_REQUEST,
    memory_write,
    writers,
)
from espalier_hw.walks import SetWalk, TileWalk, count_to

# A pattern on its way to a request: where the output tile maps to, before the pattern's own offset.
_STEP = data.StructLayout({"pattern": PATTERN, "channel": 13, "base_y": 9, "base_x": 9})
# What differs between the requests of a layer.
_PLACE = data.StructLayout(
    {"channel": 13, "row_offset": signed(4), "tile_y": signed(10), "tile_x": signed(10)}
)
# `need`: the last tile of the neighbourhood that lies in the map.
_CENTRE = data.StructLayout({"place": _PLACE, "need_y": 8, "need_x": 8})


class WindowWalker(wiring.Component):
    """Walks tiles, passes, channels and patterns and requests a window for each pattern with `fetch`.

    go: pulse; `layer`, `branch` and `bank` have been valid for a cycle. busy: level, from the cycle after
    `go` until the last request of the layer has been accepted; only then may `layer`, `branch` and
    `bank` change. taken: pulse, a window has left the requester's buffer of `depth` windows, perhaps one of
    an earlier layer. Requests are registered, up to one a cycle. A request waits, and so do all after it,
    until the writers of what it follows have passed it (`progress`: of all writers): while these are
    at work, a request comes every second cycle at most.
    """

    def __init__(self, config: HardwareConfig, depth: int | None = None) -> None:
        """`depth`: windows that may be asked for or buffered; default `window_fifo_depth`."""
        self.config = config
        self.depth = config.window_fifo_depth if depth is None else depth
        super().__init__(
            {
                "go": In(1),
                "layer": In(LAYER),
                "branch": In(BRANCH_LAYER),
                "bank": In(1),
                "busy": Out(1),
                "pattern_write": In(memory_write(PATTERN_ADDRESS_BITS, PATTERN.size)),
                "progress": In(PROGRESS).array(writers(config)),
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
        active = self._walk(m, step, step_valid, step_ready)
        m.d.comb += [
            step_ready.eq(~step_valid | ~step.pattern.fetch | centre_ready),
            centre_ready.eq(~centre_valid | issue),
            self.busy.eq(active | step_valid | centre_valid | self.request.valid),
        ]
        with m.If(centre_ready):
            m.d.sync += centre_valid.eq(step_valid & step.pattern.fetch)
            self._find_centre(m, step, centre)
        allowed = self._allowed(m, centre, ~centre_ready)
        self._issue(m, centre, centre_valid & allowed, issue)
        return m

    def _walk(self, m: Module, step: data.View, step_valid: Signal, step_ready: Signal) -> Signal:
        """Nested counters; each cycle in which `step_ready` is high puts the next pattern into `step`.

        The result is high while there are patterns left.
        """
        m.submodules.tiles = tiles = TileWalk()
        m.submodules.set_walk = words = SetWalk(("tile_dy", "tile_dx", "row_offset", "fetch"))
        active, advance, last_pass, pass_end = Signal(), Signal(), Signal(), Signal()
        for walk in (tiles, words):
            m.d.comb += [
                walk.layer.eq(self.layer),
                walk.branch.eq(self.branch),
                walk.load.eq(self.go),
            ]
        m.d.comb += [
            words.bank.eq(self.bank),
            words.pattern_enable.eq(self.pattern_write.enable),
            words.pattern_address.eq(self.pattern_write.address),
            words.pattern_data.eq(self.pattern_write.data),
            advance.eq(active & step_ready),
            words.step.eq(advance),
            pass_end.eq(words.set_end & last_pass),
            tiles.step.eq(advance & pass_end),
        ]
        pass_moves = self.go | (advance & words.set_end)
        count_to(m, self.layer.passes, last_pass, first=self.go | last_pass, moves=pass_moves)
        with m.If(self.go):
            m.d.sync += active.eq(1)
        with m.Elif(advance & pass_end & tiles.last):
            m.d.sync += active.eq(0)
        with m.If(step_ready):
            m.d.sync += [
                step_valid.eq(active),
                step.pattern.eq(words.pattern),
                step.channel.eq(words.channel),
                step.base_y.eq(Mux(self.layer.stride == 2, tiles.tile_y << 1, tiles.tile_y)),
                step.base_x.eq(Mux(self.layer.stride == 2, tiles.tile_x << 1, tiles.tile_x)),
            ]
        return active

    def _find_centre(self, m: Module, step: data.View, centre: data.View) -> None:
        """Add the pattern's offset, and find the last tile of the neighbourhood inside the map."""
        m.d.sync += [
            centre.place.channel.eq(step.channel),
            centre.place.row_offset.eq(step.pattern.row_offset),
        ]
        for axis, count in (("y", self.layer.in_tiles_y), ("x", self.layer.in_tiles_x)):
            base, offset = step[f"base_{axis}"], step.pattern[f"tile_d{axis}"]
            last = Signal(8, name=f"last_{axis}")
            after = Signal(signed(11), name=f"after_{axis}")
            m.d.comb += [last.eq(count - 1), after.eq(base + (offset + 1))]
            m.d.sync += [
                centre.place[f"tile_{axis}"].eq(base + offset),
                centre[f"need_{axis}"].eq(Mux(after < 0, 0, Mux(after > last, last, after))),
            ]

    def _allowed(self, m: Module, centre: data.View, hold: Value) -> Value:
        """Whether the words that `centre` needs are in the memory."""
        m.submodules.follow = follow = FollowCheck(self.config)
        m.d.comb += [
            follow.layer.eq(self.layer),
            follow.need_y.eq(centre.need_y),
            follow.need_x.eq(centre.need_x),
            follow.channel.eq(centre.place.channel),
            follow.hold.eq(hold),
        ]
        m.d.comb += [follow.progress[i].eq(progress) for i, progress in enumerate(self.progress)]
        return follow.passed

    def _issue(self, m: Module, centre: data.View, allowed: Value, issue: Signal) -> None:
        """Put the request out once it is allowed and the requester has room for the answer."""
        m.submodules.places = places = RegisterSlice(_PLACE)
        layer, payload = self.layer, self.request.payload
        # One less than the windows that may still be asked for, so that the sign says whether one may.
        credits = Signal(range(-self.depth, self.depth), init=self.depth - 1)
        m.d.sync += credits.eq(credits - issue + self.taken)
        m.d.comb += [
            issue.eq(allowed & ~credits[-1] & places.input.ready),
            places.input.valid.eq(issue),
            places.input.payload.eq(centre.place),
            self.request.valid.eq(places.output.valid),
            places.output.ready.eq(self.request.ready),
        ]
        # What is the same for all windows of a layer comes straight from the descriptor.
        m.d.comb += [
            payload.group_mask.eq(self.branch.group_mask),
            payload.centre.base.eq(layer.in_base),
            payload.centre.pitch.eq(layer.in_pitch),
            payload.centre.ring.eq(layer.in_ring),
            payload.centre.channels.eq(layer.in_channels),
            payload.tiles_y.eq(layer.in_tiles_y),
            payload.tiles_x.eq(layer.in_tiles_x),
            payload.pad.eq(layer.in_pad),
            payload.stride.eq(layer.stride),
            payload.row_offset.eq(places.output.payload.row_offset),
        ]
        for name in ("channel", "tile_y", "tile_x"):
            m.d.comb += payload.centre[name].eq(places.output.payload[name])
