"""AXI4 slave memory for simulation: random latencies and stalls, checks the master's manners."""

from __future__ import annotations

from collections import deque

BEAT = 16


class AxiMemory:
    """Behind the ports m_axi_* of `dut`; `content` holds bytes from address `base` on.

    fail_read, fail_write: addresses whose beats are answered with SLVERR.
    """

    def __init__(self, dut, base, size, rng, stall=0.3):
        self.dut, self.base, self.rng, self.stall = dut, base, rng, stall
        self.content = bytearray(size)
        self.fail_read, self.fail_write = set(), set()
        self.reads, self.writes, self.answers = deque(), deque(), deque()
        self.written_beats = self.read_beats = 0

    def __getitem__(self, place):
        """Bytes at an address slice."""
        return bytes(self.content[place.start - self.base : place.stop - self.base])

    def put(self, address, content):
        """Store bytes."""
        self.content[address - self.base : address - self.base + len(content)] = content

    @property
    def quiet(self):
        """Nothing is outstanding."""
        return not (self.reads or self.writes or self.answers)

    async def run(self, ctx):
        """Background testbench."""
        dut = self.dut
        held = {"ar": None, "aw": None, "w": None}
        while True:
            for ready in ("ar", "aw", "w"):
                able = ready != "w" or bool(self.writes)
                ctx.set(getattr(dut, f"m_axi_{ready}ready"), able and self.rng.random() >= self.stall)
            self._offer_read(ctx)
            self._offer_answer(ctx)
            _, _, *seen = await ctx.tick().sample(
                dut.m_axi_arvalid, dut.m_axi_arready, dut.m_axi_araddr, dut.m_axi_arlen, dut.m_axi_arsize,
                dut.m_axi_arburst, dut.m_axi_awvalid, dut.m_axi_awready, dut.m_axi_awaddr, dut.m_axi_awlen,
                dut.m_axi_awsize, dut.m_axi_awburst, dut.m_axi_wvalid, dut.m_axi_wready, dut.m_axi_wdata,
                dut.m_axi_wstrb, dut.m_axi_wlast, dut.m_axi_rvalid, dut.m_axi_rready, dut.m_axi_bvalid,
                dut.m_axi_bready,
            )  # fmt: skip
            channels = {"ar": seen[:6], "aw": seen[6:12], "w": seen[12:17]}
            for name, (valid, ready, *payload) in channels.items():
                assert held[name] is None or (valid and payload == held[name]), f"{name} changed its mind"
                held[name] = payload if valid and not ready else None
                if valid and ready:
                    getattr(self, f"_take_{name}")(*payload)
            if seen[17] and seen[18]:
                self.read_beats += 1
                self.reads[0].popleft()
                if not self.reads[0]:
                    self.reads.popleft()
                ctx.set(dut.m_axi_rvalid, 0)
            if seen[19] and seen[20]:
                self.answers.popleft()
                ctx.set(dut.m_axi_bvalid, 0)

    def _burst(self, address, length, size, burst):
        assert (BEAT, burst) == (1 << size, 1)
        assert address % BEAT == 0
        assert address // 4096 == (address + length * BEAT) // 4096, "burst crosses 4 KiB"
        return deque(address + BEAT * beat for beat in range(length + 1))

    def _take_ar(self, *request):
        self.reads.append(self._burst(*request))

    def _take_aw(self, *request):
        self.writes.append([self._burst(*request), 0])

    def _take_w(self, data, strobe, last):
        burst = self.writes[0]
        address = burst[0].popleft()
        burst[1] |= 2 if address in self.fail_write else 0
        assert last == (not burst[0])
        self.written_beats += 1
        for lane, byte in enumerate(data.to_bytes(BEAT, "little")):
            if strobe >> lane & 1:
                self.content[address - self.base + lane] = byte
        if last:
            self.answers.append(burst[1])
            self.writes.popleft()

    def _offer_read(self, ctx):
        dut = self.dut
        if self.reads and not ctx.get(dut.m_axi_rvalid) and self.rng.random() >= self.stall:
            address = self.reads[0][0]
            ctx.set(dut.m_axi_rvalid, 1)
            ctx.set(dut.m_axi_rdata, int.from_bytes(self[address : address + BEAT], "little"))
            ctx.set(dut.m_axi_rresp, 2 if address in self.fail_read else 0)
            ctx.set(dut.m_axi_rlast, len(self.reads[0]) == 1)

    def _offer_answer(self, ctx):
        if self.answers and not ctx.get(self.dut.m_axi_bvalid) and self.rng.random() >= self.stall:
            ctx.set(self.dut.m_axi_bvalid, 1)
            ctx.set(self.dut.m_axi_bresp, self.answers[0])
