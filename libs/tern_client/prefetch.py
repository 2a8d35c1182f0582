"""What a consumer's loop receives ahead of its handler: how much, in which order, and what goes back. Pure: times are arguments, in ms.

     ask --> receive --add--> waits here --take--> handed to the handler: from here on the attempt counts
                       |           '--clear--> the loop has ended: given back, uncounted
                       '--surplus--> suspects: given back, uncounted

Law: what is leased and not handed out stays small, since a process that is killed gives nothing back and all of it counts. A loop begins with
one message and doubles as long as its handler keeps pace; it never asks for more than its handler does in WORK_AHEAD_MS, or in RECEIVES_AHEAD times
the time of a receive where the proxy is far, within WORK_AHEAD_MAX_MS. So a receive costs a quick handler at most a twentieth of its time.
"""

from collections import deque
from collections.abc import Sequence

from tern_client.calls.leases import Received
from tern_client.calls.models import ReceivedMessage

WORK_AHEAD_MS = 100
WORK_AHEAD_MAX_MS = 1_000
RECEIVES_AHEAD = 20
# Of so many receives that brought something the quickest tells how far the proxy is: the others waited for messages.
_RECEIVES_KEPT = 8
# A message that comes for the third time may be why its consumers ended. The next one behind it must not pay for that.
SUSPECT_ATTEMPT = 3


class Pace:
    """How many messages one loop asks for. Owner: its Prefetch."""

    __slots__ = ("_began_ms", "_count", "_count_max", "_handled", "_took_ms")

    def __init__(self, count_max: int) -> None:
        self._count_max = count_max
        self._took_ms: deque[int] = deque(maxlen=_RECEIVES_KEPT)
        self._count = 1
        # What was received since the last question, and when.
        self._began_ms = self._handled = 0

    def received(self, count: int, began_ms: int, now_ms: int) -> None:
        """A receive, which began at *began_ms*, has brought *count*."""
        if not count:
            return
        self._took_ms.append(max(now_ms - began_ms, 0))
        if not self._handled:
            self._began_ms = now_ms
        self._handled += count

    def ask(self, now_ms: int) -> int:
        """How many the next receive asks for, now that the handler has come to the end of what there was."""
        if self._handled:
            # A clock that was set back measures nothing; a handler that is done within a tick is quick.
            each_ms = max(now_ms - self._began_ms, 0) / self._handled
            self._handled = 0
            ahead_ms = min(max(WORK_AHEAD_MS, RECEIVES_AHEAD * min(self._took_ms)), WORK_AHEAD_MAX_MS)
            fits = self._count_max if each_ms * self._count_max <= ahead_ms else int(ahead_ms / each_ms)
            self._count = max(min(fits, 2 * self._count, self._count_max), 1)
        return self._count

    def begin_again(self) -> None:
        """With one message."""
        self._count, self._handled = 1, 0


class Prefetch:
    """What one consumer has received for its loops and not handed out. Owner: the consumer; bounded by one receive a loop."""

    __slots__ = ("_are_suspects", "_pace", "_received")

    def __init__(self, count_max: int) -> None:
        self._pace = Pace(count_max)
        self._received = Received()
        self._are_suspects = False

    def ask(self, now_ms: int) -> int:
        """How many the next receive asks for."""
        return self._pace.ask(now_ms)

    def add(
        self, messages: Sequence[ReceivedMessage], began_ms: int, now_ms: int, *, may_return: bool = True
    ) -> list[ReceivedMessage]:
        """These came of a receive that began at *began_ms*; what of them is to be given back, nothing unless *may_return*.

        At the first suspect after a while, it alone stays of all suspects, behind the others, and the pace begins again: whatever it does
        to its handler happens to no other message in hand. Suspects whose handler lives on come as fast as all others.
        """
        self._pace.received(len(messages), began_ms, now_ms)
        suspects = [message for message in messages if message.attempt >= SUSPECT_ATTEMPT]
        is_first = bool(suspects) and not self._are_suspects
        if messages:
            self._are_suspects = bool(suspects)
        if not is_first or not may_return:
            self._received.add(messages, now_ms)
            return []
        self._pace.begin_again()
        others = [message for message in messages if message.attempt < SUSPECT_ATTEMPT]
        self._received.add([*others, suspects[0]], now_ms)
        return suspects[1:]

    def keep(self, messages: Sequence[ReceivedMessage], now_ms: int) -> None:
        """These could not be given back: they are handed out after all."""
        self._received.add(messages, now_ms)

    def take(self, now_ms: int) -> ReceivedMessage | None:
        """The next one, to be handed out; None when there is none whose lease is not over."""
        return self._received.take(now_ms)

    def clear(self) -> list[ReceivedMessage]:
        """All that wait; none does any longer."""
        return self._received.clear()
