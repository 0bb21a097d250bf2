"""Output stage of a branch: from finished sums to tile words in the feature memory."""

from __future__ import annotations

from typing import Any

from amaranth.hdl import Module, Signal
from amaranth.lib import data, stream, wiring
from amaranth.lib.wiring import In, Out

from espalier.arch.config import HardwareConfig
from espalier.arch.program import TABLE_WORD_BITS
from espalier_hw.beats import beat_slots, choose_beat
from espalier_hw.drain import Drain, source_ports
from espalier_hw.interfaces import (
    BRANCH_LAYER,
    LAYER,
    TILE_ADDRESS,
    memory_write,
    tile_bits,
    tile_write_layout,
)
from espalier_hw.lutram_fifo import LutramFifo
from espalier_hw.requantise import Requantiser
from espalier_hw.residual import ResidualScale
from espalier_hw.table_walker import AHEAD, TableWalker


class OutputStage(wiring.Component):
    """Walks the requantisation table, drains PEs, requantises and writes tile words.

    pes, dsp_pairs: PEs of the branch, and lane pairs of each that are in DSP slices. restart: pulse before
    the first layer, together with that of the PEs. offer: pulse, `offered` is the layer that the next `go`
    will start (not one in which the branch has no tiles), and stays so until then. go: pulse, `layer` and
    `branch` have been valid for a cycle, and stay so until `busy` falls. busy: level, from the cycle after
    `go` until the layer's last word has been accepted. Sums come through `drain.source_ports`. residual_*,
    write: as in `branch_signature`. output_wait: event.
    """

    def __init__(
        self, config: HardwareConfig, pes: int, dsp_pairs: int, primitives: str = "behavioural"
    ) -> None:
        self.config = config
        self._pes, self._dsp_pairs, self._primitives = pes, dsp_pairs, primitives
        super().__init__(
            {
                "restart": In(1),
                "offer": In(1),
                "offered": In(LAYER),
                "go": In(1),
                "layer": In(LAYER),
                "branch": In(BRANCH_LAYER),
                "table_write": In(memory_write(14, TABLE_WORD_BITS)),
                "busy": Out(1),
                **source_ports(config, pes),
                "residual_request": Out(stream.Signature(TILE_ADDRESS)),
                "residual_valid": In(1),
                "residual_data": In(tile_bits(config)),
                "write": Out(stream.Signature(tile_write_layout(config))),
                "output_wait": Out(1),
            }
        )

    def elaborate(self, platform: Any) -> Module:
        """Build the block."""
        m = Module()
        config = self.config
        m.submodules.table = table = TableWalker(config)
        m.submodules.drain = drain = Drain(config, self._pes, self._primitives)
        m.submodules.requantiser = requantiser = Requantiser(config, self._dsp_pairs, self._primitives)
        m.submodules.scale = scale = ResidualScale(config)
        advance = Signal()
        m.d.comb += [
            table.go.eq(self.go),
            table.layer.eq(self.layer),
            table.branch.eq(self.branch),
            table.take.eq(drain.take),
            drain.restart.eq(self.restart),
            drain.available.eq(table.available),
            drain.entry.eq(table.entry),
            drain.advance.eq(advance),
            drain.set_done.eq(self.set_done),
            drain.drain_valid.eq(self.drain_valid),
            drain.drain_data.eq(self.drain_data),
            self.drain_request.eq(drain.drain_request),
            requantiser.layer.eq(self.layer),
            requantiser.advance.eq(advance),
            requantiser.beat_valid.eq(drain.beat_valid),
            requantiser.beat.eq(drain.beat),
            requantiser.terms.eq(scale.terms),
            scale.restart.eq(self.restart),
            scale.offer.eq(self.offer),
            scale.offered.eq(self.offered),
            scale.go.eq(self.go),
            scale.advance.eq(advance),
        ]
        wiring.connect(m, wiring.flipped(self.table_write), table.table_write)
        wiring.connect(m, table.residual_request, wiring.flipped(self.residual_request))
        self._residual(m, table, drain, requantiser, scale, advance)
        self._collect(m, requantiser, advance)
        return m

    def _residual(
        self,
        m: Module,
        table: TableWalker,
        drain: Drain,
        requantiser: Requantiser,
        scale: ResidualScale,
        advance: Signal,
    ) -> None:
        """Keep residual tiles until their beats come; an entry starts only when its tile is there."""
        config = self.config
        m.submodules.tiles = tiles = LutramFifo(tile_bits(config), AHEAD)
        unclaimed = Signal(range(AHEAD + 1))
        needed, there, fetch = Signal(), Signal(), Signal()
        pixels = Signal(scale.lanes * 8, reset_less=True)
        m.d.comb += [
            tiles.write.eq(self.residual_valid),
            tiles.write_data.eq(self.residual_data),
            needed.eq(self.layer.residual & drain.next_entry.last),
            drain.residual_there.eq(scale.ready & (~needed | there)),
            fetch.eq(advance & requantiser.residual_valid & self.layer.residual),
            tiles.read.eq(fetch & requantiser.residual_final),
            table.residual_done.eq(tiles.read),
            scale.pixels.eq(pixels),
        ]
        # `there` may be a cycle late: entries start at least three cycles apart, as the sums of one are
        # fetched only when the one before starts.
        m.d.sync += [
            unclaimed.eq(unclaimed + self.residual_valid - (drain.entry_starts & needed)),
            there.eq(unclaimed != 0),
        ]
        with m.If(fetch):
            m.d.sync += pixels.eq(
                choose_beat(tiles.read_data, 8, beat_slots(config), requantiser.residual_index)
            )
        with m.If(~self.layer.residual):
            m.d.sync += pixels.eq(0)

    def _collect(self, m: Module, requantiser: Requantiser, advance: Signal) -> None:
        """Put the beats of a word together, and hold it until the feature memory takes it."""
        config, layer = self.config, self.layer
        word = Signal(tile_bits(config), reset_less=True)
        place = Signal(
            data.StructLayout({"tile_y": 8, "tile_x": 8, "channel": 12, "final_tile": 1, "end_of_layer": 1}),
            reset_less=True,
        )
        full, leaves = Signal(), Signal()
        written = requantiser.valid & advance
        m.d.comb += [
            # Depends on registers only: it enables all of the pipeline.
            advance.eq(~full | ~self.write.valid),
            leaves.eq(full & (~self.write.valid | self.write.ready)),
        ]
        # A lane that comes in several beats counts in its first one: later the slot below a high lane may
        # have another lane than its pair's.
        sources = {
            lane: (beat, slot)
            for slot, row in enumerate(beat_slots(config))
            for beat, lane in enumerate(row)
            if beat == row.index(lane)
        }
        for beat in range(config.output_beats):
            with m.If(written & (requantiser.slot == beat)):
                m.d.sync += [
                    word.word_select(lane, 8).eq(requantiser.bytes.word_select(slot, 8))
                    for lane, (when, slot) in sources.items()
                    if when == beat
                ]
        with m.If(written & requantiser.final):
            m.d.sync += full.eq(1)
            m.d.sync += [place[name].eq(getattr(requantiser, name)) for name in place.shape().members]
        with m.Elif(leaves):
            m.d.sync += full.eq(0)
        payload = self.write.payload
        m.d.comb += [
            payload.address.base.eq(layer.out_base),
            payload.address.pitch.eq(layer.out_pitch),
            payload.address.ring.eq(layer.out_ring),
            payload.address.channels.eq(layer.out_channels),
            payload.marks.layer.eq(layer.layer),
            payload.marks.ordered.eq(layer.ordered),
        ]
        with m.If(~self.write.valid | self.write.ready):
            m.d.sync += self.write.valid.eq(full)
        with m.If(leaves):
            m.d.sync += [
                payload.data.eq(word),
                payload.address.tile_y.eq(place.tile_y),
                payload.address.tile_x.eq(place.tile_x),
                payload.address.channel.eq(place.channel),
                payload.marks.final_tile.eq(place.final_tile),
                payload.marks.last.eq(place.end_of_layer),
            ]
        with m.If(self.go):
            m.d.sync += self.busy.eq(1)
        with m.Elif(self.write.valid & self.write.ready & payload.marks.last):
            m.d.sync += self.busy.eq(0)
        m.d.sync += self.output_wait.eq(self.write.valid & ~self.write.ready)
