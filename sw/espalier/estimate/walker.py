"""Window walkers: the requests of a branch or of the pool unit, one after the other."""

from __future__ import annotations

from collections.abc import Iterator

from espalier.arch.program import Follows
from espalier.estimate import latencies
from espalier.estimate.jobs import Progress, Walk

Tile = tuple[int, int]
_Place = tuple[int, Tile, Tile]  # patterns since the window before, last tile needed, centre
Window = tuple[dict[str, int], Tile, int]  # descriptor, centre tile, channel


class WindowWalker:
    """Asks for windows in order.

    head: cycle at which the next request waits at the arbiter, None while that is not known or there is none.
    window: that it is for. mask: clients that must ask together. leaves: cycle at which each window left the
    requester's buffer; the requester appends to it, and to `walks` the sequencer.
    """

    def __init__(self, depth: int, progress: list[Progress]) -> None:
        """`progress`: of the branches, the pool unit and LOAD."""
        self.depth, self.progress = depth, progress
        self.walks: list[Walk] = []
        self.leaves: list[int] = []
        self.head: int | None = None
        self.window: Window | None = None
        self.mask, self.asked, self.granted = 0, 0, 0
        self.follows = False  # the next request waits for progress
        self._free = 0  # from when on another layer can be taken, after the latest request
        self._steps = self._all()

    def grant(self, cycle: int) -> None:
        """Serve the request that waits, and go on to the next one."""
        self.granted, self.head = cycle, None
        self.asked += 1
        next(self._steps)

    def resume(self) -> None:
        """Look again for what the next request waits for."""
        if self.head is None:
            next(self._steps)

    def _all(self) -> Iterator[None]:
        free, index = 0, 0
        while True:
            while len(self.walks) <= index:
                yield
            walk = self.walks[index]
            index += 1
            taken = max(walk.offer + latencies.PENDING, free)
            walk.job.taken.append(taken)
            walk.job.walkers_taken.append(taken)
            free = taken + 1
            if len(walk.tile_y):
                yield from self._requests(walk, taken + latencies.GO + latencies.WALK)
                free = self._free

    def _requests(self, walk: Walk, centre: int) -> Iterator[None]:
        """Yield with `head` set for every window, and without it while something is missing.

        `centre`: cycle at which the first window's place is known.
        """
        fields = walk.job.work.fields
        self.mask = walk.group_mask
        writers = _writers(fields["follows"], self.progress)
        layer = fields["follows_layer"]
        leaves, depth = self.leaves, self.depth
        room = before = -1  # when the two requests before this one waited for their turn
        for places in self._tiles(walk):
            for channel in range(walk.channels):
                for gap, need, middle in places:
                    issue = centre
                    place = self.asked - depth  # in the buffer, which the window before that one has left
                    if place >= 0:
                        while len(leaves) <= place:
                            yield
                        issue = max(issue, leaves[place] + latencies.CREDIT)
                    if writers:
                        writers = [w for w in writers if w.layer == layer and not w.ended_by(issue)]
                    if writers:  # that may still be at work
                        allowed = centre + 1
                        for writer in writers:
                            while (passed := writer.passed(need, channel)) is None:
                                self.follows = True
                                yield
                            self.follows = False
                            allowed = max(allowed, passed + latencies.PROGRESS)
                        issue = max(issue, allowed)
                    issue = max(issue, room - latencies.REQUEST_ROOM)
                    room = before
                    self.window = fields, middle, channel
                    self.head = before = max(issue + latencies.REQUEST, self.granted + 1)
                    # The last request leaves the walker when the one before has had its turn.
                    self._free = self.head - 1
                    yield
                    centre = max(issue + 1, centre + gap)

    @staticmethod
    def _tiles(walk: Walk) -> Iterator[list[_Place]]:
        """Places of one channel's windows, for every walk over the channels."""
        fields = walk.job.work.fields
        stride, last = fields["stride"], (fields["in_tiles_y"] - 1, fields["in_tiles_x"] - 1)
        for y, x in zip(walk.tile_y.tolist(), walk.tile_x.tolist(), strict=True):
            places = [
                (
                    size,
                    (
                        min(max(stride * y + dy + 1, 0), last[0]),
                        min(max(stride * x + dx + 1, 0), last[1]),
                    ),
                    (stride * y + dy, stride * x + dx),
                )
                for size, (dy, dx) in zip(walk.plan.sizes, walk.plan.offsets, strict=True)
            ]
            for _ in range(walk.passes):
                yield places


def _writers(follows: int, progress: list[Progress]) -> list[Progress]:
    writers = {
        Follows.BRANCHES: progress[:-2],
        Follows.POOL: progress[-2:-1],
        Follows.LOAD: progress[-1:],
    }
    return writers.get(Follows(follows), [])
