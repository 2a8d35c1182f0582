"""One call of a handler: in the event loop or in a thread, with its deadline.

Law: an async handler is cancelled at its deadline. A thread cannot be ended: *on_deadline* is
called, and the call goes on until the function returns, whose result then means nothing.
"""

import asyncio
from collections.abc import Callable
from dataclasses import dataclass

from tern_client.worker.arguments import Handler
from tern_client.worker.outcomes import DeadlinePassed
from tern_client.worker.threads import HandlerThreads
from tern_wire.times import duration_text


@dataclass(frozen=True, slots=True)
class Ended:
    """How a call ended: with what it raised, or with the value that it returned."""

    error: BaseException | None = None
    value: object = None


class HandlerCalls:
    """Calls of one handler. Owner: one subscription."""

    __slots__ = ("_deadline_ms", "_handler", "_threads")

    def __init__(self, handler: Handler, deadline_ms: int | None) -> None:
        self._handler, self._deadline_ms = handler, deadline_ms
        self._threads = HandlerThreads(handler.name)

    async def run(self, argument: object, on_deadline: Callable[[BaseException], None]) -> Ended:
        """Call the handler and return how it ended. DeadlinePassed is its error when it did not end
        in time; in a thread, *on_deadline* has it before that.

        Raises CancelledError when this call is cancelled.
        """
        try:
            if self._handler.is_async:
                return await self._run_async(argument)
            return await self._run_in_thread(argument, on_deadline)
        except asyncio.CancelledError as error:
            caller = asyncio.current_task()
            if caller is not None and caller.cancelling():
                raise
            return Ended(error)  # of a task of the handler's own
        except (Exception, SystemExit, KeyboardInterrupt) as error:
            # A handler ends its message, not the worker: whatever it raised decides about that.
            return Ended(error)

    async def _run_async(self, argument: object) -> Ended:
        if self._deadline_ms is None:
            return Ended(value=await self._handler.call(argument))
        limit, value = asyncio.timeout(self._deadline_ms / 1000), None
        try:
            async with limit:
                value = await self._handler.call(argument)
        except TimeoutError:
            if not limit.expired():
                raise
        return Ended(self._passed()) if limit.expired() else Ended(value=value)

    async def _run_in_thread(self, argument: object, on_deadline: Callable[[BaseException], None]) -> Ended:
        ended = self._threads.call(self._handler.call, argument)
        limit_s = None if self._deadline_ms is None else self._deadline_ms / 1000
        done, _ = await asyncio.wait({ended}, timeout=limit_s)
        if not done:
            passed = self._passed()
            on_deadline(passed)
            await asyncio.wait({ended})
            ended.exception()  # retrieved: it means nothing any more
            return Ended(passed)
        error = ended.exception()
        return Ended(error) if error is not None else Ended(value=ended.result())

    def close(self) -> None:
        """End the threads that wait."""
        self._threads.close()

    def _passed(self) -> DeadlinePassed:
        return DeadlinePassed(f"{self._handler.name} took longer than {duration_text(self._deadline_ms or 0)}")
