"""Where one subscription's messages come from and where their results go: a Consumer whose caller
keeps the messages, and the settles that wait for their request.

    handler ends --> pending --one request at a time--> settled
                       ^------ failed for now -------'

Law: while one request is under way, what comes meanwhile forms the next one. So an idle worker acks
at once, and a busy one in batches.
"""

import asyncio
import logging
from collections.abc import Callable

from tern_client.calls.documents import Settle
from tern_client.calls.models import ReceivedMessage
from tern_client.consumer import Consumer
from tern_client.worker.outcomes import Outcome
from tern_client.worker.waiting import InHand
from tern_wire.errors import TernError
from tern_wire.limits import SETTLE_ENTRIES_MAX

logger = logging.getLogger("tern_client.worker")
# The pause after a settle that failed for now. The call itself was repeated until its deadline.
_REPEAT_PAUSE_S = 0.5
Done = Callable[[InHand, Outcome, TernError | None], None]


class GroupSource(Consumer):
    """One consumer group's receives and settles."""

    __slots__ = ()

    async def settle_now(self, settles: list[Settle]) -> dict[str, TernError]:
        """Settle in one request and return the errors by receipt handle."""
        return await self._end_leases(settles, return_errors=True)

    async def give_back(self, unseen: list[ReceivedMessage]) -> None:
        """Release *unseen*: visible at once, and this attempt does not count."""
        await self._give_back(unseen)

    def give_back_soon(self, unseen: list[ReceivedMessage]) -> None:
        """The same, in the background; `close` waits for it."""
        self._in_background(self._give_back(unseen))

    async def extend_each(self, leases: list[tuple[str, int]]) -> dict[str, TernError]:
        """Extend each lease by its own length in ms; return the errors by receipt handle."""
        errors = await self._settle_open([Settle(handle, "extend", length_ms) for handle, length_ms in leases])
        now_ms = self._clock()
        for handle, length_ms in leases:
            if handle not in errors:
                self._leases.extend([handle], now_ms + length_ms)
        return errors


class Settling:
    """Results that wait for their request. Owner: one subscription. Bound: its messages in hand."""

    __slots__ = ("_done", "_idle", "_is_ending", "_pending", "_source", "_task")

    def __init__(self, source: GroupSource, done: Done) -> None:
        self._source, self._done = source, done
        self._pending: dict[InHand, Outcome] = {}
        self._task: asyncio.Task[None] | None = None
        self._idle = asyncio.Event()
        self._idle.set()
        self._is_ending = False

    def add(self, message: InHand, outcome: Outcome) -> None:
        """Send *outcome* with the next request, which begins at once when none is under way."""
        self._pending[message] = outcome
        self._idle.clear()
        if self._task is None or self._task.done():
            self._task = asyncio.get_running_loop().create_task(self._run())

    async def finish(self) -> None:
        """Wait until everything is settled, or has failed once more."""
        self._is_ending = True
        await self._idle.wait()

    async def cancel(self) -> None:
        """Give up what is not settled."""
        if self._task is not None:
            self._task.cancel()
            await asyncio.wait({self._task})

    async def _run(self) -> None:
        while self._pending:
            batch = dict(list(self._pending.items())[:SETTLE_ENTRIES_MAX])
            errors = await self._settle(batch)
            again = 0
            for message, outcome in batch.items():
                error = errors.get(message.handle)
                if error is not None and error.retryable and not self._is_ending:
                    again += 1
                    continue
                del self._pending[message]
                self._done(message, outcome, error)
            if again:
                await asyncio.sleep(_REPEAT_PAUSE_S)
        self._idle.set()

    async def _settle(self, batch: dict[InHand, Outcome]) -> dict[str, TernError]:
        settles = [
            Settle(message.handle, outcome.action, delay_ms=outcome.delay_ms, reason=outcome.reason)
            for message, outcome in batch.items()
        ]
        try:
            return await self._source.settle_now(settles)
        except TernError as error:
            logger.warning("%d results could not be sent: %s", len(batch), error)
            return {message.handle: error for message in batch}
