"""Chooses which window is read next from the feature memory, and for whom."""

from __future__ import annotations

from functools import reduce
from operator import or_

from amaranth.hdl import Cat, Module, Mux, Signal, Value
from amaranth.lib import stream, wiring
from amaranth.lib.wiring import In, Out

from espalier_hw.arbitration import HoldingRegister, RoundRobin
from espalier_hw.interfaces import WINDOW_REQUEST


class ReadArbiter(wiring.Component):
    """One window a cycle, round robin; clients are the branches, then the pool unit.

    Each request names in `group_mask` the clients that ask for the same window, itself included. It is
    granted when all of them wait, to all at once; what is read is what the lowest one has asked for.
    Clients that name each other ask for the same windows in the same order, so it does no harm that only
    this is checked, and not whether all of the mask is the same. A request waits in a register
    first: no `ready` depends on a `valid` in the same cycle, in neither direction.

    request: the read that starts, valid while a bit of `window` is set, which are the clients it is for.
    """

    def __init__(self, clients: int) -> None:
        """`clients`: number of requesters."""
        self.clients = clients
        super().__init__(
            {
                "window_request": In(stream.Signature(WINDOW_REQUEST)).array(clients),
                "request": Out(WINDOW_REQUEST),
                "window": Out(clients),
            }
        )

    def elaborate(self, platform: object) -> Module:
        """Three stages: requests wait, the leaders take turns, the chosen one is selected."""
        m = Module()
        held = []
        for index, port in enumerate(self.window_request):
            register = m.submodules[f"held_{index}"] = HoldingRegister(WINDOW_REQUEST)
            wiring.connect(m, wiring.flipped(port), register.input)
            held.append(register)
        m.submodules.turn = turn = RoundRobin(self.clients)
        m.d.comb += [
            turn.requests.eq(Cat(self._leads(index, held) for index in range(self.clients))),
            turn.advance.eq(1),
        ]
        for index, register in enumerate(held):
            members = [leader.output.payload.group_mask[index] for leader in held[: index + 1]]
            m.d.comb += register.output.ready.eq((Cat(members) & turn.grant).any())
        # All but the one that is granted become zero, with the reset of the flip-flops: an OR can select.
        copies = [Signal(WINDOW_REQUEST, name=f"copy_{i}", reset_less=True) for i in range(self.clients)]
        for index, register in enumerate(held):
            m.d.sync += copies[index].eq(Mux(turn.grant[index], register.output.payload.as_value(), 0))
        request, window = Signal(WINDOW_REQUEST, reset_less=True), Signal(self.clients)
        chosen = Signal(WINDOW_REQUEST)
        m.d.comb += [
            Value.cast(chosen).eq(reduce(or_, (copy.as_value() for copy in copies))),
            self.request.eq(request),
            self.window.eq(window),
        ]
        m.d.sync += [request.eq(chosen), window.eq(chosen.group_mask)]
        return m

    def _leads(self, index: int, held: list[HoldingRegister]) -> Value:
        """Whether client `index` is the lowest of a group that waits."""
        own = held[index].output
        others = [
            ~own.payload.group_mask[number] | (other.output.valid & other.output.payload.group_mask[index])
            for number, other in enumerate(held)
            if number > index
        ]
        return own.valid & ~own.payload.group_mask[:index].any() & Cat(others).all()
