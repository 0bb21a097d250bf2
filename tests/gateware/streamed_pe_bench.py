"""Plays the loader for a PE whose stream comes in batches, beside all that `pe_bench` plays."""

from __future__ import annotations

import numpy as np
from pe_bench import Bench

from espalier.arch.fields import unpack
from espalier.arch.operators import HEADER_FIELDS, STREAM_WORD_BITS
from espalier.backend.chain import chain_streams
from espalier.backend.decode import Batch
from espalier.backend.streams import RESTS, LayerStream
from espalier.backend.unchain import read_batches
from espalier_hw.pe_model import decode_loop

WORD_BYTES = STREAM_WORD_BITS // 8


def layer_streams(stream):
    """Layers of a plain stream, as the compiler hands them to `chain_streams`."""
    layers, pointer = [], 0
    while not (header := unpack(HEADER_FIELDS, stream[pointer]))["end"]:
        loop = stream[pointer + 1 : pointer + 1 + header["loop_words"]]
        pointer += 1 + len(loop)
        if not header["sets"]:
            layers.append(RESTS)
            continue
        runs, ends = 0, []
        for number, operator in enumerate(decode_loop(loop)):
            runs += operator["end_of_run"] * (1 + operator["skip"])
            if operator["end_of_run"] and runs % header["filters"] == 0:
                ends.append(number + 1)
        tiles = header["sets"] * header["blocks"] // len(ends)
        fields = {name: header[name] for name in ("filters", "sets", "blocks", "wide_blocks")}
        content = b"".join(word.to_bytes(WORD_BYTES, "little") for word in loop)
        layers.append(LayerStream(fields, content, (tiles,), np.array(ends)))
    return layers


def chained(config, stream, residences):
    """Resident words and batches of the stream of a configuration's only PE."""
    result = chain_streams([layer_streams(stream)], residences, config, True)
    resident = [
        int.from_bytes(result.resident[0][at : at + WORD_BYTES], "little")
        for at in range(0, len(result.resident[0]), WORD_BYTES)
    ]
    first = len(result.batches[0]) // 16 if result.batches else 0
    return resident, read_batches(b"".join(result.batches), 0, first, config)


class StreamedBench(Bench):
    """A `Bench` with a loader that takes its time; resident: words of the memory, batches: to be loaded.

    batch_gap: most cycles that it waits before a batch. `early` counts batches that waited for no other one.
    """

    def __init__(self, config, pe, stream, windows, resident, batches: list[Batch], batch_gap=0, **options):
        super().__init__(config, pe, stream, windows, **options)
        self.stream = resident  # what the bench writes before the restart
        self.batches, self.batch_gap = batches, batch_gap

    async def _branch(self, ctx):
        ctx.set(self.pe.loaded, 0)
        await super()._branch(ctx)

    async def _load(self, ctx):
        pe = self.pe
        for _ in range(self.inferences):
            await ctx.tick().until(pe.restart)
            ctx.set(pe.loaded, 0)
            for number, batch in enumerate(self.batches):
                ctx.set(pe.required, batch.left % 16)
                await ctx.tick()
                while not ctx.get(pe.space):
                    await ctx.tick()
                for _ in range(self.rng.randint(0, self.batch_gap)):
                    await ctx.tick()
                for offset, word in enumerate(batch.words[0]):
                    ctx.set(pe.stream_write.enable, 1)
                    ctx.set(pe.stream_write.address, batch.addresses[0] + offset)
                    ctx.set(pe.stream_write.data, int.from_bytes(word.tobytes(), "little"))
                    await ctx.tick()
                ctx.set(pe.stream_write.enable, 0)
                ctx.set(pe.loaded, (number + 1) % 16)

    def testbenches(self):
        """Background processes."""
        return [*super().testbenches(), self._load]
