"""LOAD and STORE of whole tensors: walkers between the AXI engines and the feature memory."""

from __future__ import annotations

from typing import Any

from amaranth.hdl import Cat, Const, Module, Mux, Signal, Value
from amaranth.lib import data, fifo, stream, wiring
from amaranth.lib.wiring import In, Out

from espalier.arch.config import HardwareConfig
from espalier_hw.beats import select
from espalier_hw.interfaces import (
    BURST_COUNT_BITS,
    LAYER,
    NO_LAYER,
    TILE_ADDRESS,
    dma_beat,
    dma_command,
    tile_bits,
    tile_write_layout,
)

# Cycles from the acceptance of a tile word by the feature memory until a window surely sees it.
WRITE_LATENCY = 16
# Cycles until the write engine has surely left its idle state after taking a command or a beat.
SETTLE_CYCLES = 8
# Tile words of a STORE on their way from the feature memory.
STORE_DEPTH = 8

# A tensor in the feature memory, as descriptors name it for input and output.
TENSOR = data.StructLayout({"base": 13, "tiles_y": 8, "tiles_x": 8, "channels": 13, "pitch": 7, "ring": 3})


def input_tensor(layer: data.View) -> dict[str, Value]:
    """Fields of TENSOR from the descriptor's input."""
    return {name: getattr(layer, f"in_{name}") for name in TENSOR.members}


def output_tensor(layer: data.View) -> dict[str, Value]:
    """Fields of TENSOR from the descriptor's output."""
    return {name: getattr(layer, f"out_{name}") for name in TENSOR.members}


def times(words: Value, beats: Value) -> Value:
    """Multiply by a number of a few bits with adders; a product would take DSP slices that the PEs need."""
    return sum((Mux(beats[bit], words << bit, 0) for bit in range(1, len(beats))), Mux(beats[0], words, 0))


def walk(tiles_y: int, tiles_x: int, channels: int, first_row: int = 0) -> list[tuple[int, int, int]]:
    """List the tile words of a tensor in DDR order as (tile row, tile column, channel); reference."""
    return [(y, x, c) for y in range(first_row, tiles_y) for x in range(tiles_x) for c in range(channels)]


class TensorWalk(wiring.Component):
    """Counts through the tile words of a tensor in DDR order.

    start: pulse, go to the first word of tile row `first_row`, which is valid with it; `tensor` is from the
    next cycle on, at the latest.
    step: pulse, next word; not before the second cycle after `start`.
    address: of the current word. last_of_row: it is the last word of its tile row; last: of the tensor.
    """

    def __init__(self) -> None:
        super().__init__(
            {
                "start": In(1),
                "step": In(1),
                "tensor": In(TENSOR),
                "first_row": In(8),
                "address": Out(TILE_ADDRESS),
                "last_of_row": Out(1),
                "last": Out(1),
            }
        )

    def elaborate(self, platform: Any) -> Module:
        """Three nested counters."""
        m = Module()
        tensor, address = self.tensor, self.address
        y, x, channel = Signal(8), Signal(8), Signal(13)
        # Registered, as subtraction and comparison together would be too long.
        ends = {
            name: Signal.like(tensor[name], reset_less=True) for name in ("tiles_y", "tiles_x", "channels")
        }
        m.d.sync += [end.eq(tensor[name] - 1) for name, end in ends.items()]
        last_channel = channel == ends["channels"]
        last_column = x == ends["tiles_x"]
        m.d.comb += [
            address.base.eq(tensor.base),
            address.pitch.eq(tensor.pitch),
            address.ring.eq(tensor.ring),
            address.channels.eq(tensor.channels),
            address.tile_y.eq(y),
            address.tile_x.eq(x),
            address.channel.eq(channel),
            self.last_of_row.eq(last_channel & last_column),
            self.last.eq(self.last_of_row & (y == ends["tiles_y"])),
        ]
        with m.If(self.start):
            m.d.sync += [y.eq(self.first_row), x.eq(0), channel.eq(0)]
        with m.Elif(self.step):
            m.d.sync += [
                channel.eq(Mux(last_channel, 0, channel + 1)),
                x.eq(Mux(last_channel, Mux(last_column, 0, x + 1), x)),
                y.eq(y + self.last_of_row),
            ]
        return m


class LoadWalker(wiring.Component):
    """LOAD: beats from the read engine become tile words of the output tensor of a descriptor.

    start: pulse, `layer`, `first_row` and `base_address` (bytes) are valid with it; `busy` from the next
    cycle until every word can be read back. Words carry marks of layer NO_LAYER.
    """

    def __init__(self, config: HardwareConfig) -> None:
        self.config = config
        super().__init__(
            {
                "start": In(1),
                "layer": In(LAYER),
                "first_row": In(8),
                "base_address": In(config.axi_address_bits),
                "busy": Out(1),
                "command": Out(stream.Signature(dma_command(config))),
                "beats": In(stream.Signature(dma_beat(config))),
                "write": Out(stream.Signature(tile_write_layout(config))),
            }
        )

    def elaborate(self, platform: Any) -> Module:
        """Command first, then words until the last one, then wait until it has arrived."""
        m = Module()
        config, command = self.config, self.command
        tensor, wait = Signal(TENSOR), Signal(range(WRITE_LATENCY + 1))
        address, beats = Signal(config.axi_address_bits), Signal(BURST_COUNT_BITS)
        m.submodules.walk = self.walk = TensorWalk()
        all_done, moving = Signal(), Signal()
        self._words(m, moving)
        m.d.comb += [
            self.walk.tensor.eq(tensor),
            self.walk.first_row.eq(self.first_row),
            all_done.eq(self.write.valid & self.write.ready & self.write.payload.marks.last),
            command.payload.address.eq(address),
            command.payload.beats.eq(beats),
        ]
        with m.FSM() as fsm:
            m.d.comb += [
                self.busy.eq(~fsm.ongoing("IDLE")),
                moving.eq(fsm.ongoing("MOVE")),
            ]
            with m.State("IDLE"), m.If(self.start):
                m.d.comb += self.walk.start.eq(1)
                m.d.sync += [tensor[n].eq(v) for n, v in output_tensor(self.layer).items()]
                m.d.sync += [
                    address.eq(self.base_address + self.layer.dram_offset),
                    beats.eq(times(self.layer.dram_words, Const(config.word_beats, 3))),
                    wait.eq(0),
                ]
                m.next = "COMMAND"
            with m.State("COMMAND"):
                m.d.comb += command.valid.eq(1)
                with m.If(command.ready):
                    m.next = "MOVE"
            with m.State("MOVE"), m.If(all_done):
                m.next = "ARRIVE"
            with m.State("ARRIVE"):
                m.d.sync += wait.eq(wait + 1)
                with m.If(wait == WRITE_LATENCY):
                    m.next = "IDLE"
        return m

    def _words(self, m: Module, moving: Value) -> None:
        """Collect the beats of a word; its last beat completes it into the output register."""
        config, bits, write = self.config, tile_bits(self.config), self.write
        beats = config.word_beats
        kept = Signal(max(1, (beats - 1) * config.axi_data_bits), reset_less=True)
        beat, last_beat = Signal(range(beats)), Signal()
        word = Cat(kept, self.beats.payload.data) if beats > 1 else self.beats.payload.data
        m.d.comb += [
            last_beat.eq(beat == beats - 1),
            self.beats.ready.eq(moving & (~last_beat | ~write.valid | write.ready)),
            write.payload.marks.layer.eq(NO_LAYER),
            write.payload.marks.ordered.eq(1),
        ]
        with m.If(write.ready):
            m.d.sync += write.valid.eq(0)
        with m.If(self.beats.valid & self.beats.ready):
            m.d.sync += [beat.eq(Mux(last_beat, 0, beat + 1)), kept.eq(word[config.axi_data_bits :])]
            with m.If(last_beat):
                m.d.comb += self.walk.step.eq(1)
                m.d.sync += [
                    write.valid.eq(1),
                    write.payload.data.eq(word[:bits]),
                    write.payload.address.eq(self.walk.address),
                    write.payload.marks.last.eq(self.walk.last),
                ]


class StoreWalker(wiring.Component):
    """STORE: tile words of the input tensor of a descriptor go to the write engine.

    start: pulse, `layer`, `first_row` and `base_address` (bytes) are valid with it; `busy` rises in the next
    cycle and falls when the write engine is idle again (`engine_idle`).
    request, tile_valid, tile_data: the feature memory's store port, words come back in order.
    """

    def __init__(self, config: HardwareConfig) -> None:
        self.config = config
        super().__init__(
            {
                "start": In(1),
                "layer": In(LAYER),
                "first_row": In(8),
                "base_address": In(config.axi_address_bits),
                "busy": Out(1),
                "command": Out(stream.Signature(dma_command(config))),
                "beats": Out(stream.Signature(dma_beat(config))),
                "engine_idle": In(1),
                "request": Out(stream.Signature(TILE_ADDRESS)),
                "tile_valid": In(1),
                "tile_data": In(tile_bits(config)),
            }
        )

    def elaborate(self, platform: Any) -> Module:
        """Command first, then requests for as many words as the FIFO has room for."""
        m = Module()
        command, wait = self.command, Signal(range(SETTLE_CYCLES))
        address, beats = Signal(self.config.axi_address_bits), Signal(BURST_COUNT_BITS)
        tensor, store_beats = Signal(TENSOR, reset_less=True), Signal(3, reset_less=True)
        m.submodules.walk = self.walk = TensorWalk()
        requesting = Signal()
        self._requests(m, requesting)
        self._beats(m, store_beats)
        m.d.comb += [
            self.walk.tensor.eq(tensor),
            self.walk.first_row.eq(self.first_row),
            command.payload.address.eq(address),
            command.payload.beats.eq(beats),
        ]
        with m.FSM() as fsm:
            m.d.comb += [self.busy.eq(~fsm.ongoing("IDLE")), requesting.eq(fsm.ongoing("REQUEST"))]
            with m.State("IDLE"), m.If(self.start):
                m.d.comb += self.walk.start.eq(1)
                m.d.sync += [tensor[n].eq(v) for n, v in input_tensor(self.layer).items()]
                m.d.sync += [
                    store_beats.eq(self.layer.store_beats),
                    address.eq(self.base_address + self.layer.dram_offset),
                    beats.eq(times(self.layer.dram_words, self.layer.store_beats)),
                    self.words_left.eq(self.layer.dram_words),
                    wait.eq(0),
                ]
                m.next = "COMMAND"
            with m.State("COMMAND"):
                m.d.comb += command.valid.eq(1)
                with m.If(command.ready):
                    m.next = "REQUEST"
            with m.State("REQUEST"), m.If(self.request.valid & self.request.ready & self.walk.last):
                m.next = "SEND"
            with m.State("SEND"), m.If(self.words_left == 0):
                m.next = "FINISH"
            with m.State("FINISH"):
                m.d.sync += wait.eq(wait + (wait != SETTLE_CYCLES - 1))
                with m.If((wait == SETTLE_CYCLES - 1) & self.engine_idle):
                    m.next = "IDLE"
        return m

    def _requests(self, m: Module, requesting: Value) -> None:
        m.submodules.fifo = self.words = fifo.SyncFIFOBuffered(
            width=tile_bits(self.config), depth=STORE_DEPTH
        )
        room, asked = Signal(range(STORE_DEPTH + 1), init=STORE_DEPTH), Signal()
        left = Signal()  # a word has left the FIFO, a cycle ago
        self.taken = Signal()
        m.d.comb += [
            self.request.payload.eq(self.walk.address),
            self.request.valid.eq(requesting & (room != 0)),
            asked.eq(self.request.valid & self.request.ready),
            self.walk.step.eq(asked),
            self.words.w_en.eq(self.tile_valid),
            self.words.w_data.eq(self.tile_data),
        ]
        m.d.sync += [left.eq(self.taken), room.eq(room + left - asked)]

    def _beats(self, m: Module, store_beats: Value) -> None:
        """Send the first `store_beats` beats of every word out of the FIFO, least significant first."""
        config, beats = self.config, self.beats
        parts = [
            self.words.r_data[at : at + config.axi_data_bits]
            for at in range(0, tile_bits(config), config.axi_data_bits)
        ]
        beat, last_beat, sent = Signal(3), Signal(), Signal()
        self.words_left = Signal(BURST_COUNT_BITS)
        m.d.comb += [
            last_beat.eq(beat == store_beats - 1),
            beats.valid.eq(self.words.r_rdy),
            beats.payload.data.eq(select(parts, beat)),
            beats.payload.last.eq(last_beat & (self.words_left == 1)),
            sent.eq(beats.valid & beats.ready),
            self.taken.eq(sent & last_beat),
            self.words.r_en.eq(self.taken),
        ]
        with m.If(sent):
            m.d.sync += beat.eq(Mux(last_beat, 0, beat + 1))
            with m.If(last_beat):
                m.d.sync += self.words_left.eq(self.words_left - 1)
