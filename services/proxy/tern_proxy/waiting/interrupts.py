"""What ends a wait before its time: a client that closes its connection, and rights that are gone. One object for both.

Law: whatever waits takes an `Interrupt`, as the types of `ParkingLot` and `CheckDesk` ask, and calls `check` after its last await and before it
hands anything over. `done` is true from the very moment at which the rights are known to be gone, not a turn of the loop later.
"""

import asyncio
from collections.abc import Callable
from types import TracebackType

from starlette.types import Receive

from tern_proxy.access.authorization import Admission
from tern_wire.errors import TernError


class ClientGone(Exception):
    """The client closed its connection: there is nobody to answer."""


class Interrupt:
    """Of one request whose body has been read, or that has none. A context manager, which ends the watch. Owner: the request's handler."""

    __slots__ = ("_admission", "_task", "future")

    def __init__(self, receive: Receive, admission: Admission) -> None:
        # Done when the wait is to end; its result says nothing.
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
        """Why nothing may be handed over any more; None while it may."""
        return self._admission.ended

    def done(self) -> bool:
        """Whether the wait is to end."""
        return self.future.done()

    def call(self, ended: Callable[[object], None]) -> None:
        """Call *ended* soon after the wait is to end, until `call_no_more`."""
        self.future.add_done_callback(ended)

    def call_no_more(self, ended: Callable[[object], None]) -> None:
        """Forget *ended*."""
        self.future.remove_done_callback(ended)

    def check(self) -> None:
        """Nothing while the wait may go on; else the refusal, or ClientGone."""
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
            pass  # the refusal, which `listen` has told already
        self._set()
