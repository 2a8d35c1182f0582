"""The end of a client: the error of calls that come too late, and how a second `close` meets the
first, in asyncio and between threads.
"""

import asyncio
from typing import ClassVar

from tern_wire.errors import TernError


class ClientClosed(TernError):
    """The client was closed before the call, or during it; nothing was sent for the call. Make a
    new client. Never on the wire.

    Example:

        from tern_client import BlockingProducer, ClientClosed

        producer = BlockingProducer("http://127.0.0.1:8080")
        producer.close()
        try:
            producer.send("orders", b"too late")
        except ClientClosed as error:
            print(error.code)  # -> client-closed
    """

    code: ClassVar[str] = "client-closed"
    status: ClassVar[int] = 409
    title: ClassVar[str] = "The client is closed"
    fix: ClassVar[str] = (
        "This {client} is closed. Make a new one, or close this one only after its last use, such as at the end of a `with`."
    )


class Closing:
    """The first `close` of an async client. A later one waits for it."""

    __slots__ = ("_is_over",)

    def __init__(self) -> None:
        self._is_over = asyncio.Event()

    def end(self) -> None:
        """Mark the first `close` as done."""
        self._is_over.set()

    async def wait(self) -> None:
        """Return when the first `close` is done."""
        await self._is_over.wait()


class BlockingClosing:
    """The first `close` of a blocking client. A later one does not wait: its thread may be one that
    the first one waits for.
    """

    __slots__ = ()

    def end(self) -> None:
        """Do nothing."""

    def wait(self) -> None:
        """Return at once."""
