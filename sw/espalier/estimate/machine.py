"""The whole accelerator: windows and words take turns, layers follow each other, all in order of time."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence

from espalier.arch.config import HardwareConfig
from espalier.arch.program import PATTERNS_PER_WORD, Follows, Opcode, descriptor_words
from espalier.backend.decode import tile_walk
from espalier.backend.unchain import Batch
from espalier.errors import InternalError
from espalier.estimate import dma, latencies
from espalier.estimate.branch import Branch
from espalier.estimate.branch_state import NEVER, BranchJob
from espalier.estimate.ddr import ReadPort
from espalier.estimate.jobs import Job, Progress, Walk, WindowPlan
from espalier.estimate.loader import Loader
from espalier.estimate.pool import PoolUnit
from espalier.estimate.small_parts import SmallParts
from espalier.estimate.tile_port import TilePort
from espalier.estimate.turns import WindowTurns
from espalier.estimate.walker import WindowWalker
from espalier.estimate.word_port import WordPort
from espalier.estimate.work import LayerWork

_Condition = Callable[[], bool]


class Machine:
    """Simulates a program; afterwards `ends` holds the jobs in the order in which their layers ended.

    A strip of a layer is a job, but only the layer's last strip ends it.

    Only windows and words that take turns at the feature memory are events; all between them are
    recurrences. What follows from an event is never earlier, so that they are handled in order of time. jobs:
    in program order. branch_jobs: by job, what each branch did in a CONV. cycles: from the first descriptor
    to DONE. batches: of streams that come from DDR.
    """

    def __init__(
        self, program: list[LayerWork], config: HardwareConfig, batches: Sequence[Batch] = ()
    ) -> None:
        self.config, self.program = config, program
        self.progress = [Progress() for _ in range(config.branches + 2)]
        self.walkers = [
            WindowWalker(config.window_fifo_depth, self.progress) for _ in range(config.branches + 1)
        ]
        port = ReadPort(config)
        self.load = dma.Load(config, port)
        self.loader = Loader(batches, config.branches, port, lambda: self.load.end)
        self.branches = [Branch(b, config, self.walkers[b], self.loader) for b in range(config.branches)]
        self.pool = PoolUnit(config, self.walkers[-1], self.progress[-2])
        self.jobs: list[Job] = []
        self.branch_jobs: list[list[BranchJob]] = []
        self.ends: list[tuple[int, Job]] = []
        self._quiet = 0  # from when on nothing is at work
        self._at_work = 0  # jobs
        self.store = dma.Store(config)
        self.cycles = 0
        clients: list[Branch | PoolUnit] = [*self.branches, self.pool]
        self._clients = clients
        self._windows = WindowTurns(self.walkers)
        self._writers: list[Branch | PoolUnit | dma.Load] = [*clients, self.load]
        words, count = [writer.words for writer in self._writers], config.branches
        first = WordPort(0, words[:count], latencies.WRITTEN)
        second = WordPort(count, words[count:], latencies.WRITTEN_SECOND, (first,))
        self._ports = first, second
        self._small = SmallParts(config)
        tiles = [*(branch.state.tiles for branch in self.branches), self.store.words]
        self._tiles = TilePort(tiles, (first, second), self._small)
        self._wakes = [NEVER] * count
        self._wake = NEVER
        self._alarm = NEVER  # when the sequencer executes a LOAD

    def run(self) -> None:
        """Run to the end of the program.

        Raises:
            InternalError: the program waits for something that never comes.

        """
        windows, tiles, (first, second) = self._windows, self._tiles, self._ports
        streamed = bool(self.loader.batches)
        for condition in self._sequence():
            self._find()
            while not condition():
                event = min(
                    first.done, second.done, tiles.done, first.turn, second.turn, tiles.turn, windows.time,
                    self._wake,
                )  # fmt: skip
                if streamed and self._pass_read_port(event):
                    continue
                if event == NEVER:
                    raise InternalError("the program stands still: a window or a word waits for ever")
                if event == self._wake:
                    self._resume_outputs(event)
                elif event == first.done:
                    self._update(event, first)
                elif event == second.done:
                    self._update(event, second)
                elif event == tiles.done:
                    self._read_tile()
                elif event == tiles.turn:
                    tiles.find(tiles.take())
                elif event == first.turn:
                    self._write(event, first)
                elif event == second.turn:
                    self._write(event, second)
                else:
                    self._read(event)

    def _pass_read_port(self, event: int) -> bool:
        """Let the loader begin a batch, or the sequencer execute a LOAD, if either comes before an event."""
        turn, alarm = self.loader.turn, self._alarm
        if turn < NEVER and turn <= alarm + latencies.LOAD_SEEN and min(turn, alarm) <= event:
            self._load_batch()
        elif alarm < NEVER and alarm <= event:
            self._alarm = NEVER
        else:
            return False
        return True

    def _load_batch(self) -> None:
        """Load a batch, and let PEs go on that have waited for it."""
        self.loader.take()
        for index, branch in enumerate(self.branches):
            branch.resume()
            self._follow(index)

    def _read_tile(self) -> None:
        """Read a residual tile or one to store, unless it has to give way."""
        read = self._tiles.finish()
        if read is None:
            return
        if read[0] == len(self.branches):
            self.store.read(self._tiles.reading)
            self._tiles.find(read[0])
        else:
            self.branches[read[0]].tile(self._tiles.reading)
            self._follow(read[0])

    def _write(self, cycle: int, port: WordPort) -> None:
        """Let a writer have its turn, and send its word to the memory."""
        index = port.take()
        self._writers[index].turn(cycle)
        if index < len(self.branches):
            self._follow(index)
        else:
            port.find(index)
            if index < len(self.walkers) and self.walkers[index].head is None:
                self.walkers[index].resume()
                self._windows.find()

    def _resume_outputs(self, cycle: int) -> None:
        """Let output stages go on that wait for a cycle to pass."""
        for index, branch in enumerate(self.branches):
            branch.now(cycle)
            self._follow(index)

    def _follow(self, index: int) -> None:
        """See what a branch waits for now."""
        branch = self.branches[index]
        self._ports[0].find(index)
        if branch.moved:
            branch.moved = False
            self._tiles.find(index)
            self._wakes[index] = branch.state.wake
            self._wake = min(self._wakes)
            if branch.walker.head is None:
                branch.walker.resume()
                self._windows.find()

    def _find(self) -> None:
        """See what all wait for now."""
        self._windows.find()
        self._tiles.find(len(self.branches))
        self._ports[1].find(len(self.branches))
        self._ports[1].find(len(self.branches) + 1)
        for index in range(len(self.branches)):
            self._follow(index)

    def _read(self, cycle: int) -> None:
        """Hand a window to those that have the turn."""
        members = self._windows.take()
        self._small.window(cycle, self.walkers[members[0]].window)
        for index in members:
            self._clients[index].arrive(cycle + latencies.WINDOW)
        for index in members:
            self.walkers[index].grant(cycle)
        self._windows.find()
        for index in members:
            if index == len(self.branches):
                self._ports[1].find(index)
            elif self.branches[index].moved:
                self._follow(index)

    def _update(self, cycle: int, port: WordPort) -> None:
        """Note that a word is in the memory, and let walkers go on that have waited for it."""
        arrived = port.finish()
        if arrived is None:
            return
        writer, word = arrived
        self.progress[writer].write(cycle, word)
        # Before the pool unit goes on to its next layer, of which nothing is written yet.
        for walker in self.walkers:
            if walker.follows:
                walker.resume()
                self._windows.find()
        job = word.job
        if word.last and job.work.opcode != Opcode.LOAD:
            job.ended.append(cycle)
            if job.end is not None:
                self._end(job, cycle)
            self.pool.resume()
            self._windows.find()

    def _end(self, job: Job, cycle: int) -> None:
        """Note that all words of a job are in the memory."""
        self._at_work -= 1
        if job.work.fields["more"]:
            job.reported = cycle + latencies.STRIP_END
        else:
            job.reported = cycle + latencies.REPORT
            if self.ends:
                job.reported = max(job.reported, self.ends[-1][0] + latencies.REPORT_HELD)
            self.ends.append((job.reported, job))
        self._quiet = max(self._quiet, job.reported + latencies.QUIET)

    def _sequence(self) -> Iterator[_Condition]:
        """Sequencer, which yields conditions that it waits for; cycle 0 is its first FETCH."""
        time = 0
        for work in self.program:
            time += latencies.FETCH + _program_words(work, self.config)
            yield from self._until_free(work)
            time = max(time, self._free(work))
            if work.opcode == Opcode.LOAD:
                if self.loader.batches:  # a batch that has its turn before comes first
                    self._alarm = time
                    yield lambda: self._alarm == NEVER
                self.progress[-1].begin(work.fields["layer"], True, False)
                self.load.start(work, time, self.loader.over)
                time += latencies.DMA_STARTED
            elif work.opcode == Opcode.STREAM:
                self.loader.start(time)
                time += 1
            elif work.opcode == Opcode.STORE:
                self.store.start(work, time)
                time += latencies.DMA_STARTED
            elif work.opcode in (Opcode.CONV, Opcode.POOL):
                job = self._offer(work, time + latencies.OFFER)
                yield from self._until_taken(job)
                time = max(job.offer + latencies.OFFER_HELD, max(job.taken) + latencies.NEXT)
        self.cycles = time + latencies.DONE

    def _until_free(self, work: LayerWork) -> Iterator[_Condition]:
        """Wait until it is known when what a descriptor waits for has ended."""
        if _is_barrier(work):
            yield lambda: not self._at_work
        if _waits_for_load(work):
            yield lambda: self.load.end is not None
        if _waits_for_store(work):
            yield lambda: self.store.end is not None

    def _free(self, work: LayerWork) -> int:
        """Cycle in which it has ended."""
        waits = [0]
        if _is_barrier(work):
            waits.append(self._quiet)
        if _waits_for_load(work):
            waits.append(self.load.end or 0)
        if _waits_for_store(work):
            waits.append(self.store.end or 0)
        return max(waits)

    def _offer(self, work: LayerWork, cycle: int) -> Job:
        """Hand a layer to all that take it."""
        fields = work.fields
        job = Job(work, cycle, sum(own is not None for own in work.branches) or 1)
        self.jobs.append(job)
        self.branch_jobs.append([])
        self._at_work += 1
        if work.opcode == Opcode.POOL:
            self.pool.jobs.append(job)
            self.pool.resume()
            return job
        plan = WindowPlan.of(work.patterns)
        jobs = self.branch_jobs[-1]
        for branch, own in zip(self.branches, work.branches, strict=True):
            values = work.branch_fields[branch.index]
            tiles = tile_walk(values, fields["out_tiles_x"])
            mask = values["group_mask"]
            walk = Walk(job, cycle, *tiles, values["channels"], fields["passes"], mask, plan)
            jobs.append(BranchJob(branch.index, job, walk, own))
            branch.state.jobs.append(jobs[-1])
            branch.walker.walks.append(walk)
            branch.walker.resume()
            branch.resume()
        return job

    def _until_taken(self, job: Job) -> Iterator[_Condition]:
        """Wait until all stages have taken a layer; output stages do so together."""
        if job.is_pool:
            yield lambda: bool(job.taken)
            return
        count, fields = self.config.branches, job.work.fields
        before = [own for own in self.jobs[:-1] if not own.is_pool or fields["wait_pool"]]
        yield (
            lambda: (
                len(job.walkers_taken) == count
                and len(job.outputs_wait) == count
                and all(own.end is not None for own in before)
            )
        )
        conditions = [cycle + latencies.WALKER_PAST for cycle in job.walkers_taken]
        conditions += job.outputs_wait + [own.reported for own in before]
        job.outputs_take = max(conditions) + latencies.OUTPUTS_TAKE
        for progress, own in zip(self.progress, job.work.branches, strict=False):
            progress.begin(fields["layer"], bool(fields["ordered"]), own is None)
        for branch in self.branches:
            branch.resume()
            branch.walker.resume()
        yield lambda: len(job.taken) == 3 * count


def _is_barrier(work: LayerWork) -> bool:
    return work.opcode == Opcode.END or bool(work.fields["barrier"])


def _waits_for_load(work: LayerWork) -> bool:
    """Whether a descriptor waits for the end of the LOAD before."""
    overlaps = work.fields["follows"] == Follows.LOAD or work.fields["during_load"]
    layer = work.opcode in (Opcode.CONV, Opcode.POOL)
    return _is_barrier(work) or work.opcode == Opcode.LOAD or (layer and not overlaps)


def _waits_for_store(work: LayerWork) -> bool:
    """Whether it waits for the end of the STORE before."""
    return _is_barrier(work) or work.opcode == Opcode.STORE or bool(work.fields["wait_store"])


def _program_words(work: LayerWork, config: HardwareConfig) -> int:
    """Cycles that a descriptor takes: its words, its patterns and their words."""
    count = len(work.patterns)
    return descriptor_words(config) + count + -(-count // PATTERNS_PER_WORD)
