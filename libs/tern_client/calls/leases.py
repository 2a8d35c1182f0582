"""The messages that a consumer holds, and the ends of their leases. Pure: time is an argument, in
milliseconds since 1970, as in `invisible_until`.

Law: a message counts as in flight until it is done or its lease is over, whichever comes first. At
the end of a lease the broker delivers the message again, to any consumer, so a worker that died
with it does not keep its place. A wrong clock of the client shifts only the time when there is room
again; the broker decides what may still be acked.
"""

from collections import deque
from collections.abc import Iterable

from tern_client.calls.models import ReceivedMessage


class Leases:
    """The end of each lease by receipt handle. Owner: one consumer. Bound: the most messages that
    it may have in flight.
    """

    __slots__ = ("_count_max", "_end_ms")

    def __init__(self, count_max: int) -> None:
        self._count_max = count_max
        self._end_ms: dict[str, int] = {}

    def add(self, messages: Iterable[ReceivedMessage]) -> None:
        """Note the leases of *messages*."""
        self._end_ms.update((message.receipt_handle, message.invisible_until) for message in messages)

    def release(self, handles: Iterable[str]) -> None:
        """Remove leases that are done; unknown handles are ignored."""
        for handle in handles:
            self._end_ms.pop(handle, None)

    def extend(self, handles: Iterable[str], until_ms: int) -> None:
        """Extend these leases to *until_ms*. A lease that is done or over stays so."""
        self._end_ms.update((handle, until_ms) for handle in handles if handle in self._end_ms)

    def room(self, now_ms: int) -> int:
        """Return how many more messages may be received. Removes leases that are over."""
        over = [handle for handle, end_ms in self._end_ms.items() if end_ms <= now_ms]
        self.release(over)
        return max(self._count_max - len(self._end_ms), 0)

    @property
    def first_end_ms(self) -> int | None:
        """The end of the first lease; None without leases."""
        return min(self._end_ms.values(), default=None)


class Received:
    """Messages that were received and not handed out. Owner: one consumer.

    Law: a message whose lease is over is not handed out. The broker delivers it to another
    consumer, and after that the messages behind it in its message group: a late handler would
    process it behind those. It comes again, to this consumer or another.
    """

    __slots__ = ("_waiting",)

    def __init__(self) -> None:
        self._waiting: deque[tuple[ReceivedMessage, int | None]] = deque()

    def add(self, messages: Iterable[ReceivedMessage], now_ms: int) -> None:
        """Add *messages*, which came now. A clock that puts the end of a lease before its begin is
        wrong, and is ignored.
        """
        for message in messages:
            end_ms = message.invisible_until
            self._waiting.append((message, end_ms if end_ms > now_ms else None))

    def take(self, now_ms: int) -> ReceivedMessage | None:
        """Take the next message whose lease lasts; None without one."""
        while True:
            try:
                message, end_ms = self._waiting.popleft()
            except IndexError:  # also when another thread has just cleared this
                return None
            if end_ms is None or end_ms > now_ms:
                return message

    def clear(self) -> list[ReceivedMessage]:
        """Take all waiting messages."""
        waiting, self._waiting = self._waiting, deque()
        return [message for message, _ in waiting]
