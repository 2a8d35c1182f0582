"""Messages that a consumer's loop receives ahead of its handler: how many, in which order, and
which are released. Pure: times are arguments, in ms.

    ask --> receive --add--> waits here --take--> handed to the handler: the attempt counts now
                      |           '--clear--> the loop has ended: released, uncounted
                      '--surplus--> suspects: released, uncounted

Law: the messages that are leased and not handed out stay few, since a killed process releases
nothing and their attempts count. A loop begins with one message and doubles while its handler keeps
pace. It never requests more than the handler processes in WORK_AHEAD_MS; where the proxy is far, in
RECEIVES_AHEAD times the time of a receive, within WORK_AHEAD_MAX_MS. So a receive costs a quick
handler at most a twentieth of its time.
"""

from collections import deque
from collections.abc import Sequence

from tern_client.calls.leases import Received
from tern_client.calls.models import ReceivedMessage

WORK_AHEAD_MS = 100
WORK_AHEAD_MAX_MS = 1_000
RECEIVES_AHEAD = 20
# The quickest of so many receives with messages tells the distance to the proxy. The others waited
# for messages.
_RECEIVES_KEPT = 8
# A message on its third attempt may have ended its consumers. The messages behind it must not pay
# for that.
SUSPECT_ATTEMPT = 3


class Pace:
    """The number of messages that one loop requests. Owner: its Prefetch."""

    __slots__ = ("_began_ms", "_count", "_count_max", "_handled", "_took_ms")

    def __init__(self, count_max: int) -> None:
        self._count_max = count_max
        self._took_ms: deque[int] = deque(maxlen=_RECEIVES_KEPT)
        self._count = 1
        # Messages received since the last request, and when they came.
        self._began_ms = self._handled = 0

    def received(self, count: int, began_ms: int, now_ms: int) -> None:
        """Note a receive of *count* messages that began at *began_ms*."""
        if not count:
            return
        self._took_ms.append(max(now_ms - began_ms, 0))
        if not self._handled:
            self._began_ms = now_ms
        self._handled += count

    def ask(self, now_ms: int) -> int:
        """Return how many messages to request next. The handler has finished all earlier ones."""
        if self._handled:
            # A clock that was set back measures nothing. A handler that ends within a tick is
            # quick.
            each_ms = max(now_ms - self._began_ms, 0) / self._handled
            self._handled = 0
            ahead_ms = min(max(WORK_AHEAD_MS, RECEIVES_AHEAD * min(self._took_ms)), WORK_AHEAD_MAX_MS)
            fits = self._count_max if each_ms * self._count_max <= ahead_ms else int(ahead_ms / each_ms)
            self._count = max(min(fits, 2 * self._count, self._count_max), 1)
        return self._count

    def begin_again(self) -> None:
        """Begin again with one message."""
        self._count, self._handled = 1, 0


class Suspects:
    """Which messages of a receive are handed out, and which wait until a suspect has shown what it
    does. Owner: one consumer.
    """

    __slots__ = ("_are_there",)

    def __init__(self) -> None:
        self._are_there = False

    def split(
        self, messages: Sequence[ReceivedMessage], *, may_return: bool = True
    ) -> tuple[list[ReceivedMessage], list[ReceivedMessage], bool]:
        """Return the *messages* to hand out, those to release (none unless *may_return*), and
        whether the pace begins again.

        At the first suspect after a while, only that suspect stays, behind the other messages.
        Whatever it does to its handler then happens to no other message. Suspects whose handler
        survives come as fast as all others.
        """
        suspects = [message for message in messages if message.attempt >= SUSPECT_ATTEMPT]
        is_first = bool(suspects) and not self._are_there
        if messages:
            self._are_there = bool(suspects)
        if not is_first or not may_return:
            return list(messages), [], False
        others = [message for message in messages if message.attempt < SUSPECT_ATTEMPT]
        return [*others, suspects[0]], suspects[1:], True


class Prefetch:
    """Messages that one consumer has received for its loops and not handed out. Owner: the
    consumer. Bound: one receive for each loop.
    """

    __slots__ = ("_pace", "_received", "_suspects")

    def __init__(self, count_max: int) -> None:
        self._pace = Pace(count_max)
        self._received = Received()
        self._suspects = Suspects()

    def ask(self, now_ms: int) -> int:
        """Return how many messages the next receive requests."""
        return self._pace.ask(now_ms)

    def add(
        self, messages: Sequence[ReceivedMessage], began_ms: int, now_ms: int, *, may_return: bool = True
    ) -> list[ReceivedMessage]:
        """Add the *messages* of a receive that began at *began_ms*; return those to release, none
        unless *may_return*. At the first suspects the pace begins again.
        """
        self._pace.received(len(messages), began_ms, now_ms)
        kept, surplus, is_anew = self._suspects.split(messages, may_return=may_return)
        if is_anew:
            self._pace.begin_again()
        self._received.add(kept, now_ms)
        return surplus

    def keep(self, messages: Sequence[ReceivedMessage], now_ms: int) -> None:
        """Add *messages* that could not be released: they are handed out."""
        self._received.add(messages, now_ms)

    def take(self, now_ms: int) -> ReceivedMessage | None:
        """Take the next message to hand out; None when there is none with a lease that lasts."""
        return self._received.take(now_ms)

    def clear(self) -> list[ReceivedMessage]:
        """Take all waiting messages."""
        return self._received.clear()
