"""How the SDK's clients reach a TestMesh: a transport without sockets.

Law: a pause between two attempts takes no time, of the test or of the mesh; it counts only against
the deadline of its call. So a call that is refused for ever still ends with its last error.
"""

import asyncio

from tern_client.transport.exchange import ProxyUnreachable, Request, Response, lost_connection
from tern_testing.door import ConnectionLost, Door
from tern_testing.virtual_loop import LoopThread


class MeshTransport:
    """Implements the SDK's Transport and PausingTransport. Owner: one client.

    An answer has no time limit: in the mesh's time, every request is answered at its time.
    """

    __slots__ = ("_door", "_thread")

    def __init__(self, door: Door, thread: LoopThread) -> None:
        self._door, self._thread = door, thread

    async def exchange(self, endpoint: str, request: Request, timeout_ms: float) -> Response:
        """Return the whole response; ProxyUnreachable once the mesh has ended, OutcomeUnknown."""
        if self._thread.is_closed:
            raise _ended(endpoint)
        try:
            return await self._thread.call(self._door.answer(request))
        except ConnectionLost as error:
            raise lost_connection(endpoint, "the test lost the connection") from error
        except asyncio.CancelledError:
            caller = asyncio.current_task()
            if self._thread.is_closed and caller is not None and not caller.cancelling():
                raise _ended(endpoint) from None
            raise

    async def pause(self, delay_ms: float) -> float:
        """Let a pause pass at once; return its length."""
        await asyncio.sleep(0)
        return delay_ms

    async def close(self) -> None:
        """There is nothing to close."""


def _ended(endpoint: str) -> ProxyUnreachable:
    return ProxyUnreachable(endpoint=endpoint, reason="the test's mesh has ended")
