"""How many messages a subscription requests: for its free places, and for the work of a moment.
Pure: times are arguments, in milliseconds.

Law: the messages that are leased and not handed out stay few, since a killed process releases
nothing and their attempts count. A subscription begins with one message and doubles with each
receive that brings some. Beyond its free places it never requests more than its handlers have ended
within WORK_AHEAD_MS; where the proxy is far, within RECEIVES_AHEAD times the time of a receive, at
most WORK_AHEAD_MAX_MS. A handler that stops ending requests nothing ahead.
"""

from collections import deque

from tern_client.prefetch import RECEIVES_AHEAD, WORK_AHEAD_MAX_MS, WORK_AHEAD_MS
from tern_wire.limits import RECEIVE_MESSAGES_MAX

_RECEIVES_KEPT = 8


class WorkerPace:
    """The number of messages of the next receive. Owner: one subscription. Bound: one note for each
    millisecond of WORK_AHEAD_MAX_MS.
    """

    __slots__ = ("_ended", "_ended_count", "_step", "_took_ms")

    def __init__(self) -> None:
        self._step = 1
        self._took_ms: deque[int] = deque(maxlen=_RECEIVES_KEPT)
        # (time, handlers that ended in that millisecond), oldest first, and their sum.
        self._ended: deque[tuple[int, int]] = deque()
        self._ended_count = 0

    def received(self, count: int, began_ms: int, now_ms: int) -> None:
        """Note a receive of *count* messages that began at *began_ms*."""
        if count:
            self._took_ms.append(max(now_ms - began_ms, 0))
            self._step = min(2 * self._step, RECEIVE_MESSAGES_MAX)

    def ended(self, count: int, now_ms: int) -> None:
        """Note that the handlers of *count* messages have ended now."""
        if self._ended and self._ended[-1][0] == now_ms:
            count_before = self._ended.pop()[1]
            self._ended.append((now_ms, count_before + count))
        else:
            self._ended.append((now_ms, count))
        self._ended_count += count
        self._drop(now_ms - WORK_AHEAD_MAX_MS)

    def ahead(self, now_ms: int) -> int:
        """Return the work of a moment: how many messages may wait beyond the free places."""
        window_ms = min(max(WORK_AHEAD_MS, RECEIVES_AHEAD * min(self._took_ms, default=0)), WORK_AHEAD_MAX_MS)
        self._drop(now_ms - window_ms)
        return self._ended_count

    def ask(self, free: int, waiting: int, now_ms: int) -> int:
        """Return how many messages to request now, 0 for none. *free*: places without a running
        handler; *waiting*: messages that are here and not handed out.
        """
        ahead = self.ahead(now_ms)
        if waiting >= free and 2 * (waiting - free) > ahead:
            return 0
        return max(0, min(free + ahead - waiting, self._step))

    def begin_again(self) -> None:
        """Begin again with one message."""
        self._step = 1
        self._ended.clear()
        self._ended_count = 0

    def _drop(self, until_ms: int) -> None:
        while self._ended and self._ended[0][0] < until_ms:
            self._ended_count -= self._ended.popleft()[1]
