"""When beats move between the DDR memory and the AXI engines."""

from __future__ import annotations

from espalier.arch.config import HardwareConfig
from espalier.arch.ddr import Ddr
from espalier.estimate import latencies


class _Channel:
    """Data beats of one direction: when the memory lets the next one move."""

    def __init__(self, ddr: Ddr) -> None:
        self.ddr = ddr
        self._next = 0

    def move(self, earliest: int) -> int:
        """Move a beat, in this cycle or as soon as the memory can."""
        cycle = self.ddr.open_from(max(earliest, self._next))
        self._next = cycle + self.ddr.beat_cycles
        return cycle


class ReadPort:
    """The read engine: bursts asked for ahead as far as its buffer has room, beats out in order.

    A command's address is a multiple of the longest burst, as the buffers that drivers allocate are.
    """

    def __init__(self, config: HardwareConfig) -> None:
        self._longest, self._ddr, self._channel = config.burst_beats, config.ddr, _Channel(config.ddr)
        self._bursts = 0  # of all commands
        self._left = 0  # beats of the command that are in no burst yet
        self._coming = 0  # beats of the latest burst that have not come yet
        self._ready = 0  # when the latest burst may begin
        self._asked = 0  # when the latest burst's address was accepted
        # When the last beats of the latest bursts came, and left the buffer.
        self._came: list[int] = []
        self._left_buffer: list[int] = []

    def command(self, cycle: int, beats: int) -> None:
        """Begin a command whose first address can be accepted in `cycle`; the one before has ended."""
        self._left, self._asked = beats, cycle - latencies.BURST_GAP
        self._came, self._left_buffer = [], []

    def beat(self) -> int:
        """Cycle from which the next beat can leave the buffer."""
        if not self._coming:
            self._coming = min(self._left, self._longest)
            self._left -= self._coming
            self._ask()
        came = self._channel.move(self._ready)
        self._coming -= 1
        if not self._coming:
            self._came.append(came)
        return came + latencies.READ_BUFFER

    def take(self, cycle: int) -> None:
        """Note when that beat left the buffer."""
        if not self._coming:
            self._left_buffer.append(cycle)

    def _ask(self) -> None:
        asked = self._asked + latencies.BURST_GAP
        if len(self._came) >= latencies.READS_AHEAD:
            asked = max(asked, self._came[-latencies.READS_AHEAD] + latencies.BURST_ENDED)
            asked = max(asked, self._left_buffer[-latencies.READS_AHEAD] + latencies.READ_ROOM)
        self._asked = asked
        self._ready = asked + self._ddr.latency(self._bursts)
        self._bursts += 1


class WritePort:
    """The write engine: one burst after the other, so many of them unanswered."""

    def __init__(self, config: HardwareConfig) -> None:
        self._longest, self._ddr, self._channel = config.burst_beats, config.ddr, _Channel(config.ddr)
        self._answers: list[int] = []
        self._place = 0  # in the burst

    def beat(self, earliest: int, last: bool) -> int:
        """Cycle in which the next beat moves; last: of the command."""
        if not self._place and len(self._answers) >= latencies.UNANSWERED:
            earliest = max(earliest, self._answers[-latencies.UNANSWERED] + latencies.ANSWERED)
        cycle = self._channel.move(earliest)
        self._place += 1
        if last or self._place == self._longest:
            answer = cycle + self._ddr.latency(len(self._answers))
            self._answers.append(max(answer, self._answers[-1] + 1 if self._answers else 0))
            self._place = 0
        return cycle

    @property
    def answered(self) -> int:
        """Cycle of the answer to the latest burst."""
        return self._answers[-1]
