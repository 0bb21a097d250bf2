"""A branch: PEs that hear the same window words, with their window supply and output stage."""

from __future__ import annotations

from typing import Any

from amaranth.hdl import Cat, Module, Mux, Signal, Value
from amaranth.lib import wiring

from espalier.arch.config import HardwareConfig
from espalier_hw import hierarchy
from espalier_hw.interfaces import branch_signature
from espalier_hw.layer_stage import LayerStage
from espalier_hw.output_stage import OutputStage
from espalier_hw.pe import PE
from espalier_hw.window_walker import WindowWalker
from espalier_hw.word_writer import WordWriter


class Branch(wiring.Component):
    """See `branch_signature` for the ports. number: which branch of the configuration; decides its kind.

    Window walker, word writer and output stage each have a layer of their own: the walker is ahead of the
    writer by the windows on their way, and both may be a layer ahead of the output stage. The PEs run on
    their own between ring and accumulators; the output stage takes what they have finished, in the order of
    its table.
    """

    def __init__(self, config: HardwareConfig, number: int = 0, primitives: str = "behavioural") -> None:
        self.config = config
        self.primitives = primitives
        self.kind = "_lut" if config.is_lut(number) else ""
        self.pes = config.branch_pes(number)
        self.dsp_pairs = config.branch_dsp_pairs(number)
        super().__init__(branch_signature(config, self.pes))

    def elaborate(self, platform: Any) -> Module:
        """Build the block."""
        m = Module()
        m.submodules.walker = walker = WindowWalker(self.config)
        m.submodules.writer = writer = WordWriter(self.config, self.pes)
        m.submodules.output = output = OutputStage(self.config, self.pes, self.dsp_pairs, self.primitives)
        restart = Signal()
        m.d.sync += restart.eq(self.restart)
        self._stages(m, walker, writer, output, restart)
        wiring.connect(m, walker.request, wiring.flipped(self.window_request))
        wiring.connect(m, output.residual_request, wiring.flipped(self.residual_request))
        wiring.connect(m, output.write, wiring.flipped(self.write))
        wiring.connect(m, wiring.flipped(self.table_write), output.table_write)
        for block in (walker, writer):
            wiring.connect(m, wiring.flipped(self.pattern_write), block.pattern_write)
        m.d.comb += [
            walker.taken.eq(writer.taken),
            writer.window_valid.eq(self.window_valid),
            writer.window_data.eq(self.window_data),
            output.residual_valid.eq(self.residual_valid),
            output.residual_data.eq(self.residual_data),
        ]
        m.d.comb += [own.eq(shared) for own, shared in zip(walker.progress, self.progress, strict=True)]
        self._place_pes(m, platform, writer, output, restart)
        m.d.comb += [
            self.events.ring_full.eq(writer.ring_full),
            self.events.window_wait.eq(writer.window_wait),
            self.events.output_wait.eq(output.output_wait),
        ]
        return m

    def _stages(
        self, m: Module, walker: WindowWalker, writer: WordWriter, output: OutputStage, restart: Signal
    ) -> None:
        """Give each block its own layer."""
        stages = {}
        for name, block in (("walker", walker), ("writer", writer), ("output", output)):
            m.submodules[f"{name}_stage"] = stages[name] = stage = LayerStage()
            m.d.comb += [
                stage.offer.eq(self.offer),
                stage.layer.eq(self.layer),
                stage.branch.eq(self.branch),
                stage.bank.eq(self.bank),
                stage.busy.eq(block.busy),
                stage.allow.eq(self.outputs_take if name == "output" else 1),
                block.go.eq(stage.go),
                block.layer.eq(stage.current),
                block.branch.eq(stage.current_branch),
            ]
            if name != "output":
                m.d.comb += block.bank.eq(stage.current_bank)
        m.d.comb += [
            writer.restart.eq(restart),
            output.restart.eq(restart),
            output.offer.eq(self.offer & (self.branch.tiles != 0)),
            output.offered.eq(self.layer),
            self.windows_past.eq(~stages["walker"].pending),
            self.outputs_wait.eq(stages["output"].wait),
            self.pending.eq(_any(stage.pending for stage in stages.values())),
            self.idle.eq(~_any(~stage.idle for stage in stages.values())),
        ]
        # Shifts and additions: a multiplication this small is not worth a DSP slice.
        passes, tiles = stages["writer"].current.passes, stages["writer"].current_branch.tiles
        terms = [Mux(passes[bit], tiles << bit, 0) for bit in range(len(passes))]
        pairs = [low + high for low, high in zip(terms[::2], terms[1::2], strict=True)]
        m.d.sync += writer.sets.eq((pairs[0] + pairs[1]) + pairs[2])

    def _place_pes(
        self, m: Module, platform: Any, writer: WordWriter, output: OutputStage, restart: Signal
    ) -> None:
        """All PEs get the same words; each has its own stream."""
        events: dict[str, list[Value]] = {}
        pes: list[PE] = []
        for number in range(self.pes):
            pe = PE(self.config, self.dsp_pairs, self.primitives)
            pes.append(pe)
            hierarchy.place(m, platform, f"pe_{number}", f"espalier_pe{self.kind}", pe)
            m.d.comb += [
                pe.restart.eq(restart),
                pe.stream_write.enable.eq(self.stream_write.enable & (self.stream_write_pe == number)),
                pe.stream_write.address.eq(self.stream_write.address),
                pe.stream_write.data.eq(self.stream_write.data),
                pe.commit.eq(writer.commit),
                writer.release[number].eq(pe.release),
                writer.release_wide[number].eq(pe.release_wide),
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
        if self.config.streaming:
            self._batches(m, pes)
        for event, values in events.items():
            m.d.sync += self.events[event].eq(_count(values))

    def _batches(self, m: Module, pes: list[PE]) -> None:
        """Hand out the counts of batches, and collect what the PEs say of them."""
        for name in ("loaded", "required"):
            kept = Signal.like(getattr(self, name), name=name)
            m.d.sync += kept.eq(getattr(self, name))
            m.d.comb += [getattr(pe, name).eq(kept) for pe in pes]
        m.d.sync += self.space.eq(Cat(pe.space for pe in pes).all())


def _any(bits: Any) -> Value:
    return Cat(bits).any()


def _count(bits: list[Value]) -> Value:
    """Count the bits that are set, as a balanced tree."""
    if len(bits) == 1:
        return bits[0]
    half = len(bits) // 2
    return _count(bits[:half]) + _count(bits[half:])
