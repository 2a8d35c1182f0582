"""Interrupts of waits: a client that disconnects, and rights that are lost. One object for both.

Law: every wait takes an `Interrupt`, as the types of `ParkedPolls` and `CheckPolls` require, and
calls `check` after its last await and before it hands anything over. `done` is true from the moment
at which the loss of rights is known, not a turn of the loop later.
"""

import asyncio
from collections.abc import Callable
from types import TracebackType

from starlette.types import Receive

from tern_proxy.access.authorization import Admission
from tern_wire.errors import TernError


class ClientGone(Exception):
    """The client has closed its connection, so there is no answer to send."""


class Interrupt:
    """Interrupt of one request without an unread body. Owner: the request's handler.

    A context manager, whose exit ends the watch.
    """

    __slots__ = ("_admission", "_task", "future")

    def __init__(self, receive: Receive, admission: Admission) -> None:
        # Done when the wait must end; its result has no meaning.
        self.future: asyncio.Future[None] = asyncio.get_running_loop().create_future()
        self._admission = admission
        self._task = asyncio.ensure_future(self._watch(receive))
        admission.listen(self._set)

    def __enter__(self) -> "Interrupt":
        return self

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, at: TracebackType | None) -> None:
        self._task.cancel()
        self._admission.listen(None)

    @property
    def refusal(self) -> TernError | None:
        """Reason for which nothing may be handed over any more; None while it may."""
        return self._admission.ended

    def done(self) -> bool:
        """Return whether the wait must end."""
        return self.future.done()

    def call(self, ended: Callable[[object], None]) -> None:
        """Call *ended* soon after the wait must end, until `call_no_more`."""
        self.future.add_done_callback(ended)

    def call_no_more(self, ended: Callable[[object], None]) -> None:
        """Remove the callback *ended*."""
        self.future.remove_done_callback(ended)

    def check(self) -> None:
        """Raise the refusal, or ClientGone, if the wait must end."""
        if self._admission.ended is not None:
            raise self._admission.ended
        if self.future.done():
            raise ClientGone

    def _set(self) -> None:
        if not self.future.done():
            self.future.set_result(None)

    async def _watch(self, receive: Receive) -> None:
        try:
            while (await receive())["type"] != "http.disconnect":
                pass
        except TernError:
            pass  # the refusal, which `listen` has reported already
        self._set()
