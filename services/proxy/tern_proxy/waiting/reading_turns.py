"""Turns of readers: while sends wait for their lane, consumers that are far behind read one after
the other.

Reading a backlog at full speed uses every core: the leader reads, the proxy decodes and encodes,
and each send waits behind all of it. So the messages in receives from a broker group beside its
sends are bounded. The size of a receive is unknown in advance, so the consumer group's previous
result is used as the estimate. Groups that keep up receive little, and never wait. Others wait for
a turn at most READING_TURN_WAIT_MAX_MS, so that readers are slowed and never stopped.

     take -> [waiting, first in first out] -> the receive at the broker -> give_back

Owner of all state: one event loop.
"""

import asyncio
from collections import deque
from dataclasses import dataclass
from typing import Protocol

from tern_wire.limits import READING_BESIDE_SENDS_MAX_MESSAGES, READING_TURN_WAIT_MAX_MS

# A consumer group keeps up if its last receive returned at most this many messages.
LITTLE_MAX_MESSAGES = 4
# A lane under load is empty for a moment again and again; receives admitted then would delay the
# next sends.
CALM_AFTER_S = 0.5
# Pairs of topic and consumer group; a forgotten one counts once as a group that keeps up.
READERS_KEPT_MAX = 4_096
# Topic and consumer group.
Reader = tuple[str, str]


class Sends(Protocol):
    """Lane of the sends that have priority."""

    @property
    def crowded_at_s(self) -> float:
        """When a send last had to wait for its lane (the loop's time, s); -inf: never."""
        ...


@dataclass(slots=True, eq=False)
class _Waiting:
    turn: asyncio.Future[None]
    messages: int


class ReadingTurns:
    """Turns of one broker group."""

    def __init__(self, sends: Sends) -> None:
        self._sends = sends
        self._found: dict[Reader, int] = {}
        self._under_way = 0
        self._waiting: deque[_Waiting] = deque()
        # For metrics: receives that had to wait so far.
        self.held = 0

    @property
    def waiting(self) -> int:
        """Number of receives that wait for their turn."""
        return len(self._waiting)

    @property
    def under_way(self) -> int:
        """Estimated number of messages in flight."""
        return self._under_way

    async def take(self, reader: Reader) -> int:
        """Wait for the turn of *reader*, if necessary; return its estimated messages, to be given
        back.
        """
        messages = self._found.get(reader, 1)
        if messages <= LITTLE_MAX_MESSAGES or not self._must_wait():
            self._under_way += messages
            return messages
        self.held += 1
        loop = asyncio.get_running_loop()
        waiting = _Waiting(loop.create_future(), messages)
        self._waiting.append(waiting)
        timer = loop.call_later(READING_TURN_WAIT_MAX_MS / 1_000, self._waited_enough, waiting)
        try:
            await waiting.turn
        except asyncio.CancelledError:
            if not waiting.turn.cancelled():  # it was granted just now
                self.give_back(reader, messages, None)
            elif waiting in self._waiting:
                self._waiting.remove(waiting)
            raise
        finally:
            timer.cancel()
        return messages

    def give_back(self, reader: Reader, messages: int, found: int | None) -> None:
        """End the receive that counted as *messages*.

        *found*: the number received; None when it failed.
        """
        self._under_way -= messages
        if found is not None:
            if reader not in self._found and len(self._found) >= READERS_KEPT_MAX:
                self._found.clear()
            self._found[reader] = max(1, found)
        while self._waiting and not self._is_full():
            self._let(self._waiting.popleft())

    # Internal -------------------------------------------------------------------------------------
    def _must_wait(self) -> bool:
        return bool(self._waiting) or self._is_full()

    def _is_full(self) -> bool:
        return self._under_way >= READING_BESIDE_SENDS_MAX_MESSAGES and self._are_sends_waiting()

    def _are_sends_waiting(self) -> bool:
        return asyncio.get_running_loop().time() - self._sends.crowded_at_s < CALM_AFTER_S

    def _waited_enough(self, waiting: _Waiting) -> None:
        if not waiting.turn.done():
            self._waiting.remove(waiting)
            self._let(waiting)

    def _let(self, waiting: _Waiting) -> None:
        if waiting.turn.done():
            return  # it was cancelled, and its task has not run since
        self._under_way += waiting.messages
        waiting.turn.set_result(None)
