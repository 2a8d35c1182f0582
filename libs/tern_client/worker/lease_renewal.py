"""When which lease is extended while its message is in hand. Pure: times are arguments, in
milliseconds of one monotonic clock.

    received         due              end        a third of the lease; the rest is for repeats,
    |----------------|----------------|          and for a clock that differs from the broker's
                     |<- extended to a whole lease from then on

Law: a lease is extended for as long as its message is in hand, and not after it is lost. A message
whose lease has ended by this clock is not handed out.
"""

from dataclasses import dataclass

from tern_wire.limits import INVISIBLE_DEFAULT_MS, INVISIBLE_MIN_MS

# A lease is due when this part of it is over; those that are due this much later go along.
DUE_SHARE, ALONG_SHARE = 1 / 3, 1 / 6
# The pause after an extension that failed for now.
REPEAT_SHARE = 1 / 12


@dataclass(slots=True)
class _Held:
    length_ms: int
    due_ms: float
    end_ms: float


class LeaseRenewal:
    """The leases of one subscription by receipt handle. Owner: the subscription. Bound: its share
    of the worker's messages.
    """

    __slots__ = ("_held",)

    def __init__(self) -> None:
        self._held: dict[str, _Held] = {}

    def __len__(self) -> int:
        return len(self._held)

    def add(self, handle: str, left_ms: int, now_ms: float) -> None:
        """Note a lease that lasts *left_ms* from now by the clocks of this machine and the broker.
        When they disagree so much that it seems to be over, its length is unknown: it is extended
        at once.
        """
        if left_ms <= 0:
            self._held[handle] = _Held(INVISIBLE_DEFAULT_MS, now_ms, now_ms + INVISIBLE_DEFAULT_MS)
        else:
            length_ms = max(left_ms, INVISIBLE_MIN_MS)
            self._held[handle] = _Held(length_ms, now_ms + left_ms * DUE_SHARE, now_ms + left_ms)

    def remove(self, handle: str) -> None:
        """Forget a lease that is settled or lost."""
        self._held.pop(handle, None)

    @property
    def next_due_ms(self) -> float | None:
        """When the first lease is due; None without leases."""
        return min((held.due_ms for held in self._held.values()), default=None)

    def due(self, now_ms: float, count_max: int) -> list[tuple[str, int]]:
        """Return (handle, length in ms) of at most *count_max* leases to extend now: none before
        one is due, then also those that are due soon.
        """
        next_ms = self.next_due_ms
        if next_ms is None or next_ms > now_ms:
            return []
        found = [
            (handle, held.length_ms)
            for handle, held in self._held.items()
            if held.due_ms <= now_ms + held.length_ms * ALONG_SHARE
        ]
        return found[:count_max]

    def extended(self, handle: str, began_ms: float) -> None:
        """Note that the lease was extended by a request that began at *began_ms*."""
        if held := self._held.get(handle):
            held.due_ms = began_ms + held.length_ms * DUE_SHARE
            held.end_ms = began_ms + held.length_ms

    def failed(self, handle: str, now_ms: float) -> None:
        """Note that an extension failed for now; it is repeated after a pause."""
        if held := self._held.get(handle):
            held.due_ms = now_ms + held.length_ms * REPEAT_SHARE

    def lasts(self, handle: str, now_ms: float) -> bool:
        """Whether the lease has not ended by this clock."""
        held = self._held.get(handle)
        return held is not None and held.end_ms > now_ms
