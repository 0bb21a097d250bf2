"""The output stage of a branch: entry by entry of its table."""

from __future__ import annotations

from collections import deque
from collections.abc import Iterator

from espalier.estimate import latencies
from espalier.estimate.branch_state import NEVER, BranchState
from espalier.estimate.jobs import Job, Word, bank_of
from espalier.estimate.residual_tiles import Entry, ResidualTiles
from espalier.estimate.work import BranchWork


class OutputStage:
    """Goes on as far as sets are finished, the layer has been taken, and it is known what the PEs do.

    Everything behind the start of an entry's beats stands still while neither a word that is complete
    nor the one before it can move on. Local times do not count these cycles.
    """

    def __init__(self, state: BranchState, beats: int) -> None:
        self.state = state
        self._beats = beats
        self._start = 0  # of the latest entry's beats
        self._entry_free = 0  # from when on entries can be taken,
        self._ready = 0  # and beats can start
        self._tiles = ResidualTiles(state)
        self._block = [0] * state.pes  # per PE, the block that it was at for the latest entry
        self._lost = 0  # cycles in which everything stood still
        # Words that are not settled, and the local times at which they are complete.
        self._words: deque[tuple[int, Word]] = deque()
        self._settled = 0  # words for which it is known when they moved on
        self._moved = 0  # when the latest of them did

    def steps(self) -> Iterator[None]:
        """Yield whenever something is missing."""
        state = self.state
        index, which, free, filled = 0, 0, 0, 0
        while True:
            while len(state.jobs) <= index:
                yield
            own = state.jobs[index]
            job = own.job
            index += 1
            filled = _fill(job, filled + latencies.NEXT_TABLE)
            job.outputs_wait.append(max(job.offer + latencies.PENDING, free))
            while job.outputs_take is None:
                yield
            job.taken.append(job.outputs_take)
            free = job.outputs_take + 1
            if own.work is None:
                continue
            go = job.outputs_take + latencies.GO
            self._entry_free, self._ready = go + latencies.TABLE, filled + latencies.TERM
            passes = [_entries(own.work, entries) for entries in own.work.passes]
            tiles = list(zip(own.work.tile_y.tolist(), own.work.tile_x.tolist(), strict=True))
            entries = [
                [
                    (pe, Word(job, tile, bank, channel, tile is tiles[-1], False) if last else None)
                    for pe, channel, last in own_pass
                ]
                for tile, bank in zip(tiles, map(bank_of, tiles), strict=True)
                for own_pass in passes
            ]
            pe, word = entries[-1][-1]
            assert word is not None, "the last entry of a layer completes a word"
            entries[-1][-1] = pe, word._replace(last=True)
            self._tiles.begin(go, entries if job.work.fields["residual"] else [])
            for own_set in entries:
                while len(state.sets) <= which:
                    yield
                yield from self._set(own_set, state.sets[which])
                which += 1
            self.settle()
            while self._words or len(state.turns) < self._settled - 1:
                state.wants_turn = True
                yield
                self.settle()
            state.wants_turn = False
            free = self._accepted() + 1

    def _set(self, entries: list[Entry], done: list[int]) -> Iterator[None]:
        """Drain a set; done: per PE, end of its operators."""
        state = self.state
        for pe, word in entries:
            read = max(self._start, self._entry_free, done[pe] + latencies.SET_DONE) + latencies.ASK
            self._tiles.take(read - latencies.ASK)
            while (busy := self._busy(pe, read - latencies.RUN_READ)) is not False:
                if busy is None:
                    state.wake = read - latencies.RUN_READ - latencies.NEXT_BLOCK + 1
                    yield
                    state.wake = NEVER
                else:
                    read += 1
            state.freed[pe].append(read + latencies.FREED)
            state.drained += 1
            start = read + latencies.START
            if word is not None:
                while (there := self._tiles.there()) is None:
                    state.wants_tile = True
                    yield
                state.wants_tile = False
                start = max(start, there)
            if not self._begin(start):
                state.wants_turn = True
                yield
                while not self._begin(start):
                    yield
                state.wants_turn = False
            if word is not None:
                self._tiles.use(self._start + self._beats)
                complete = self._start - self._lost + self._beats + latencies.COMPLETE
                self._words.append((complete, word))
                self.settle()

    def _begin(self, start: int) -> bool:
        """Start the next entry's beats; False if it is not known yet for how long everything stood still."""
        local = self._start - self._lost + self._beats
        if self._words and self._words[0][0] <= local:
            return False
        self._start = max(local + self._lost, start, self._ready)
        return True

    def settle(self) -> None:
        """Find out when words are complete and move on, as far as the turns of earlier words are known."""
        turns, words = self.state.turns, self.state.words
        while self._words:
            complete, word = self._words[0]
            complete += self._lost
            if len(words) == self._settled:
                words.append((complete + latencies.WORD, word))
            if len(turns) < self._settled - 1:
                return
            if self._settled and (before := self._accepted()) >= complete:
                self._lost += before + 1 - complete
                complete = before
            self._moved = complete + 1
            self._settled += 1
            self._words.popleft()

    def _accepted(self) -> int:
        """Cycle in which the write port accepts the latest settled word."""
        turns, word = self.state.turns, self._settled - 1
        return max(self._moved, turns[word - 1]) if word else self._moved

    def _busy(self, pe: int, cycle: int) -> bool | None:
        """Whether a PE begins a run in a cycle and needs the accumulators itself; None: not known yet.

        Runs of a set's first block begin from zero.
        """
        blocks, at = self.state.blocks, self._block[pe]
        while at < len(blocks) and blocks[at].end[pe] <= cycle:
            at += 1
        self._block[pe] = at
        if at == len(blocks):
            return self._busy_later(pe, cycle)
        block = blocks[at]
        place = cycle - block.start[pe]
        if place < 0 or block.first:
            return False
        return block.work.reads[pe][block.offset[pe] + place] == 1

    def _busy_later(self, pe: int, cycle: int) -> bool | None:
        """Whether it does so after the blocks that all PEs have begun; it may be ahead of others by a set."""
        state, begun = self.state, self.state.begun
        if begun is not None:
            needed, freed = begun.needed[pe], state.freed[pe]
            if needed > len(freed):
                return False
            end = begun.free_from[pe]
            if needed > 0:
                end = max(end, freed[needed - 1])
            commits = state.commits[begun.block : begun.block + len(begun.operators)]
            for number, commit in enumerate(commits):
                start = max(end, commit)
                end = start + begun.operators[number][pe]
                if cycle < end:
                    if number == 0 or cycle < start:
                        return False
                    return begun.work.reads[pe][begun.offset[number][pe] + cycle - start] == 1
        # Another block cannot come before its windows do.
        return None if cycle >= state.now + latencies.NEXT_BLOCK else False


def _fill(job: Job, before: int) -> int:
    """Cycle of the last step that fills the table of residual terms, from `before` on at the earliest."""
    terms = latencies.TERMS if job.work.fields["residual"] else 1
    return max(job.offer + latencies.PENDING, before) + terms


def _entries(work: BranchWork, entries: slice) -> list[tuple[int, int, bool]]:
    """PE, channel, and whether a word is complete, of every entry of a pass."""
    columns = work.pe[entries], work.channel[entries], work.last[entries]
    return list(zip(*(column.tolist() for column in columns), strict=True))
