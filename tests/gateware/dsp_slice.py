"""What the lanes use of a DSP48E2 (UG579) or DSP48E1 (UG479), in Amaranth, in place of the primitive."""

from __future__ import annotations

from amaranth.hdl import Cat, ClockSignal, Const, Elaboratable, Module, Mux, Signal, Value, signed

WIDTHS = {"A": 30, "B": 18, "C": 48, "ALUMODE": 4, "INMODE": 5, "CARRYINSEL": 3, "CARRYIN": 1}
WIDTHS |= {"ACIN": 30, "BCIN": 18, "PCIN": 48}
# Widths that differ, bits of A that are multiplied, and attributes that only one of them has.
KINDS = {
    "DSP48E2": ({"OPMODE": 9, "D": 27}, 27, {"AMULTSEL": "A", "BMULTSEL": "B"}),
    "DSP48E1": ({"OPMODE": 7, "D": 25}, 25, {"USE_DPORT": "FALSE"}),
}
COMMON = {"USE_MULT": "MULTIPLY", "USE_SIMD": "ONE48", "A_INPUT": "DIRECT", "B_INPUT": "DIRECT"}
STAGES = {
    f"{name}REG" for name in ("A", "ACASC", "B", "BCASC", "C", "D", "AD", "M", "P", "OPMODE", "ALUMODE")
}
STAGES |= {"INMODEREG", "CARRYINREG", "CARRYINSELREG"}


class DspSlice(Elaboratable):
    """Takes what `Instance` takes; ports that are not connected read as zero."""

    def __init__(self, kind, **arguments):
        widths, self.multiplied, self.own = KINDS[kind]
        self.widths = WIDTHS | widths
        self.attributes = {k[2:]: v for k, v in arguments.items() if k.startswith("p_")}
        self.inputs = {k[2:]: v for k, v in arguments.items() if k.startswith("i_")}
        self.outputs = {k[2:]: v for k, v in arguments.items() if k.startswith("o_")}

    def _input(self, m, name):
        width = self.widths.get(name, 1)
        port = Signal(width, name=name)
        value = Value.cast(self.inputs.get(name, 0))
        assert name not in self.inputs or isinstance(self.inputs[name], int) or len(value) == width, name
        m.d.comb += port.eq(value)
        return port

    def _register(self, m, name, value, enable, reset, stages):
        """`stages` registers (0 or 1) with clock enable and a synchronous reset that wins over it."""
        if stages == 0:
            return value
        assert stages == 1
        register = Signal(value.shape(), name=f"{name}_register", reset_less=True)
        clear, load = self._input(m, reset), self._input(m, enable)
        with m.If(clear):
            m.d.sync += register.eq(0)
        with m.Elif(load):
            m.d.sync += register.eq(value)
        return register

    def elaborate(self, platform):
        m = Module()
        attributes = self.attributes
        assert isinstance(self.inputs["CLK"], ClockSignal)
        assert {k: v for k, v in attributes.items() if k not in STAGES} == COMMON | self.own
        assert self.inputs.keys() >= {"D", "ACIN", "BCIN", "PCIN"}
        for name in self.inputs:
            if name != "CLK":
                self._input(m, name)  # all of them have the right width
        # One register stage: A2 and B2, whichever INMODE says about A1 and B1.
        assert attributes["ACASCREG"] == attributes["AREG"] == 1
        assert attributes["BCASCREG"] == attributes["BREG"] == 1
        multiplied = self._input(m, "A")[: self.multiplied].as_signed()
        a = self._register(m, "A", multiplied, "CEA2", "RSTA", attributes["AREG"])
        b = self._register(m, "B", self._input(m, "B").as_signed(), "CEB2", "RSTB", attributes["BREG"])
        c = self._register(m, "C", self._input(m, "C"), "CEC", "RSTC", attributes["CREG"])
        opmode = self._register(
            m, "OPMODE", self._input(m, "OPMODE"), "CECTRL", "RSTCTRL", attributes["OPMODEREG"]
        )
        inmode = self._input(m, "INMODE")
        product = Signal(signed(45))
        # INMODE[1] replaces A by zero.
        m.d.comb += product.eq(Mux(inmode[1], 0, a * b))
        product = self._register(m, "M", product, "CEM", "RSTM", attributes["MREG"])
        p = Signal(48, reset_less=True)
        addend = Signal(48)
        w, x, y, z = (Signal(48, name=name) for name in "wxyz")
        with m.Switch(Cat(opmode, Const(0, 2))[7:9]):  # a DSP48E1 has no W
            with m.Case(0b00):
                m.d.comb += w.eq(0)
            with m.Case(0b01):
                m.d.comb += w.eq(p)
            with m.Case(0b11):
                m.d.comb += w.eq(c)
        # X and Y are the two partial products of M, which make sense only together.
        with m.Switch(opmode[0:4]):
            with m.Case(0b0101):
                m.d.comb += x.eq(product)
            with m.Case(0b0010):
                m.d.comb += x.eq(p)
            with m.Case(0b1100):
                m.d.comb += y.eq(c)
        with m.Switch(opmode[4:7]):
            with m.Case(0b010):
                m.d.comb += z.eq(p)
            with m.Case(0b011):
                m.d.comb += z.eq(c)
        alumode = self._input(m, "ALUMODE")
        m.d.comb += addend.eq(w + x + y + self._input(m, "CARRYIN"))
        assert attributes["PREG"] == 1
        clear, load = self._input(m, "RSTP"), self._input(m, "CEP")
        with m.If(clear):
            m.d.sync += p.eq(0)
        with m.Elif(load):
            m.d.sync += p.eq(Mux(alumode == 0b0011, z - addend, z + addend))
        m.d.comb += self.outputs["P"].eq(p)
        return m
