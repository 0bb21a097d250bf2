"""Single reads by themselves: order, precedence, rate, and no read where a word is written."""

import pytest
from feature_bench import Tensor
from stalling import generator, send, simulate

from espalier.arch.feature_layout import tile_position
from espalier_hw.tile_reader import TileReader


def run(tensor, requests, rng, stall, writes, refusals=0.0, written=1.0):
    """Returns reads (bank, word) and answers (requester), in order, with their cycles.

    writes: probability that a word is written in a cycle, into bank 0 if it is 1 (and then only in so many
    cycles, `written`); refusals: that a read is refused.
    """
    # Tiles of the bank rows 1 and 2 are in small parts if reads are refused at all.
    dut = TileReader(2, dict.fromkeys(range(3, 9), 0) if refusals else None)
    reads, answers, begun = [], [], []
    streams = [*dut.residual_request, dut.store_request]

    def requester(stream, places):
        async def bench(ctx):
            await ctx.tick()
            await send(ctx, stream, [tensor.address(*place) for place in places], rng, stall)

        return bench

    async def monitor(ctx):
        cycle, blocked, repeated = 0, None, None
        total = sum(map(len, requests))
        while len(answers) < total:
            # A word that is announced now is written in the next cycle.
            coming = rng.random() < (written if writes == 1 else writes)
            bank = 0 if writes == 1 else rng.randrange(9)
            port = rng.randrange(2)
            ctx.set(dut.coming[port], coming)
            ctx.set(dut.coming[1 - port], 0)
            ctx.set(dut.coming_row[port], bank // 3)
            ctx.set(dut.coming_column[port], bank % 3)
            refused = ctx.get(dut.tile_enable) >= 1 << 3 and rng.random() < refusals
            ctx.set(dut.refused, refused)
            _, _, enable, word, *valids = await ctx.tick().sample(
                dut.tile_enable, dut.tile_address, *dut.residual_valid, dut.store_valid
            )
            if enable:
                read = enable.bit_length() - 1
                assert enable == 1 << read
                # Only reads of a memory with a port of its own for writing are refused, and repeated.
                assert read != blocked or repeated
                assert repeated in (None, (read, word))
                repeated = (read, word) if refused else None
                if not refused:
                    reads.append((cycle, read, word))
            assert enable or not repeated
            assert sum(valids) <= 1
            answers.extend((cycle, index) for index, valid in enumerate(valids) if valid)
            blocked = bank if coming else None
            cycle += 1
        begun.append(cycle)

    simulate(dut, monitor, *map(requester, streams, requests))
    return reads, answers


@pytest.mark.parametrize(
    ("stall", "writes", "refusals"),
    [(0.0, 0.0, 0.0), (0.0, 0.7, 0.0), (0.6, 0.3, 0.0), (0.9, 0.9, 0.3), (0.0, 0.3, 0.9)],
)
def test_reads_are_answered_in_order(stall, writes, refusals):
    rng = generator(3)
    tensor = Tensor(rng, 4, 5, 5, 4, 3)
    requests = [[tensor.random_tile(rng) for _ in range(60)] for _ in range(3)]
    reads, answers = run(tensor, requests, rng, stall, writes, refusals)
    assert len({cycle for cycle, *_ in reads}) == len(reads) == len(answers) == 180
    assert {then - cycle for (cycle, *_), (then, _) in zip(reads, answers, strict=True)} == {4}
    for index, places in enumerate(requests):
        own = [read[1:] for read, (_, owner) in zip(reads, answers, strict=True) if owner == index]
        assert own == [tile_position(tensor.base, tensor.pitch, tensor.channels, *place) for place in places]
    if stall == 0.0:
        owners = [owner for _, owner in answers]
        assert 2 not in owners[2:118], "tiles to store come last"
        assert abs(owners[:60].count(0) - owners[:60].count(1)) < 4, "branches take turns"
        if writes == 0.0:
            assert reads[-1][0] - reads[0][0] == 179, "one read a cycle"


def test_reads_of_other_banks_never_wait():
    """Bank 0 is written in every cycle; reads of the others go on at one a cycle."""
    rng = generator(4)
    tensor = Tensor(rng, 4, 0, 3, 3, 8)
    places = [place for place in tensor.all_tiles() if place[:2] != (0, 0)]
    reads, _ = run(tensor, [places, [], []], rng, 0.0, 1)
    assert reads[-1][0] - reads[0][0] == len(places) - 1


def test_a_read_that_waits_lets_others_go_first():
    """Bank 0 is written in half of the cycles; the reads of another bank go on meanwhile."""
    rng = generator(5)
    tensor = Tensor(rng, 4, 0, 3, 3, 64)
    waiting = [place for place in tensor.all_tiles() if place[:2] == (0, 0)]
    others = [place for place in tensor.all_tiles() if place[:2] == (1, 1)]
    written = 0.45
    reads, _ = run(tensor, [waiting, others, []], rng, 0.0, 1, written=written)
    assert len(reads) == 128
    in_order = len(others) + len(waiting) / (1 - written)
    assert reads[-1][0] - reads[0][0] < 0.9 * in_order
