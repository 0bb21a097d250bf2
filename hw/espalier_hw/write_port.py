"""Takes tile words from all writers and puts them into the feature memory, one a cycle."""

from __future__ import annotations

from amaranth.hdl import Cat, Module, Signal, Value
from amaranth.lib import stream, wiring
from amaranth.lib.wiring import In, Out

from espalier.arch.config import HardwareConfig
from espalier.arch.feature_layout import BANK_SIDE, BANKS
from espalier_hw.arbitration import HoldingRegister, RoundRobin, delay, select
from espalier_hw.interfaces import tile_bits, tile_write_layout
from espalier_hw.tile_address import ADDRESS_BITS, TileAddress


class WritePort(wiring.Component):
    """Round robin over the writers, address calculation, write port of `FeatureMemory`.

    idle: level; low from the cycle after a word is accepted until the word is in the memory.
    bank: index of the bank that is written, valid while `enable` is not zero.
    """

    def __init__(self, config: HardwareConfig, writers: int) -> None:
        """`writers`: number of streams that write."""
        self.config = config
        self.writers = writers
        self.layout = tile_write_layout(config)
        super().__init__(
            {
                "write": In(stream.Signature(self.layout)).array(writers),
                "enable": Out(BANKS),
                "address": Out(ADDRESS_BITS),
                "data": Out(tile_bits(config)),
                "bank": Out(4),
                "idle": Out(1),
            }
        )

    def _choose(self, m: Module) -> tuple[Signal, Signal, Value]:
        """Choose the word that goes next; returns it, whether there is one, and whether any waits."""
        m.submodules.turn = turn = RoundRobin(self.writers)
        held = []
        for index in range(self.writers):
            register = m.submodules[f"writer_{index}"] = HoldingRegister(self.layout)
            wiring.connect(m, wiring.flipped(self.write[index]), register.input)
            m.d.comb += register.output.ready.eq(turn.grant[index])
            held.append(register.output)
        waiting = Cat(output.valid for output in held)
        m.d.comb += [turn.requests.eq(waiting), turn.advance.eq(1)]
        word, valid = Signal(self.layout, reset_less=True), Signal()
        m.d.sync += valid.eq(waiting.any())
        with m.If(waiting.any()):
            m.d.sync += Value.cast(word).eq(select(turn.grant, [output.payload for output in held]))
        return word, valid, waiting.any()

    def elaborate(self, platform: object) -> Module:
        """Choose, then calculate the address while the data wait, then decode the bank."""
        m = Module()
        word, valid, waiting = self._choose(m)
        m.submodules.tile_address = position = TileAddress()
        m.d.comb += position.address.eq(word.address)
        steps = TileAddress.LATENCY
        on_the_way: list[Value] = [waiting, valid]
        for index in range(steps):
            on_the_way.append(delay(m, on_the_way[-1], 1, control=True, name=f"valid_{index}"))
        arrived = on_the_way[-1]

        bank, enable = Signal(4, reset_less=True), Signal(BANKS)
        address = Signal(ADDRESS_BITS, reset_less=True)
        index = position.bank_row * BANK_SIDE + position.bank_column
        m.d.sync += [
            bank.eq(index),
            address.eq(position.word),
            enable.eq(Cat(arrived & (index == number) for number in range(BANKS))),
        ]
        m.d.comb += [
            self.bank.eq(bank),
            self.enable.eq(enable),
            self.address.eq(address),
            self.data.eq(delay(m, word.data, steps + 1, name="data")),
            self.idle.eq(~(Cat(on_the_way).any() | enable.any())),
        ]
        return m
