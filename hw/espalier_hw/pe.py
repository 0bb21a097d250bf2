"""Processing element: an operator stream, a window ring, and T*T lanes that apply one operator a cycle."""

from __future__ import annotations

from typing import Any

from amaranth.hdl import Cat, Const, Module, Signal
from amaranth.lib import wiring

from espalier.arch.config import HardwareConfig
from espalier_hw.accumulators import Accumulators
from espalier_hw.interfaces import pe_signature
from espalier_hw.issue import Issue, issue_layout
from espalier_hw.lanes import PRIMITIVES, AddedPair, digit_selections, make_pair, pair_bits
from espalier_hw.ring import WindowRing
from espalier_hw.stream_fetch import StreamFetch
from espalier_hw.streamed_fetch import StreamedFetch


class PE(wiring.Component):
    """Ports: `interfaces.pe_signature`.

    Stages: `Issue` decides and registers; ring read (0), row multiplexer (1), product (2), sum (3), the sum
    is in the lanes' P registers and stored (4), `set_done` (5). Nothing stalls after the decision.
    Between the last operator of a layer and the first of the next are three cycles, if its words are there.

    dsp_pairs: lane pairs in DSP slices, the others are fabric. primitives: "behavioural", or "xilinx" for
    instances of DSP slices and fabric lanes of few LUTs, with equal behaviour.

    Raises:
        ValueError: unknown primitives, or more DSP pairs than the tile has.
    """

    def __init__(self, config: HardwareConfig, dsp_pairs: int, primitives: str = "behavioural") -> None:
        if primitives not in PRIMITIVES:
            raise ValueError(f"primitives must be one of {PRIMITIVES}, not {primitives!r}")
        if not 0 <= dsp_pairs <= config.pairs:
            raise ValueError(f"dsp_pairs must be from 0 to {config.pairs}, not {dsp_pairs}")
        self._config, self._dsp_pairs, self._primitives = config, dsp_pairs, primitives
        super().__init__(pe_signature(config))

    def elaborate(self, platform: Any) -> Module:
        """Sub-blocks and the delay line that takes an operator's flags along."""
        m = Module()
        config = self._config
        fetch = StreamedFetch(config) if config.streaming else StreamFetch(config)
        m.submodules.fetch = fetch
        m.submodules.issue = issue = Issue(config)
        m.submodules.ring = ring = WindowRing(config)
        bits = sum(pair_bits(config, self._dsp_pairs, index) for index in range(config.pairs))
        m.submodules.accumulators = accumulators = Accumulators(config, bits)
        wiring.connect(m, fetch.layers, issue.layers)
        wiring.connect(m, fetch.operators, issue.operators)
        self._connect_control(m, fetch, issue, accumulators)
        # stage[n]: the operator's flags n cycles after the ring read. They need no reset: `issued` has
        # one, and a reset lasts longer than the four cycles that it takes to get here.
        stage = [issue.issued]
        for index in range(1, 5):
            stage.append(Signal(issue_layout(config), name=f"stage_{index}", reset_less=True))
            m.d.sync += stage[index].eq(stage[index - 1])
        m.d.comb += [
            ring.write.enable.eq(self.ring_write.enable),
            ring.write.address.eq(self.ring_write.address),
            ring.write.data.eq(self.ring_write.data),
            ring.address.eq(stage[0].address),
            ring.tap.eq(stage[0].tap),
            accumulators.read_enable.eq(stage[2].load & ~stage[2].clear),
            accumulators.read_address.eq(stage[2].accumulator),
            accumulators.write_enable.eq(stage[4].store),
            accumulators.write_address.eq(stage[4].accumulator),
        ]
        m.d.sync += self.set_done.eq(stage[4].set_end)
        self._connect_lanes(m, stage, ring, accumulators)
        return m

    def _connect_control(
        self, m: Module, fetch: StreamFetch, issue: Issue, accumulators: Accumulators
    ) -> None:
        """Everything that is not on the way of pixels and sums."""
        m.d.comb += [
            fetch.restart.eq(self.restart),
            fetch.write.enable.eq(self.stream_write.enable),
            fetch.write.address.eq(self.stream_write.address),
            fetch.write.data.eq(self.stream_write.data),
            issue.freed.eq(accumulators.freed),
            accumulators.restart.eq(self.restart),
            accumulators.drain_request.eq(self.drain_request),
            self.drain_valid.eq(accumulators.drain_valid),
        ]
        if isinstance(fetch, StreamedFetch):
            m.d.comb += [
                fetch.loaded.eq(self.loaded),
                fetch.required.eq(self.required),
                self.space.eq(fetch.space),
            ]
        for name in ("restart", "commit"):
            m.d.comb += getattr(issue, name).eq(getattr(self, name))
        for name in (
            "release",
            "release_wide",
            "operator_issued",
            "null_issued",
            "ring_empty",
            "accumulators_full",
        ):
            m.d.comb += getattr(self, name).eq(getattr(issue, name))

    def _connect_lanes(
        self, m: Module, stage: list[Any], ring: WindowRing, accumulators: Accumulators
    ) -> None:
        """Pair i holds lanes 2i and 2i+1; `drain_data` has `pair_bits` for each pair, the memory fewer."""
        sums, drained, offset = [], [], 0
        pairs = [
            make_pair(self._config, self._dsp_pairs, index, self._primitives)
            for index in range(self._config.pairs)
        ]
        if any(isinstance(pair, AddedPair) for pair in pairs):
            digit = digit_selections(m, stage[0].weight)
        for index, pair in enumerate(pairs):
            m.submodules[f"pair_{index}"] = pair
            bits = pair_bits(self._config, self._dsp_pairs, index)
            stored = slice(offset, offset + bits)
            offset += bits
            m.d.comb += [
                pair.pixels.eq(ring.pixels[16 * index : 16 * index + 16]),
                pair.weight.eq(stage[1].weight),
                pair.weight_registered.eq(stage[2].weight),
                pair.load.eq(stage[2].load),
                pair.load_registered.eq(stage[3].load),
                pair.clear.eq(stage[2].clear),
                pair.initial.eq(accumulators.read_data[stored]),
            ]
            if isinstance(pair, AddedPair):
                m.d.comb += pair.digit.eq(digit)
            sums.append(pair.sum[:bits])
            drained.append(Cat(accumulators.drain_data[stored], Const(0, self._config.pair_bits - bits)))
        m.d.comb += [accumulators.write_data.eq(Cat(*sums)), self.drain_data.eq(Cat(*drained))]
