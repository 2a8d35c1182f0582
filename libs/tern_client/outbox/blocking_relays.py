"""A relay for programs without a loop: it runs in a thread of its own."""

import asyncio
import threading
from collections.abc import Callable, Sequence
from types import TracebackType
from typing import Any, Self

from tern_client.outbox.databases import BlockingDatabase
from tern_client.outbox.listeners import AnyOutbox
from tern_client.outbox.relays import Relay, RelayCounts


class BlockingRelay:
    """A Relay for threads, with the same arguments; *outbox* is an Outbox or a DbApiOutbox.

    Use it as a context manager, which relays in a thread beside yours; or call `run`, which returns
    when another thread or a signal handler calls `stop`; or `drain`.

    Example:

        from sqlalchemy import create_engine
        from sqlalchemy.orm import Session

        from tern_client.outbox import BlockingRelay, Outbox

        engine = create_engine("sqlite:///shop.db")
        outbox = Outbox(engine)
        outbox.create()
        with Session(engine) as session, session.begin():
            outbox.add(session, "orders", b"order 1")
        relay = BlockingRelay(outbox, "http://127.0.0.1:8080")
        print(relay.drain().sent)  # -> 1
    """

    def __init__(self, outbox: AnyOutbox, endpoints: str | Sequence[str], **arguments: Any) -> None:
        """TypeError for an AsyncOutbox, whose connections belong to the application's loop."""
        if not isinstance(outbox.database, BlockingDatabase):
            raise TypeError("outbox is an AsyncOutbox; a Relay is for it")
        self._relay = Relay(outbox, endpoints, **arguments)
        self._outbox = outbox
        self._loop: asyncio.AbstractEventLoop | None = None
        self._thread: threading.Thread | None = None
        self._is_stopped = threading.Event()
        self._error: BaseException | None = None

    @property
    def counts(self) -> RelayCounts:
        """What it has done so far."""
        return self._relay.counts

    def run(self) -> None:
        """Relay in this thread until `stop`. Errors: see Relay.run."""
        asyncio.run(self._until_stopped(self._relay.run))

    def drain(self) -> RelayCounts:
        """Send what waits and return the counts. Errors: see Relay.drain."""
        return asyncio.run(self._relay.drain())

    def stop(self) -> None:
        """End `run` behind the batch in hand; from any thread, also before it begins."""
        self._is_stopped.set()
        loop = self._loop
        if loop is not None:
            try:
                loop.call_soon_threadsafe(self._relay.stop)
            except RuntimeError:
                # The loop has ended, and `run` with it.
                return

    def __enter__(self) -> Self:
        """Begin to relay in a thread of its own. An error of the database, such as a missing table,
        is raised here; within an event loop RuntimeError.
        """
        if _is_in_event_loop():
            raise RuntimeError("an event loop runs in this thread; use `async with Relay(...)` here")
        asyncio.run(self._relay.check())
        self._thread = threading.Thread(target=self._run_aside, name="tern-outbox-relay", daemon=True)
        self._thread.start()
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        """Stop behind the batch in hand; an error of the thread is raised."""
        self.stop()
        if self._thread is not None:
            self._thread.join()
        if self._error is not None:
            raise self._error

    def _run_aside(self) -> None:
        try:
            self.run()
        except BaseException as error:  # raised again by the thread that leaves the block
            self._error = error

    async def _until_stopped(self, run: Callable[[], Any]) -> None:
        self._loop = asyncio.get_running_loop()
        if self._is_stopped.is_set():
            self._relay.stop()
        try:
            await run()
        finally:
            self._loop = None


def _is_in_event_loop() -> bool:
    try:
        asyncio.get_running_loop()
    except RuntimeError:
        return False
    return True
