"""The end of a client: the error of those that come too late, and how a second `close` meets the first, in asyncio and between threads."""

import asyncio
from typing import ClassVar

from tern_wire.errors import TernError


class ClientClosed(TernError):
    """The client was closed before, or while this waited; nothing was sent for it. Never on the wire."""

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
        """The first one is done."""
        self._is_over.set()

    async def wait(self) -> None:
        """Return when the first one is done."""
        await self._is_over.wait()


class BlockingClosing:
    """As Closing, of a blocking client. A later one waits for nothing: it may come from a thread that the first one waits for."""

    __slots__ = ()

    def end(self) -> None:
        """The first one is done."""

    def wait(self) -> None:
        """Return at once."""
