"""Takes tile words from some of the writers and puts them into the feature memory, one a cycle."""

from __future__ import annotations

from functools import reduce
from operator import or_

from amaranth.hdl import Cat, Module, Mux, Signal, Value
from amaranth.lib import data, stream, wiring
from amaranth.lib.wiring import In, Out

from espalier.arch.config import HardwareConfig
from espalier.arch.feature_layout import BANK_SIDE, BANKS
from espalier_hw.arbitration import HoldingRegister, RoundRobin, delay, look_up, room_for_more, select
from espalier_hw.interfaces import TILE_ADDRESS, WRITE_MARKS, WRITTEN, tile_bits, tile_write_layout
from espalier_hw.lutram_fifo import EarlyFifo
from espalier_hw.tile_address import ADDRESS_BITS, TileAddress, one_bank

# Words of a port that gives way, between choice and memory: as many as cycles from a choice until its place
# is known to be free again.
_UNDER_WAY = 8
_PLACE = data.StructLayout({"row": 2, "column": 2, "word": ADDRESS_BITS})


class WritePort(wiring.Component):
    """Round robin over the writers, address calculation, writes of `FeatureMemory`.

    write: one stream a writer; the words of a writer keep their order.
    idle: level; low from the cycle after a word is accepted until the word is in the memory.
    coming: a word is written in the next cycle, into bank coming_row * 3 + coming_column.
    enable, address, data: the write; bank: index of the bank that is written, valid while `enable` is not
    zero. written: one bit a writer, whose word is written in this cycle; written_word, valid with it,
    says which one it is. Coordinates are those inside the map: eight bits.

    Of two ports on one memory, the second `yields`: its word waits in a cycle in which the first
    (`other_*`: its `coming*`) writes into the same bank. Its own `coming` then only says that it may write.
    """

    def __init__(self, config: HardwareConfig, writers: int, yields: bool = False) -> None:
        """`writers`: number of streams that write."""
        self.config = config
        self.writers = writers
        self.yields = yields
        self.layout = tile_write_layout(config)
        super().__init__(
            {
                "write": In(stream.Signature(self.layout)).array(writers),
                "other_coming": In(1),
                "other_row": In(2),
                "other_column": In(2),
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

    def _choose(
        self, m: Module, room: Value
    ) -> tuple[data.View[data.StructLayout], Signal, list[Value], Value]:
        """Choose the word that goes next, while there is `room`.

        Returns its address, whose word it is (one-hot, zero if there is none), marks and data of all writers
        (zero but the chosen one's), all one cycle late, and whether any waits now.
        """
        m.submodules.turn = turn = RoundRobin(self.writers)
        held = []
        for index in range(self.writers):
            register = m.submodules[f"writer_{index}"] = HoldingRegister(self.layout)
            wiring.connect(m, wiring.flipped(self.write[index]), register.input)
            m.d.comb += register.output.ready.eq(turn.grant[index] & room)
            held.append(register.output)
        waiting = Cat(output.valid for output in held)
        m.d.comb += [turn.requests.eq(waiting), turn.advance.eq(room)]
        address, owner = Signal(TILE_ADDRESS, reset_less=True), Signal(self.writers)
        chosen_address = select(turn.grant, [output.payload.address for output in held])
        m.d.sync += [owner.eq(Mux(room, turn.grant, 0)), Value.cast(address).eq(chosen_address)]
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
        room = Signal()
        chosen, owner, contents, waiting = self._choose(m, room)
        m.submodules.tile_address = position = TileAddress(bool(self.config.feature_rings))
        m.d.comb += position.address.eq(chosen)
        about = delay(
            m, Cat(chosen.tile_y[:8], chosen.tile_x[:8], chosen.channel), TileAddress.LATENCY, name="about"
        )
        owners = [owner]
        content = reduce(or_, contents)
        for step in range(TileAddress.LATENCY):
            owners.append(delay(m, owners[-1], 1, control=True, name=f"owner_{step}"))
            # Registers that only move with a word: shift registers would take a LUT a bit.
            later = Signal(self._content_bits, name=f"moved_{step}", reset_less=True)
            with m.If(owners[step].any()):
                m.d.sync += later.eq(content)
            content = later
        place = Signal(_PLACE)
        m.d.comb += place.eq(Cat(position.bank_row, position.bank_column, position.word))
        busy = waiting | Cat(owners).any()
        if self.yields:
            starts, place, writing, about, content = self._give_way(m, room, owners, place, about, content)
            busy |= m.submodules.waiting.available
        else:
            m.d.comb += [room.eq(1), self.coming.eq(owners[-1].any())]
            starts, writing = self.coming, owners[-1]
        m.d.comb += [self.coming_row.eq(place.row), self.coming_column.eq(place.column)]
        self._write(m, place, starts, writing, about, content, busy)
        return m

    def _give_way(
        self, m: Module, room: Signal, owners: list[Value], place: Value, about: Value, content: Value
    ) -> tuple[Value, data.View[data.StructLayout], Value, Value, Value]:
        """Keep words whose address is known until the other port leaves their bank alone.

        Returns whether a word goes, its place, whose it is, and what else belongs to it.
        """
        fields = [Value.cast(place), owners[-1], about, content]
        # The first fields of a place, its bank, decide in the cycle in which they are the oldest.
        bank_bits = _PLACE["word"].offset
        m.submodules.waiting = waiting = EarlyFifo(sum(map(len, fields)), _UNDER_WAY, bank_bits)
        m.d.comb += [waiting.write.eq(owners[-1].any()), waiting.write_data.eq(Cat(fields))]
        parts, start = [], 0
        for field in fields:
            parts.append(waiting.read_data[start : start + len(field)])
            start += len(field)
        oldest = Signal(_PLACE, name="oldest")
        clash = self.other_coming & (oldest.row == self.other_row) & (oldest.column == self.other_column)
        going = Signal()
        m.d.comb += [
            oldest.as_value().eq(parts[0]),
            going.eq(waiting.available & ~clash),
            waiting.read.eq(going),
            room.eq(room_for_more(m, _UNDER_WAY, owners[0].any(), going)),
            self.coming.eq(waiting.available),
        ]
        return going, oldest, Mux(going, parts[1], 0), parts[2], parts[3]

    def _write(
        self,
        m: Module,
        place: data.View[data.StructLayout],
        starts: Value,
        writing: Value,
        about: Value,
        content: Value,
        busy: Value,
    ) -> None:
        """Register everything once more, the bank decoded."""
        numbers = [row * BANK_SIDE + column for row in range(4) for column in range(4)]
        bank, enable, written = Signal(4, reset_less=True), Signal(BANKS), Signal(self.writers)
        address = Signal(ADDRESS_BITS, reset_less=True)
        kept = Signal(self._content_bits, name="kept", reset_less=True)
        word = Signal(len(about), name="word", reset_less=True)
        m.d.sync += [
            bank.eq(look_up(Cat(place.column, place.row), numbers, 4)),
            address.eq(place.word),
            enable.eq(Cat(starts & chosen for chosen in one_bank(place.row, place.column))),
            written.eq(writing),
            word.eq(about),
        ]
        with m.If(starts):
            m.d.sync += kept.eq(content)
        marks = WRITE_MARKS.size
        m.d.comb += [
            self.bank.eq(bank),
            self.enable.eq(enable),
            self.address.eq(address),
            self.data.eq(kept[marks:]),
            self.written.eq(written),
            Value.cast(self.written_word).eq(Cat(word, kept[:marks])),
            self.idle.eq(~(busy | written.any())),
        ]
