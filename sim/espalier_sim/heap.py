"""Reserves ranges of the simulated memory."""

from __future__ import annotations

from espalier.errors import DeviceError

PAGE = 4096


class Heap:
    """First fit, in whole pages; every range is followed by a page that belongs to nobody.

    shift: bytes by which every range begins behind the start of a page.
    """

    def __init__(self, base: int, count: int, shift: int = 0) -> None:
        self._shift = shift
        self._free = [(base, count)]
        self.live: dict[int, int] = {}  # pages' bytes by address of the range

    def reserve(self, count: int) -> int:
        """Return the address of `count` free bytes.

        Raises:
            DeviceError: there are none.

        """
        needed = (-(-(count + self._shift) // PAGE) + 1) * PAGE
        for index, (base, available) in enumerate(self._free):
            if available >= needed:
                self._free[index] = base + needed, available - needed
                address = base + self._shift
                self.live[address] = needed
                return address
        raise DeviceError(
            f"the simulated memory has no {count} bytes left: free buffers, or use a smaller network"
        )

    def release(self, address: int) -> None:
        """Give a range back and join it with its free neighbours."""
        ranges = sorted([*self._free, (address - self._shift, self.live.pop(address))])
        self._free = []
        for base, count in ranges:
            if self._free and sum(self._free[-1]) == base:
                self._free[-1] = self._free[-1][0], self._free[-1][1] + count
            elif count:
                self._free.append((base, count))
