"""Takes tile words from all writers and puts them into the feature memory, one a cycle."""

from __future__ import annotations

from functools import reduce
from operator import or_

from amaranth.hdl import Cat, Module, Mux, Signal, Value
from amaranth.lib import data, stream, wiring
from amaranth.lib.wiring import In, Out

from espalier.arch.config import HardwareConfig
from espalier.arch.feature_layout import BANK_SIDE, BANKS
from espalier_hw.arbitration import HoldingRegister, RoundRobin, delay, select
from espalier_hw.interfaces import TILE_ADDRESS, WRITE_MARKS, WRITTEN, tile_bits, tile_write_layout
from espalier_hw.tile_address import ADDRESS_BITS, TileAddress


class WritePort(wiring.Component):
    """Round robin over the writers, address calculation, writes of `FeatureMemory`.

    write: one stream a writer; the words of a writer keep their order.
    idle: level; low from the cycle after a word is accepted until the word is in the memory.
    coming: a word is written in the next cycle, into bank coming_row * 3 + coming_column.
    enable, address, data: the write; bank: index of the bank that is written, valid while `enable` is not
    zero. written: one bit a writer, whose word is written in this cycle; written_word, valid with it,
    says which one it is. Coordinates are those inside the map: eight bits.
    """

    def __init__(self, config: HardwareConfig, writers: int) -> None:
        """`writers`: number of streams that write."""
        self.config = config
        self.writers = writers
        self.layout = tile_write_layout(config)
        super().__init__(
            {
                "write": In(stream.Signature(self.layout)).array(writers),
                "coming": Out(1),
                "coming_row": Out(2),
                "coming_column": Out(2),
                "enable": Out(BANKS),
                "address": Out(ADDRESS_BITS),
                "data": Out(tile_bits(config)),
                "bank": Out(4),
                "written": Out(writers),
                "written_word": Out(WRITTEN),
                "idle": Out(1),
            }
        )

    def _choose(self, m: Module) -> tuple[data.View[data.StructLayout], Signal, list[Value], Value]:
        """Choose the word that goes next.

        Returns its address, whose word it is (one-hot, zero if there is none), marks and data of all writers
        (zero but the chosen one's), all one cycle late, and whether any waits now.
        """
        m.submodules.turn = turn = RoundRobin(self.writers)
        held = []
        for index in range(self.writers):
            register = m.submodules[f"writer_{index}"] = HoldingRegister(self.layout)
            wiring.connect(m, wiring.flipped(self.write[index]), register.input)
            m.d.comb += register.output.ready.eq(turn.grant[index])
            held.append(register.output)
        waiting = Cat(output.valid for output in held)
        m.d.comb += [turn.requests.eq(waiting), turn.advance.eq(1)]
        address, owner = Signal(TILE_ADDRESS, reset_less=True), Signal(self.writers)
        chosen_address = select(turn.grant, [output.payload.address for output in held])
        m.d.sync += [owner.eq(turn.grant), Value.cast(address).eq(chosen_address)]
        # Registers with a reset cost no LUTs, and their OR takes one LUT a bit: there is time for it,
        # because the address must be calculated first.
        contents: list[Value] = []
        for index, output in enumerate(held):
            content = Signal(self._content_bits, name=f"content_{index}", reset_less=True)
            word = Cat(output.payload.marks, output.payload.data)
            m.d.sync += content.eq(Mux(turn.grant[index], word, 0))
            contents.append(content)
        return address, owner, contents, waiting.any()

    @property
    def _content_bits(self) -> int:
        return WRITE_MARKS.size + tile_bits(self.config)

    def elaborate(self, platform: object) -> Module:
        """Choose, then calculate the address while the data wait, then decode the bank."""
        m = Module()
        chosen, owner, contents, waiting = self._choose(m)
        m.submodules.tile_address = position = TileAddress()
        m.d.comb += position.address.eq(chosen)
        place = Cat(chosen.tile_y[:8], chosen.tile_x[:8], chosen.channel)
        owners = [owner]
        content = reduce(or_, contents)
        for step in range(TileAddress.LATENCY + 1):
            owners.append(delay(m, owners[-1], 1, control=True, name=f"owner_{step}"))
            # Registers that only move with a word: shift registers would take a LUT a bit.
            later = Signal(self._content_bits, name=f"moved_{step}", reset_less=True)
            with m.If(owners[step].any()):
                m.d.sync += later.eq(content)
            content = later

        bank, enable = Signal(4, reset_less=True), Signal(BANKS)
        address = Signal(ADDRESS_BITS, reset_less=True)
        index = position.bank_row * BANK_SIDE + position.bank_column
        arriving = owners[TileAddress.LATENCY].any()
        m.d.sync += [
            bank.eq(index),
            address.eq(position.word),
            enable.eq(Cat(arriving & (index == number) for number in range(BANKS))),
        ]
        marks = WRITE_MARKS.size
        m.d.comb += [
            self.coming.eq(arriving),
            self.coming_row.eq(position.bank_row),
            self.coming_column.eq(position.bank_column),
            self.bank.eq(bank),
            self.enable.eq(enable),
            self.address.eq(address),
            self.data.eq(content[marks:]),
            self.written.eq(owners[-1]),
            Value.cast(self.written_word).eq(
                Cat(delay(m, place, TileAddress.LATENCY + 1, name="place"), content[:marks])
            ),
            self.idle.eq(~(waiting | Cat(owners).any())),
        ]
        return m
