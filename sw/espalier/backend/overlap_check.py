"""Whether what overlaps in time may: the rules of section 8 of the architecture, word by word.

An independent check of `hazards` and `strips`: it knows descriptors and addresses only.
"""

from __future__ import annotations

import numpy as np
import numpy.typing as npt

from espalier.arch.config import HardwareConfig
from espalier.arch.feature_layout import BANKS
from espalier.arch.program import Follows, Opcode

Words = tuple[npt.NDArray[np.int64], npt.NDArray[np.int64]]  # banks, words

_NOBODY = -1
_NOWHERE = ("", 0, 0)

Range = tuple[str, int, int]  # buffer in DDR, first byte, the one behind the last


class OverlapCheck:
    """Who wrote and who used every word of the feature memory last, and which descriptors may be at work.

    CONV and POOL are known by their number in the program: strips of a layer share the layer's index.
    """

    def __init__(self, config: HardwareConfig) -> None:
        shape = BANKS, config.feature_depth_words
        self.number = 0
        self.writer = np.full(shape, _NOBODY, np.int64)
        # Last descriptors that wrote or read a word, by opcode.
        self.used = {opcode: np.full(shape, _NOBODY, np.int64) for opcode in (Opcode.CONV, Opcode.POOL)}
        self.at_work = dict.fromkeys((Opcode.CONV, Opcode.POOL), _NOBODY)
        self.layer_at_work = dict.fromkeys((Opcode.CONV, Opcode.POOL), _NOBODY)
        self.loading = np.zeros(shape, np.bool_)  # words that a LOAD may still write
        self.load_number = _NOBODY  # what a layer must name that follows this LOAD
        self.storing = np.zeros(shape, np.bool_)  # words that a STORE may still read
        # The same in DDR.
        self.load_range: Range = _NOWHERE
        self.store_range: Range = _NOWHERE

    def everything_ended(self) -> None:
        """Note that a descriptor has waited for everything."""
        self.at_work = dict.fromkeys(self.at_work, _NOBODY)
        self._load_ended()
        self._store_ended()

    def load(self, fields: dict[str, int], target: Words, source: Range) -> str:
        """Check a LOAD and note its writes; returns what is wrong, or nothing."""
        if fields["barrier"]:
            self.everything_ended()
        self._load_ended()
        if fields["wait_store"]:
            self._store_ended()
        problem = ""
        if _meet(source, self.store_range):
            problem = "a STORE may still write what is loaded"
        elif self.storing[target].any():
            problem = "a STORE may still read the words"
        elif any(self._busy(opcode, used[target]).any() for opcode, used in self.used.items()):
            problem = "a layer may still use the words"
        elif fields["layer"] == self.load_number and not fields["barrier"]:
            problem = "it has the number of the LOAD before"
        self.loading[target] = True
        self.writer[target] = _NOBODY
        self.load_number, self.load_range = fields["layer"], source
        return problem

    def store(self, fields: dict[str, int], source: Words, target: Range) -> str:
        """Check a STORE and note its reads; returns what is wrong, or nothing."""
        if fields["barrier"]:
            self.everything_ended()
        self._store_ended()
        problem = ""
        if _meet(target, self.load_range):
            problem = "a LOAD may still read what is written over"
        elif self.loading[source].any():
            problem = "a LOAD may still write the words"
        elif any(self._busy(opcode, self.writer[source]).any() for opcode in self.used):
            problem = "a layer may still write the words"
        self.storing[source] = True
        self.store_range = target
        return problem

    def layer(self, fields: dict[str, int], source: Words, residual: Words | None, target: Words) -> str:
        """Check a CONV or POOL and note its reads and writes; returns what is wrong, or nothing."""
        opcode = Opcode(fields["opcode"])
        if fields["barrier"]:
            self.everything_ended()
        if fields["wait_store"]:
            self._store_ended()
        problem = self._load(fields, source, residual, target) or self._input(fields, source)
        if self.storing[target].any():
            problem = problem or "a STORE may still read the words of the output"
        if opcode == Opcode.CONV:
            if fields["wait_pool"]:
                self.at_work[Opcode.POOL] = _NOBODY
            problem = problem or self._conv(residual, target)
        else:
            problem = problem or self._pool(fields, source, target)
        for words in (source, target, *([residual] if residual is not None else [])):
            self.used[opcode][words] = self.number
        self.writer[target] = self.number
        self.at_work[opcode], self.layer_at_work[opcode] = self.number, fields["layer"]
        self.number += 1
        return problem

    def _load_ended(self) -> None:
        self.loading[:] = False
        self.load_range = _NOWHERE

    def _store_ended(self) -> None:
        self.storing[:] = False
        self.store_range = _NOWHERE

    def _load(self, fields: dict[str, int], source: Words, residual: Words | None, target: Words) -> str:
        follows = fields["follows"] == Follows.LOAD
        if not fields["during_load"] and not follows:
            self._load_ended()
        touched = [target, *([residual] if residual is not None else [])]
        touched += [] if follows and fields["follows_layer"] == self.load_number else [source]
        busy = any(self.loading[words].any() for words in touched)
        return "a LOAD may still write the words of a tensor" if busy else ""

    def _busy(self, opcode: Opcode, layers: npt.NDArray[np.int64]) -> npt.NDArray[np.bool_]:
        busy: npt.NDArray[np.bool_] = (layers == self.at_work[opcode]) & (layers != _NOBODY)
        return busy

    def _input(self, fields: dict[str, int], source: Words) -> str:
        for opcode, kind in ((Opcode.CONV, Follows.BRANCHES), (Opcode.POOL, Follows.POOL)):
            if not self._busy(opcode, self.writer[source]).any():
                continue
            layer = self.layer_at_work[opcode]
            if (fields["follows"], fields["follows_layer"]) != (kind, layer):
                return f"layer {layer} may still write the input"
        return ""

    def _conv(self, residual: Words | None, target: Words) -> str:
        if residual is not None and self._busy(Opcode.POOL, self.writer[residual]).any():
            return "the residual may still be written"
        if self._busy(Opcode.POOL, self.used[Opcode.POOL][target]).any():
            return "the pool unit may still use the words of the output"
        return ""

    def _pool(self, fields: dict[str, int], source: Words, target: Words) -> str:
        used = self._busy(Opcode.CONV, self.used[Opcode.CONV][target])
        if all(fields[f"in_{name}"] == fields[f"out_{name}"] for name in ("base", "pitch", "channels")):
            # In place: the words of the input have been written when their tile is pooled.
            own = np.zeros(self.writer.shape, np.bool_)
            own[source] = True
            used &= ~(own[target] & self._busy(Opcode.CONV, self.writer[target]))
        return "a convolution may still use the words of the output" if used.any() else ""


def _meet(one: Range, other: Range) -> bool:
    return one[0] == other[0] and max(one[1], other[1]) < min(one[2], other[2])
