"""Where a trim ends so that it spares all read leases.

A saved state at a segment's begin tells whether a trim up to it spares them, and reading one costs
some ms. So each step of retention looks at one, and the places in between follow by bisection: if a
trim up to a place spares the leases, so does one up to an earlier place.
"""

from collections.abc import Sequence


class LeasedSegments:
    """Owner: the trimmer."""

    def __init__(self) -> None:
        # The lowest place known to hold leased messages before it, and the highest known to hold
        # none; 0: none is known.
        self._held = self._free = 0
        self._released = 0

    def place(self, places: Sequence[int], wanted: int, released: int) -> int:
        """Return the place of *places* (ascending) to look at next, at most *wanted*; 0 if each of
        them would drop leased messages.

        *released*: how many leases have ended so far; with each of them more may be dropped.
        """
        if released != self._released:
            self._held = self._free = 0
            self._released = released
        if not self._held or wanted < self._held:
            return wanted
        below = [place for place in places if place < self._held]
        unknown = [place for place in below if place > self._free]
        return unknown[len(unknown) // 2] if unknown else below[-1] if below else 0

    def looked(self, place: int, *, is_free: bool) -> None:
        """Note whether a trim up to *place* spares all leases."""
        if is_free:
            self._free = max(self._free, place)
        else:
            self._held = min(self._held, place) if self._held else place
            if self._free >= place:
                self._free = 0  # a lease was taken meanwhile
