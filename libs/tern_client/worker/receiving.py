"""The receives of one subscription: one at a time, each with room reserved before it asks.

Law: a receive whose answer was lost is repeated with its attempt id, so its messages count one
attempt. One that a stop cuts off is repeated once without a wait, and what it brings goes back.
"""

import asyncio
import logging
import random
import secrets
from collections.abc import Callable

from tern_client.calls.models import ReceivedMessage
from tern_client.consumer import EMPTY_PAUSE_MS, WAIT_DEFAULT_MS
from tern_client.transport.clock import now_ms
from tern_client.worker.memory import MemoryShare
from tern_client.worker.pace import WorkerPace
from tern_client.worker.source import GroupSource
from tern_wire.errors import TernError
from tern_wire.limits import RECEIVE_SIZE_MAX_BYTES

logger = logging.getLogger("tern_client.worker")
# The pause after a receive that failed; the call itself has been repeated until its deadline.
_PAUSE_FIRST_S, _PAUSE_MAX_S = 0.25, 10.0
# The most time for what a receive under way had leased when it was cut off.
_COLLECT_S = 2.0


class Receiving:
    """Owner: one subscription. *places* returns (free places, messages that wait); *take_in* gets
    what came and returns what it keeps.
    """

    __slots__ = (
        "_attempt_id",
        "_changed",
        "_has_received",
        "_name",
        "_pace",
        "_places",
        "_reserved",
        "_share",
        "_source",
        "_take_in",
        "problem",
    )

    def __init__(
        self,
        source: GroupSource,
        name: str,
        share: MemoryShare,
        pace: WorkerPace,
        places: Callable[[], tuple[int, int]],
        take_in: Callable[[list[ReceivedMessage]], list[ReceivedMessage]],
    ) -> None:
        self._source, self._name, self._share, self._pace = source, name, share, pace
        self._places, self._take_in = places, take_in
        self._changed = asyncio.Event()
        self._attempt_id = ""
        # Messages that the receive under way has reserved; 0 without one.
        self._reserved = 0
        self._has_received = False
        # Why nothing can be received, "" while it can.
        self.problem = ""

    def changed(self) -> None:
        """Look again: a place is free, or memory."""
        self._changed.set()

    async def run(self) -> None:
        """Receive until cancelled. Raises a TernError that no repeat can mend, such as an unknown
        topic, as long as nothing was received.
        """
        failures = 0
        while True:
            self._changed.clear()
            count = self._count()
            if not count:
                await self._changed.wait()
                continue
            try:
                await self._receive(count)
            except TernError as error:
                if not self._has_received and not error.retryable:
                    raise
                self.problem = error.detail
                if not failures:
                    logger.warning("%s: nothing can be received: %s", self._name, error)
                pause_s = min(_PAUSE_FIRST_S * 2 ** min(failures, 16), _PAUSE_MAX_S)
                failures += 1
                await asyncio.sleep(pause_s * (0.5 + random.random() / 2))  # noqa: S311 - spreads clients, no secret
            else:
                if failures:
                    logger.info("%s: receives again", self._name)
                failures = 0

    async def collect(self) -> list[ReceivedMessage]:
        """Return the messages that a receive had leased when `run` was cancelled. They have their
        place in the worker's memory.
        """
        if not self._reserved:
            return []
        count, messages = self._reserved, list[ReceivedMessage]()
        try:
            async with asyncio.timeout(_COLLECT_S):
                messages = await self._source.receive(count, 0, self._attempt_id)
        except (TernError, TimeoutError) as error:
            logger.warning("%s: the last receive was cut off: %s", self._name, str(error) or "no answer")
        finally:
            self._settle_reservation(messages)
        return messages

    def _count(self) -> int:
        room = self._share.room()
        if room.size_bytes < RECEIVE_SIZE_MAX_BYTES:
            return 0
        return min(self._pace.ask(*self._places(), int(now_ms())), room.messages)

    async def _receive(self, count: int) -> None:
        began_ms = int(now_ms())
        self._share.reserve(count, RECEIVE_SIZE_MAX_BYTES)
        self._reserved = count
        self._attempt_id = self._attempt_id or secrets.token_hex(8)
        try:
            messages = await self._source.receive(count, WAIT_DEFAULT_MS, self._attempt_id)
        except TernError:
            self._settle_reservation([])  # the next one has the same attempt id
            raise
        self._attempt_id = ""
        self._has_received = True
        self.problem = ""
        self._pace.received(len(messages), began_ms, int(now_ms()))
        self._settle_reservation(self._take_in(messages))
        if not messages and now_ms() - began_ms < EMPTY_PAUSE_MS:
            await asyncio.sleep(EMPTY_PAUSE_MS / 1000)

    def _settle_reservation(self, kept: list[ReceivedMessage]) -> None:
        """Keep the room of *kept* alone. A message is never larger than a receive's bytes."""
        size_bytes = sum(len(message.body) for message in kept)
        self._share.give_back(self._reserved - len(kept), RECEIVE_SIZE_MAX_BYTES - size_bytes)
        self._reserved = 0
