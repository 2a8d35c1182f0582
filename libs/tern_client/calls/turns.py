"""The order of sends to one message group of a topic: one request at a time, in the order of the
calls. Pure.

    enter -> [queue of each key] -> first in all of them: may begin -> leave -> the next are first

A turn enters all of its queues at once, so two turns never wait for each other.

Law: the next request of a message group begins only when no earlier one can be repeated any more.
No retry overtakes another send, and none is overtaken. Memory: one turn for each send that waits.
"""

from collections import deque
from collections.abc import Iterable
from typing import ClassVar

from tern_client.calls.models import OutgoingMessage
from tern_wire.errors import ReplyTimeout, TernError

# Topic and message group.
Key = tuple[str, str]


class TurnNotReached(TernError):
    """The message was not sent: earlier messages of its message group failed, and its own time
    passed meanwhile. It may be sent again. Raised by producers, never on the wire.

    Example:

        import asyncio

        from tern_client import Producer, RetryPolicy, TurnNotReached


        async def main() -> None:
            # Port 9 refuses connections, so each send fails at its deadline.
            quick = RetryPolicy(deadline_ms=200)
            async with Producer("http://127.0.0.1:9", policy=quick) as producer:
                sends = [producer.send("orders", b"%d" % n, message_group="4") for n in range(5)]
                outcomes = await asyncio.gather(*sends, return_exceptions=True)
            print(isinstance(outcomes[-1], TurnNotReached))  # -> True


        asyncio.run(main())
    """

    code: ClassVar[str] = "turn-not-reached"
    status: ClassVar[int] = 503
    retryable: ClassVar[bool] = True
    title: ClassVar[str] = "An earlier message of its message group could not be sent"
    fix: ClassVar[str] = (
        "The message waited {waited_ms} ms for earlier messages of its message group, which failed, and was not sent. "
        "Send it again if it may be stored without them."
    )


class Turn:
    """The place of one send in the queues of *keys*. Turns with the same keys are distinct
    objects.
    """

    __slots__ = ("ahead", "has_failed", "is_behind_failure", "keys")

    def __init__(self, keys: tuple[Key, ...]) -> None:
        self.keys = keys
        # Number of its queues in which another turn is first.
        self.ahead = 0
        # Whether this turn was given up, and whether the one right before it was: neither stored
        # nor refused.
        self.has_failed = self.is_behind_failure = False

    def is_overdue(self, waited_ms: float, deadline_ms: float) -> bool:
        """Whether this turn is too late to be sent. An outage costs one deadline, not one for each
        send that waits. A long queue that moves is waited for.
        """
        return self.is_behind_failure and waited_ms > deadline_ms


class Turns:
    """The queues of turns. Owner: one producer, which calls from one thread at a time."""

    __slots__ = ("_queues",)

    def __init__(self) -> None:
        self._queues: dict[Key, deque[Turn]] = {}

    def __len__(self) -> int:
        """Return the number of keys with a turn."""
        return len(self._queues)

    def enter(self, turn: Turn) -> bool:
        """Put *turn* last into its queues; return whether it may begin at once."""
        for key in turn.keys:
            queue = self._queues.get(key)
            if queue is None:
                self._queues[key] = deque((turn,))
            else:
                queue.append(turn)
                turn.ahead += 1
        return not turn.ahead

    def leave(self, turn: Turn) -> list[Turn]:
        """Remove *turn*, which is done or gives up its places; return the turns that may begin
        now.
        """
        first: list[Turn] = []
        for key in turn.keys:
            queue = self._queues[key]
            if queue[0] is not turn:
                queue.remove(turn)  # it gives up: those behind it still wait for those before it
                continue
            queue.popleft()
            if not queue:
                del self._queues[key]
                continue
            queue[0].is_behind_failure |= turn.has_failed
            queue[0].ahead -= 1
            if not queue[0].ahead:
                first.append(queue[0])
        return first

    def last(self, key: Key) -> Turn | None:
        """Return the youngest turn of *key*, None without one."""
        queue = self._queues.get(key)
        return queue[-1] if queue else None

    def of(self, key: Key) -> Iterable[Turn]:
        """Return all turns of *key*, oldest first."""
        return tuple(self._queues.get(key, ()))

    def divide(self, turn: Turn, part: Turn) -> None:
        """Put *part* in the place of *turn*, which is first in its only queue and becomes the
        second.
        """
        queue = self._queues[turn.keys[0]]
        queue[0], part.is_behind_failure, turn.is_behind_failure = part, turn.is_behind_failure, False
        queue.insert(1, turn)
        turn.ahead = 1


def is_given_up(error: TernError) -> bool:
    """Whether *error* ended a send whose repeats all failed, so that the next send would fail as
    well. A request without a reply is stored and does not count.
    """
    return error.retryable and not isinstance(error, ReplyTimeout)


def keys_of(topic: str, messages: Iterable[OutgoingMessage]) -> tuple[Key, ...]:
    """Return the queues that a send of *messages* enters; () for messages without order."""
    return tuple({(topic, message.message_group): None for message in messages if message.message_group})
