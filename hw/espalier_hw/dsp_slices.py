"""DSP slices as lane pairs use them: ports and attributes of DSP48E2 (UG579) and DSP48E1 (UG479).

Both multiply A by B, and P is the product plus either P or C; registers A, B, C, M, P and that of OPMODE are
in use. The DSP48E1 has 25 bits of A in its multiplier, not 27, and no W in its OPMODE.
"""

from __future__ import annotations

from typing import Any

from amaranth.hdl import Const

# OPMODE = W | Z | Y | X: W zero, X and Y together the product, Z either P or C.
OPMODE_P_PLUS_M = 0b00_010_01_01
OPMODE_C_PLUS_M = 0b00_011_01_01
OPMODE_BITS = {"DSP48E2": 9, "DSP48E1": 7}

A_BITS, SUM_BITS = 30, 48  # of ports A, and C and P

_INPUTS: dict[str, dict[str, int | str]] = {
    "DSP48E2": {"AMULTSEL": "A", "BMULTSEL": "B"},
    "DSP48E1": {"USE_DPORT": "FALSE"},
}
_ATTRIBUTES: dict[str, int | str] = {
    "AREG": 1,
    "ACASCREG": 1,
    "BREG": 1,
    "BCASCREG": 1,
    "CREG": 1,
    "DREG": 0,
    "ADREG": 0,
    "MREG": 1,
    "PREG": 1,
    "OPMODEREG": 1,
    "ALUMODEREG": 0,
    "INMODEREG": 0,
    "CARRYINREG": 0,
    "CARRYINSELREG": 0,
}
# With one register each, A2 and B2 are the ones in use.
_ENABLES = ("CEA2", "CEB2", "CEM", "CEP", "CECTRL")
_D_BITS = {"DSP48E2": 27, "DSP48E1": 25}
_TIED_LOW = {
    "CEA1": 1,
    "CEB1": 1,
    "CED": 1,
    "CEAD": 1,
    "CEALUMODE": 1,
    "CEINMODE": 1,
    "CECARRYIN": 1,
    "RSTA": 1,
    "RSTB": 1,
    "RSTD": 1,
    "RSTM": 1,
    "RSTP": 1,
    "RSTCTRL": 1,
    "RSTALUMODE": 1,
    "RSTINMODE": 1,
    "RSTALLCARRYIN": 1,
    "ACIN": 30,
    "BCIN": 18,
    "PCIN": 48,
    "D": 0,  # see _D_BITS
    "ALUMODE": 4,
    "INMODE": 5,
    "CARRYIN": 1,
    "CARRYINSEL": 3,
    "CARRYCASCIN": 1,
    "MULTSIGNIN": 1,
}


def fixed_arguments(kind: str) -> dict[str, Any]:
    """Attributes and constant inputs of a "DSP48E2" or "DSP48E1", as an `Instance` takes them."""
    attributes: dict[str, int | str] = {
        "USE_MULT": "MULTIPLY",
        "USE_SIMD": "ONE48",
        "A_INPUT": "DIRECT",
        "B_INPUT": "DIRECT",
        **_INPUTS[kind],
        **_ATTRIBUTES,
    }
    return {
        **{f"p_{name}": value for name, value in attributes.items()},
        **{f"i_{name}": 1 for name in _ENABLES},
        **{f"i_{name}": Const(0, width or _D_BITS[kind]) for name, width in _TIED_LOW.items()},
    }
