"""Whose turn it is to send: of one message group of a topic, one request at a time, in the order in which sends were asked for. Pure.

     enter -> [queue of each key] -> first in all of them: may begin -> leave -> the next ones are first

A turn enters all its queues at once, so two turns never wait for each other. Law: a message group's next request begins only when nothing
of the earlier ones can still be repeated; so no retry overtakes, and none is overtaken. Memory: a turn for each send that waits, nothing else.
"""

from collections import deque
from collections.abc import Iterable
from typing import ClassVar

from tern_client.calls.models import OutgoingMessage
from tern_wire.errors import ReplyTimeout, TernError

# Topic and message group.
Key = tuple[str, str]


class TurnNotReached(TernError):
    """An outage took the time of the messages before it in its message group, and its own; nothing of it was sent. Never on the wire."""

    code: ClassVar[str] = "turn-not-reached"
    status: ClassVar[int] = 503
    retryable: ClassVar[bool] = True
    title: ClassVar[str] = "An earlier message of its message group could not be sent"
    fix: ClassVar[str] = (
        "It waited {waited_ms} ms for earlier messages of its message group, which failed, and was not sent. Send it again, or not, as the group needs."
    )


class Turn:
    """One send's place in the queues of *keys*; an object, so that two of the same keys are told apart."""

    __slots__ = ("ahead", "has_failed", "is_behind_failure", "keys")

    def __init__(self, keys: tuple[Key, ...]) -> None:
        self.keys = keys
        # In how many of its queues somebody is before it.
        self.ahead = 0
        # What became of it, and of those right before it: whether they were given up, and not refused or stored.
        self.has_failed = self.is_behind_failure = False

    def is_overdue(self, waited_ms: float, deadline_ms: float) -> bool:
        """Whether it shall not be sent any more. An outage then costs one deadline and not one for each send that waits, while a long
        queue that moves is waited for."""
        return self.is_behind_failure and waited_ms > deadline_ms


class Turns:
    """The queues. Owned by one producer, which calls from one thread at a time."""

    __slots__ = ("_queues",)

    def __init__(self) -> None:
        self._queues: dict[Key, deque[Turn]] = {}

    def __len__(self) -> int:
        """How many keys have a turn."""
        return len(self._queues)

    def enter(self, turn: Turn) -> bool:
        """Take the last place; whether it may begin at once."""
        for key in turn.keys:
            queue = self._queues.get(key)
            if queue is None:
                self._queues[key] = deque((turn,))
            else:
                queue.append(turn)
                turn.ahead += 1
        return not turn.ahead

    def leave(self, turn: Turn) -> list[Turn]:
        """*turn* is done, or gives up its places; those that may begin now."""
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
        """The youngest turn of *key*."""
        queue = self._queues.get(key)
        return queue[-1] if queue else None

    def of(self, key: Key) -> Iterable[Turn]:
        """All turns of *key*, the oldest first."""
        return tuple(self._queues.get(key, ()))

    def divide(self, turn: Turn, part: Turn) -> None:
        """*part* takes the place of *turn*, which is first in its only queue and is now the next one."""
        queue = self._queues[turn.keys[0]]
        queue[0], part.is_behind_failure, turn.is_behind_failure = part, turn.is_behind_failure, False
        queue.insert(1, turn)
        turn.ahead = 1


def is_given_up(error: TernError) -> bool:
    """Whether *error* says that a send was repeated in vain: the next one would be as well. A request without a reply is stored."""
    return error.retryable and not isinstance(error, ReplyTimeout)


def keys_of(topic: str, messages: Iterable[OutgoingMessage]) -> tuple[Key, ...]:
    """In which queues a send of *messages* stands; () for messages without order."""
    return tuple({(topic, message.message_group): None for message in messages if message.message_group})
