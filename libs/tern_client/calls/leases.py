"""Which messages a consumer holds, and until when. Pure: time is an argument, in ms since the epoch, as `invisible_until` is.

Law: a message counts until it is done or its lease is over, whichever comes first. At that moment the broker delivers it
again, to anybody, so a worker that died with it does not keep its place for ever. A client's clock that is wrong shifts only
when there is room again; what may still be acked is the broker's to say.
"""

from collections import deque
from collections.abc import Iterable

from tern_client.calls.models import ReceivedMessage


class Leases:
    """The end of each lease by receipt handle. Owned by one consumer; holds as many as it may have in flight."""

    __slots__ = ("_count_max", "_end_ms")

    def __init__(self, count_max: int) -> None:
        self._count_max = count_max
        self._end_ms: dict[str, int] = {}

    def add(self, messages: Iterable[ReceivedMessage]) -> None:
        """These have been received."""
        self._end_ms.update((message.receipt_handle, message.invisible_until) for message in messages)

    def release(self, handles: Iterable[str]) -> None:
        """These are done; handles that are not held are ignored."""
        for handle in handles:
            self._end_ms.pop(handle, None)

    def extend(self, handles: Iterable[str], until_ms: int) -> None:
        """These last until *until_ms* now; what is done or over stays so."""
        self._end_ms.update((handle, until_ms) for handle in handles if handle in self._end_ms)

    def room(self, now_ms: int) -> int:
        """How many more may be received, once those whose lease is over are gone."""
        over = [handle for handle, end_ms in self._end_ms.items() if end_ms <= now_ms]
        self.release(over)
        return max(self._count_max - len(self._end_ms), 0)

    @property
    def first_end_ms(self) -> int | None:
        """When the next lease is over; None when nothing is held."""
        return min(self._end_ms.values(), default=None)


class Received:
    """Messages that were received and not handed out yet. Owned by one consumer.

    Law: a message whose lease is over is not handed out. The broker gives it to somebody else, and what follows it in its message group after
    that: a consumer that still handled it would handle it behind those. It comes again, to this consumer or another.
    """

    __slots__ = ("_waiting",)

    def __init__(self) -> None:
        self._waiting: deque[tuple[ReceivedMessage, int | None]] = deque()

    def add(self, messages: Iterable[ReceivedMessage], now_ms: int) -> None:
        """These came now. A clock that says that a lease was over when it began is wrong: it decides nothing then."""
        for message in messages:
            end_ms = message.invisible_until
            self._waiting.append((message, end_ms if end_ms > now_ms else None))

    def take(self, now_ms: int) -> ReceivedMessage | None:
        """The next one whose lease is not over; None when there is none."""
        while True:
            try:
                message, end_ms = self._waiting.popleft()
            except IndexError:  # also when another thread has just cleared this
                return None
            if end_ms is None or end_ms > now_ms:
                return message

    def clear(self) -> list[ReceivedMessage]:
        """All that wait; none does any longer."""
        waiting, self._waiting = self._waiting, deque()
        return [message for message, _ in waiting]
