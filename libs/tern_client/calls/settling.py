"""Confirmed leases that wait for the next request to the proxy. Pure; both consumers keep one of
these.
"""

from collections import deque
from collections.abc import Iterable, Mapping, Sequence

from tern_client.calls.documents import Settle
from tern_wire.errors import ReceiptExpired, TernError
from tern_wire.limits import SETTLE_ENTRIES_MAX


class PendingSettles:
    """Settles that wait for the next request. Owner: one consumer.

    Bound: the messages that the consumer has received. A settle whose request failed waits again;
    settling twice is harmless.
    """

    __slots__ = ("_waiting", "expired")

    def __init__(self) -> None:
        self._waiting: deque[Settle] = deque()
        # Leases that were over before their ack arrived: their messages are delivered again.
        self.expired = 0

    def __len__(self) -> int:
        return len(self._waiting)

    def add(self, settles: Iterable[Settle]) -> None:
        """Add *settles* for the next request."""
        self._waiting.extend(settles)

    def take(self, count: int = SETTLE_ENTRIES_MAX) -> list[Settle]:
        """Take at most *count* settles, oldest first."""
        return [self._waiting.popleft() for _ in range(min(count, len(self._waiting)))]

    def give_back(self, settles: Sequence[Settle]) -> None:
        """Put *settles* back in front, since their request failed."""
        self._waiting.extendleft(reversed(settles))

    def settled(self, settles: Sequence[Settle], errors: Mapping[int, TernError]) -> None:
        """Note the results of settles that were sent with a receive. Those that may still succeed
        wait again; the rest is counted.
        """
        self.give_back([settles[at] for at, error in errors.items() if error.retryable])
        self.refused(settles, {at: error for at, error in errors.items() if not error.retryable})

    def refused(self, settles: Sequence[Settle], errors: Mapping[int, TernError]) -> dict[str, TernError]:
        """Return *errors* by receipt handle, and count leases that were over. None of these waits
        again.
        """
        self.expired += sum(isinstance(error, ReceiptExpired) for error in errors.values())
        return {settles[at].receipt_handle: error for at, error in errors.items()}
