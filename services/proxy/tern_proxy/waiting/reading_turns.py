"""Turns: while sends wait for a place in their lane, consumers that are far behind read one after the other, not all at once.

Reading a backlog at full speed takes every core that there is: the leader reads, the proxy decodes and encodes, and each send waits behind
all of it. So the messages that are being received from a broker group beside its sends are bounded. What a receive will find nobody knows; it
is taken for as many as the consumer group found last time. Who keeps up finds little, and never waits. Who waits for a turn has it after
READING_TURN_WAIT_MAX_MS at the latest, so that readers are slowed and never stopped.

     take -> [waiting, first in first out] -> the receive at the broker -> give_back

Owner of all state: one event loop.
"""

import asyncio
from collections import deque
from dataclasses import dataclass
from typing import Protocol

from tern_wire.limits import READING_BESIDE_SENDS_MAX_MESSAGES, READING_TURN_WAIT_MAX_MS

# A consumer group that found no more than this last time keeps up.
LITTLE_MAX_MESSAGES = 4
# A lane under load is empty for a moment again and again; what rushed in then, the next sends would wait for.
CALM_AFTER_S = 0.5
# Of pairs of topic and consumer group; who is forgotten is taken for one that keeps up, once.
READERS_KEPT_MAX = 4_096
# A topic and a consumer group of it.
Reader = tuple[str, str]


class Sends(Protocol):
    """The lane that is to be spared."""

    @property
    def crowded_at_s(self) -> float:
        """When a send last had to wait for a place (the loop's time, s); -inf: never."""
        ...


@dataclass(slots=True, eq=False)
class _Waiting:
    turn: asyncio.Future[None]
    messages: int


class ReadingTurns:
    """The turns of one broker group."""

    def __init__(self, sends: Sends) -> None:
        self._sends = sends
        self._found: dict[Reader, int] = {}
        self._under_way = 0
        self._waiting: deque[_Waiting] = deque()
        # For metrics: receives that had to wait so far.
        self.held = 0

    @property
    def waiting(self) -> int:
        """Receives that wait for their turn."""
        return len(self._waiting)

    @property
    def under_way(self) -> int:
        """Messages that are taken to be on their way."""
        return self._under_way

    async def take(self, reader: Reader) -> int:
        """Wait for the turn of *reader*, if it has to; as how many messages it counts, to be given back."""
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
            if not waiting.turn.cancelled():  # it came just now
                self.give_back(reader, messages, None)
            elif waiting in self._waiting:
                self._waiting.remove(waiting)
            raise
        finally:
            timer.cancel()
        return messages

    def give_back(self, reader: Reader, messages: int, found: int | None) -> None:
        """The receive that counted as *messages* is over. *found*: so many there were; None when it failed."""
        self._under_way -= messages
        if found is not None:
            if reader not in self._found and len(self._found) >= READERS_KEPT_MAX:
                self._found.clear()
            self._found[reader] = max(1, found)
        while self._waiting and not self._is_full():
            self._let(self._waiting.popleft())

    # Below -----------------------------------------------------------------------------------------------------
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
