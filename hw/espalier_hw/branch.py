"""A branch: PEs that hear the same window words, with their window supply, pool unit and output stage."""

from __future__ import annotations

from typing import Any

from amaranth.hdl import Module, Mux, Signal, Value
from amaranth.lib import wiring

from espalier.arch.config import HardwareConfig
from espalier.arch.program import Opcode
from espalier_hw import hierarchy
from espalier_hw.interfaces import branch_signature
from espalier_hw.output_stage import OutputStage
from espalier_hw.pe import PE
from espalier_hw.pool import PoolUnit
from espalier_hw.window_walker import WindowWalker
from espalier_hw.word_writer import WordWriter


class Branch(wiring.Component):
    """See `branch_signature` for the ports.

    Window walker and word writer both walk the layer's windows, the first ahead of the second by the
    windows on their way. The PEs run on their own between ring and accumulators; the output stage takes
    what they have finished, in the order of its table.
    """

    def __init__(self, config: HardwareConfig, primitives: str = "behavioural") -> None:
        self.config = config
        self.primitives = primitives
        super().__init__(branch_signature(config))

    def elaborate(self, platform: Any) -> Module:
        """Build the block."""
        m = Module()
        m.submodules.walker = walker = WindowWalker(self.config)
        m.submodules.writer = writer = WordWriter(self.config)
        m.submodules.pool = pool = PoolUnit(self.config)
        m.submodules.output = output = OutputStage(self.config, self.primitives)
        sets, go = self._control(m, output)
        for block in (walker, writer, output):
            m.d.comb += [
                block.go.eq(go),
                block.layer.eq(self.layer),
                block.branch.eq(self.branch),
            ]
        wiring.connect(m, walker.request, wiring.flipped(self.window_request))
        wiring.connect(m, output.residual_request, wiring.flipped(self.residual_request))
        wiring.connect(m, output.write, wiring.flipped(self.write))
        wiring.connect(m, wiring.flipped(self.table_write), output.table_write)
        for block in (walker, writer):
            wiring.connect(m, wiring.flipped(self.pattern_write), block.pattern_write)
        m.d.comb += [
            walker.rows_ready.eq(self.rows_ready),
            walker.taken.eq(writer.taken),
            writer.sets.eq(sets),
            writer.window_valid.eq(self.window_valid),
            writer.window_data.eq(self.window_data),
            writer.word_ready.eq(pool.word_ready),
            pool.average.eq(self.layer.average),
            pool.word_valid.eq(writer.word_valid),
            pool.word.eq(writer.ring_write.data),
            pool.taps.eq(writer.taps),
            pool.channel_end.eq(writer.channel_end),
            pool.take.eq(output.pool_take),
            output.pool_valid.eq(pool.result_valid),
            output.pool_result.eq(pool.result),
            output.residual_valid.eq(self.residual_valid),
            output.residual_data.eq(self.residual_data),
        ]
        self._place_pes(m, platform, writer, output, sets)
        m.d.comb += [
            self.events.ring_full.eq(writer.ring_full),
            self.events.window_wait.eq(writer.window_wait),
            self.events.output_wait.eq(output.output_wait),
        ]
        return m

    def _control(self, m: Module, output: OutputStage) -> tuple[Signal, Signal]:
        """Start the blocks a cycle after `start`, when what they derive from the descriptor is there.

        Returns the number of sets, and the pulse that starts everything but the PEs.
        """
        running, go = Signal(), Signal()
        sets = Signal(19)
        begins = self.start & (self.branch.tiles != 0)
        passes = Mux(self.layer.opcode == Opcode.POOL, 1, self.layer.passes)
        # Shifts and additions: a multiplication this small is not worth a DSP slice.
        terms = [Mux(passes[bit], self.branch.tiles << bit, 0) for bit in range(len(passes))]
        pairs = [low + high for low, high in zip(terms[::2], terms[1::2], strict=True)]
        m.d.sync += [go.eq(begins), sets.eq((pairs[0] + pairs[1]) + pairs[2])]
        with m.If(begins):
            m.d.sync += running.eq(1)
        with m.Elif(output.finished):
            m.d.sync += running.eq(0)
        m.d.comb += self.done.eq(~running)
        return sets, go

    def _place_pes(
        self, m: Module, platform: Any, writer: WordWriter, output: OutputStage, sets: Signal
    ) -> None:
        """All PEs get the same words; each has its own stream."""
        start, restart = Signal(), Signal()
        m.d.sync += [
            start.eq(self.start & (self.layer.opcode == Opcode.CONV)),
            restart.eq(self.restart),
        ]
        events: dict[str, list[Value]] = {}
        for number in range(self.config.pes_per_branch):
            pe = PE(self.config, self.primitives)
            hierarchy.place(m, platform, f"pe_{number}", "espalier_pe", pe)
            m.d.comb += [
                pe.restart.eq(restart),
                pe.start.eq(start),
                pe.sets.eq(sets),
                pe.blocks.eq(self.layer.blocks),
                pe.passes.eq(self.layer.passes),
                pe.block_words.eq(self.layer.block_words),
                pe.stream_write.enable.eq(self.stream_write.enable & (self.stream_write_pe == number)),
                pe.stream_write.address.eq(self.stream_write.address),
                pe.stream_write.data.eq(self.stream_write.data),
                pe.commit.eq(writer.commit),
                writer.release[number].eq(pe.release),
                output.set_done[number].eq(pe.set_done),
                pe.drain_request.eq(output.drain_request[number]),
                output.drain_valid[number].eq(pe.drain_valid),
                output.drain_data[number].eq(pe.drain_data),
            ]
            m.d.comb += [
                pe.ring_write.enable.eq(writer.ring_write.enable),
                pe.ring_write.address.eq(writer.ring_write.address),
                pe.ring_write.data.eq(writer.ring_write.data),
            ]
            for event, value in (
                ("operators", pe.operator_issued),
                ("null_operators", pe.null_issued),
                ("ring_empty", pe.ring_empty),
                ("accumulators_full", pe.accumulators_full),
            ):
                events.setdefault(event, []).append(value)
        for event, values in events.items():
            m.d.sync += self.events[event].eq(_count(values))


def _count(bits: list[Value]) -> Value:
    """Count the bits that are set, as a balanced tree."""
    if len(bits) == 1:
        return bits[0]
    half = len(bits) // 2
    return _count(bits[:half]) + _count(bits[half:])
