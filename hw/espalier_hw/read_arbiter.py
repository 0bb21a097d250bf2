"""Chooses which read of the feature memory starts: residual tiles, tiles to store, or windows."""

from __future__ import annotations

from typing import Any

from amaranth.hdl import Cat, Module, Mux, Signal, Value
from amaranth.lib import stream, wiring
from amaranth.lib.wiring import In, Out

from espalier_hw.arbitration import HoldingRegister, RoundRobin, select
from espalier_hw.interfaces import TILE_ADDRESS, WINDOW_REQUEST

# Tile counts of a map in which every tile lies: single tiles are never replaced by padding.
ANY_TILE = 0xFFFF


class ReadArbiter(wiring.Component):
    """One read a cycle: residual tiles (round robin), then tiles to store, then windows (round robin).

    Requests wait in a register each, so that no ready depends on a valid in the same cycle. A window
    is granted to all branches of a group at once, when all of them wait. `group_mask` may change while
    no window request is under way.

    request: the read that starts, a window or only its centre; window, residual (one bit a branch) and
    store say for whom, all zero if there is none.
    """

    def __init__(self, branches: int) -> None:
        """`branches`: number of requesters of windows, and of residual tiles."""
        self.branches = branches
        super().__init__(
            {
                "window_request": In(stream.Signature(WINDOW_REQUEST)).array(branches),
                "group_mask": In(8).array(branches),
                "residual_request": In(stream.Signature(TILE_ADDRESS)).array(branches),
                "store_request": In(stream.Signature(TILE_ADDRESS)),
                "request": Out(WINDOW_REQUEST),
                "window": Out(branches),
                "residual": Out(branches),
                "store": Out(1),
            }
        )

    def _holding(self, m: Module, name: str, shape: object, requests: list[Any]) -> list[HoldingRegister]:
        registers = []
        for index, request in enumerate(requests):
            register = m.submodules[f"{name}_{index}"] = HoldingRegister(shape)
            wiring.connect(m, wiring.flipped(request), register.input)
            registers.append(register)
        return registers

    def _windows(self, m: Module) -> tuple[HoldingRegister, Signal]:
        """Choose the next window; the mask, valid with it, says for which branches."""
        held = self._holding(m, "window", WINDOW_REQUEST, list(self.window_request))
        waiting = Cat([register.output.valid for register in held])
        masks = []
        leaders = []
        for index in range(self.branches):
            mask = Signal(self.branches, name=f"group_mask_{index}", reset_less=True)
            m.d.sync += mask.eq(self.group_mask[index])
            masks.append(mask)
            # The lowest branch of a group speaks for it.
            leads = (mask & ((1 << index) - 1)) == 0
            leaders.append(waiting[index] & leads & ((waiting & mask) == mask))

        m.submodules.window_turn = turn = RoundRobin(self.branches)
        m.submodules.window_next = following = HoldingRegister(WINDOW_REQUEST)
        receivers = Signal(self.branches, reset_less=True)
        granted = Signal(self.branches)
        m.d.comb += [
            turn.requests.eq(Cat(leaders)),
            turn.advance.eq(following.input.ready),
            following.input.valid.eq(turn.requests.any()),
            Value.cast(following.input.payload).eq(select(turn.grant, [r.output.payload for r in held])),
            granted.eq(Mux(following.input.ready, select(turn.grant, masks), 0)),
        ]
        m.d.comb += [register.output.ready.eq(granted[index]) for index, register in enumerate(held)]
        with m.If(following.input.ready):
            m.d.sync += receivers.eq(granted)
        return following, receivers

    def _tiles(self, m: Module) -> tuple[HoldingRegister, Signal, Signal]:
        """Choose the next single tile; for branches' residuals, or to store."""
        held = self._holding(m, "residual", TILE_ADDRESS, list(self.residual_request))
        (store,) = self._holding(m, "store", TILE_ADDRESS, [self.store_request])
        m.submodules.residual_turn = turn = RoundRobin(self.branches)
        m.submodules.tile_next = following = HoldingRegister(TILE_ADDRESS)
        residual = Signal(self.branches, reset_less=True)
        is_store = Signal(reset_less=True)
        any_residual = turn.requests.any()
        residual_address = select(turn.grant, [register.output.payload for register in held])
        m.d.comb += [
            turn.requests.eq(Cat([register.output.valid for register in held])),
            turn.advance.eq(1),
            following.input.valid.eq(any_residual | store.output.valid),
            Value.cast(following.input.payload).eq(
                Mux(any_residual, residual_address, Value.cast(store.output.payload))
            ),
            store.output.ready.eq(~any_residual),
        ]
        # A single tile always passes in the next cycle: `following` never refuses.
        m.d.comb += [register.output.ready.eq(turn.grant[index]) for index, register in enumerate(held)]
        m.d.sync += [residual.eq(turn.grant), is_store.eq(~any_residual)]
        return following, residual, is_store

    def elaborate(self, platform: object) -> Module:
        """Windows and single tiles each choose their next; then a tile goes before a window."""
        m = Module()
        windows, receivers = self._windows(m)
        tiles, residual, is_store = self._tiles(m)
        m.d.comb += [tiles.output.ready.eq(1), windows.output.ready.eq(~tiles.output.valid)]
        request = Signal(WINDOW_REQUEST, reset_less=True)
        window, residual_out, store = Signal(self.branches), Signal(self.branches), Signal()
        m.d.sync += [window.eq(0), residual_out.eq(0), store.eq(0)]
        with m.If(tiles.output.valid):
            m.d.sync += [
                request.centre.eq(tiles.output.payload),
                Cat(request.tiles_y, request.tiles_x).eq(ANY_TILE),
                residual_out.eq(Mux(is_store, 0, residual)),
                store.eq(is_store),
            ]
        with m.Elif(windows.output.valid):
            m.d.sync += [request.eq(windows.output.payload), window.eq(receivers)]
        m.d.comb += [
            self.request.eq(request),
            self.window.eq(window),
            self.residual.eq(residual_out),
            self.store.eq(store),
        ]
        return m
