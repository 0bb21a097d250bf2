"""Takes layers from the sequencer for one of the blocks that work on different layers at the same time."""

from __future__ import annotations

from typing import Any

from amaranth.hdl import Module, Signal
from amaranth.lib import wiring
from amaranth.lib.wiring import In, Out

from espalier_hw.interfaces import BRANCH_LAYER, LAYER


class LayerStage(wiring.Component):
    """Keeps the layer that a block works on, and starts the block when the next one is there.

    offer, layer, branch, bank: see `interfaces.stage_ports`; `offer` only for layers of this block's kind.
    busy: level, the block is at work; high from the cycle after `go` at the latest. allow: level, the next
    layer may be taken. taken: pulse, combinational. go: pulse; current, current_branch and current_bank have
    been valid for a cycle then and stay so until the next layer is taken. A layer in which the branch has no
    tiles is taken, but there is no `go`.
    wait: level, a layer is pending and nothing but `allow` is missing.
    """

    def __init__(self) -> None:
        super().__init__(
            {
                "offer": In(1),
                "layer": In(LAYER),
                "branch": In(BRANCH_LAYER),
                "bank": In(1),
                "busy": In(1),
                "allow": In(1),
                "pending": Out(1),
                "wait": Out(1),
                "taken": Out(1),
                "go": Out(1),
                "idle": Out(1),
                "current": Out(LAYER),
                "current_branch": Out(BRANCH_LAYER),
                "current_bank": Out(1),
            }
        )

    def elaborate(self, platform: Any) -> Module:
        """Build the block."""
        m = Module()
        starting = Signal()
        m.d.comb += [
            self.wait.eq(self.pending & ~starting & ~self.go & ~self.busy),
            self.taken.eq(self.wait & self.allow),
            self.idle.eq(~(self.pending | starting | self.go | self.busy)),
        ]
        m.d.sync += [starting.eq(self.taken & (self.branch.tiles != 0)), self.go.eq(starting)]
        with m.If(self.offer):
            m.d.sync += self.pending.eq(1)
        with m.Elif(self.taken):
            m.d.sync += self.pending.eq(0)
        with m.If(self.taken):
            m.d.sync += [
                self.current.eq(self.layer),
                self.current_branch.eq(self.branch),
                self.current_bank.eq(self.bank),
            ]
        return m
