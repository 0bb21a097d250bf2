"""Whether layers that overlap in time may: the rules of section 8 of the architecture, word by word.

An independent check of `hazards`: it knows descriptors and addresses only.
"""

from __future__ import annotations

import numpy as np
import numpy.typing as npt

from espalier.arch.config import HardwareConfig
from espalier.arch.feature_layout import BANKS
from espalier.arch.program import Follows, Opcode

Words = tuple[npt.NDArray[np.int64], npt.NDArray[np.int64]]  # banks, words

_NOBODY = -1


class OverlapCheck:
    """Who wrote and who used every word of the feature memory last, and which layers may still be at work."""

    def __init__(self, config: HardwareConfig) -> None:
        shape = BANKS, config.feature_depth_words
        self.writer = np.full(shape, _NOBODY, np.int64)
        # Last layers that wrote or read a word, by opcode.
        self.used = {opcode: np.full(shape, _NOBODY, np.int64) for opcode in (Opcode.CONV, Opcode.POOL)}
        self.at_work = dict.fromkeys((Opcode.CONV, Opcode.POOL), _NOBODY)
        self.loading = np.zeros(shape, np.bool_)  # words that a LOAD may still write

    def everything_ended(self) -> None:
        """Note that LOAD or STORE have waited for all layers."""
        self.at_work = dict.fromkeys(self.at_work, _NOBODY)
        self.loading[:] = False

    def load(self, target: Words) -> None:
        """Note a LOAD."""
        self.everything_ended()
        self.loading[target] = True

    def layer(self, fields: dict[str, int], source: Words, residual: Words | None, target: Words) -> str:
        """Check a CONV or POOL and note its reads and writes; returns what is wrong, or nothing."""
        opcode, index = Opcode(fields["opcode"]), fields["layer"]
        if fields["barrier"]:
            self.everything_ended()
        problem = self._load(fields, source, residual, target) or self._input(fields, source)
        if opcode == Opcode.CONV:
            if fields["wait_pool"]:
                self.at_work[Opcode.POOL] = _NOBODY
            problem = problem or self._conv(residual, target)
        else:
            problem = problem or self._pool(fields, source, target)
        for words in (source, target, *([residual] if residual is not None else [])):
            self.used[opcode][words] = index
        self.writer[target] = index
        self.at_work[opcode] = index
        return problem

    def _load(self, fields: dict[str, int], source: Words, residual: Words | None, target: Words) -> str:
        if not fields["during_load"] and fields["follows"] != Follows.LOAD:
            self.loading[:] = False
        touched = [target, *([residual] if residual is not None else [])]
        touched += [] if fields["follows"] == Follows.LOAD else [source]
        busy = any(self.loading[words].any() for words in touched)
        return "a LOAD may still write the words of a tensor" if busy else ""

    def _busy(self, opcode: Opcode, layers: npt.NDArray[np.int64]) -> npt.NDArray[np.bool_]:
        busy: npt.NDArray[np.bool_] = (layers == self.at_work[opcode]) & (layers != _NOBODY)
        return busy

    def _input(self, fields: dict[str, int], source: Words) -> str:
        for opcode, kind in ((Opcode.CONV, Follows.BRANCHES), (Opcode.POOL, Follows.POOL)):
            if not self._busy(opcode, self.writer[source]).any():
                continue
            if (fields["follows"], fields["follows_layer"]) != (kind, self.at_work[opcode]):
                return f"layer {self.at_work[opcode]} may still write the input"
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
