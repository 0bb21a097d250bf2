"""Reads single tiles: residual tiles for the branches, tiles to store for the DMA."""

from __future__ import annotations

from collections.abc import Mapping

from amaranth.hdl import Cat, Module, Mux, Signal, Value
from amaranth.lib import stream, wiring
from amaranth.lib.wiring import In, Out

from espalier.arch.feature_layout import BANKS
from espalier_hw.arbitration import HoldingRegister, RoundRobin, delay, room_for_more, select
from espalier_hw.feature_memory import FeatureMemory, at_least
from espalier_hw.interfaces import TILE_ADDRESS
from espalier_hw.read_queue import ReadQueue
from espalier_hw.tile_address import ADDRESS_BITS, TileAddress, one_bank

# Reads between choice and memory: as many as cycles from a choice until its place is known to be free again.
_UNDER_WAY = 8


class TileReader(wiring.Component):
    """One single read a cycle: residual tiles (round robin), then tiles to store.

    A read waits in a cycle in which a word is written into its bank, and one of another requester may go
    before it (see `ReadQueue`). A read from the small part of a bank (see `FeatureBank`) takes two cycles, as
    it may be refused, and is repeated while it is: while windows come from these words too. They do not come
    for ever: branches that wait for a residual tile soon stop asking for windows, all others have enough of
    them when the layer ends.
    residual_valid (one bit a branch), store_valid: the requester's word is on `FeatureMemory.tile_data` now;
    answers come in the order of the reads and are never refused. coming*: of both write ports, see
    `WritePort`.
    tile_enable, tile_address, refused: ports of `FeatureMemory`.
    """

    def __init__(
        self, branches: int, small_parts: Mapping[int, int] | None = None, rings: bool = False
    ) -> None:
        """`branches`: requesters of residual tiles; `small_parts`: bank to first word, see there.

        rings: see `TileAddress`.
        """
        self.branches, self.rings = branches, rings
        self.small_parts = dict(small_parts or {})
        super().__init__(
            {
                "residual_request": In(stream.Signature(TILE_ADDRESS)).array(branches),
                "store_request": In(stream.Signature(TILE_ADDRESS)),
                "coming": In(1).array(2),
                "coming_row": In(2).array(2),
                "coming_column": In(2).array(2),
                "tile_enable": Out(BANKS),
                "tile_address": Out(ADDRESS_BITS),
                "refused": In(1),
                "residual_valid": Out(branches),
                "store_valid": Out(1),
            }
        )

    def _choose(self, m: Module, room: Value) -> tuple[Signal, Signal]:
        """Choose the next request; returns its address and whose it is (one-hot, or zero), one cycle late."""
        held = []
        for index, request in enumerate([*self.residual_request, self.store_request]):
            register = m.submodules[f"held_{index}"] = HoldingRegister(TILE_ADDRESS)
            wiring.connect(m, wiring.flipped(request), register.input)
            held.append(register.output)
        m.submodules.turn = turn = RoundRobin(self.branches)
        residuals = Cat(output.valid for output in held[:-1])
        grant = Signal(self.branches + 1)
        m.d.comb += [
            turn.requests.eq(residuals),
            turn.advance.eq(room),
            grant.eq(Cat(turn.grant, held[-1].valid & ~residuals.any())),
        ]
        m.d.comb += [output.ready.eq(grant[index] & room) for index, output in enumerate(held)]
        address, owner = Signal(TILE_ADDRESS, reset_less=True), Signal(self.branches + 1)
        m.d.sync += [
            Value.cast(address).eq(select(grant, [output.payload for output in held])),
            owner.eq(Mux(room, grant, 0)),
        ]
        return Value.cast(address), owner

    def elaborate(self, platform: object) -> Module:
        """Choose, calculate the place, keep it until its bank is free."""
        m = Module()
        room = Signal()
        address, owner = self._choose(m, room)
        m.submodules.tile_address = position = TileAddress(self.rings)
        m.d.comb += Value.cast(position.address).eq(address)
        arrived = delay(m, owner, TileAddress.LATENCY, control=True, name="owner")

        m.submodules.queue = queue = ReadQueue(self.branches + 1, _UNDER_WAY)
        banks = one_bank(position.bank_row, position.bank_column)
        # One bit a bank, and whether the read that is being asked for may be refused.
        enable, uncertain = Signal(BANKS), Signal()
        m.d.comb += [
            queue.write.eq(arrived.any()),
            queue.written.row.eq(position.bank_row),
            queue.written.column.eq(position.bank_column),
            queue.written.refusable.eq(self._small(banks, position.word)),
            queue.written.owner.eq(arrived),
            queue.written.word.eq(position.word),
            queue.hold.eq(uncertain),
        ]
        for port in range(2):
            m.d.comb += [
                queue.coming[port].eq(self.coming[port]),
                queue.coming_row[port].eq(self.coming_row[port]),
                queue.coming_column[port].eq(self.coming_column[port]),
            ]
        reading, chosen = queue.reading, queue.chosen
        read_address, asking = Signal(ADDRESS_BITS, reset_less=True), Signal(self.branches + 1)
        with m.If(~self.refused):
            m.d.sync += [
                enable.eq(Cat(reading & own for own in one_bank(chosen.row, chosen.column))),
                uncertain.eq(reading & chosen.refusable),
                read_address.eq(chosen.word),
                asking.eq(Mux(reading, chosen.owner, 0)),
            ]
        answered = delay(
            m, Mux(self.refused, 0, asking), FeatureMemory.TILE_LATENCY, control=True, name="answered"
        )
        m.d.comb += [
            self.tile_enable.eq(enable),
            self.tile_address.eq(read_address),
            self.residual_valid.eq(answered[:-1]),
            self.store_valid.eq(answered[-1]),
        ]
        m.d.comb += room.eq(room_for_more(m, _UNDER_WAY, owner.any(), reading))
        return m

    def _small(self, banks: list[Value], word: Value) -> Value:
        """Whether a word of one of the `banks` belongs to a small part."""
        starts: dict[int, list[Value]] = {start: [] for start in self.small_parts.values()}
        for bank, start in self.small_parts.items():
            starts[start].append(banks[bank])
        return Cat(Cat(some).any() & at_least(word, start) for start, some in starts.items()).any()
