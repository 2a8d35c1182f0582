"""A tail at the ASGI application itself: what it has sent so far, and a client that takes nothing while it is shut."""

import asyncio
from typing import Any

import orjson

from tern_wire.paths import EVENT_STREAM, NDJSON
from tests.support.event_stream import EventStream, SentEvent
from tests.support.loops import eventually
from tests.support.proxy.proxy_mesh import RawExchange

Line = dict[str, Any]


class TailExchange(RawExchange):
    """One tail. Owner: a test, which ends it by `end`."""

    def __init__(self, app: Any, path: str, headers: dict[str, str] | None = None, *, kind: str = NDJSON) -> None:
        self.is_open = asyncio.Event()
        self.is_open.set()
        # Writes that the client has not taken yet.
        self.blocked = 0
        super().__init__(app, "GET", path, {"accept": kind, **(headers or {})})
        self.push(b"")

    async def _run(self) -> None:
        async def receive() -> dict[str, Any]:
            return await self._inbox.get()

        async def send(message: dict[str, Any]) -> None:
            self.blocked += 1
            await self.is_open.wait()
            self.blocked -= 1
            self.sent.append(message)

        await self._app(self._scope, receive, send)

    @property
    def body(self) -> bytes:
        """Everything that was sent behind the head."""
        return b"".join(message.get("body", b"") for message in self.sent[1:])

    @property
    def lines(self) -> list[Line]:
        """The whole lines of NDJSON so far."""
        return [orjson.loads(line) for line in self.body.split(b"\n")[:-1]]

    @property
    def messages(self) -> list[Line]:
        """The messages so far."""
        return [line["data"] for line in self.lines if line["event"] == "message"]

    @property
    def bodies(self) -> list[str]:
        """The bodies of the messages so far."""
        return [str(message["body"]) for message in self.messages]

    @property
    def last_id(self) -> str:
        """The last event id so far."""
        return [str(line["id"]) for line in self.lines if "id" in line][-1]

    @property
    def events(self) -> list[SentEvent]:
        """As an EventSource hears them."""
        return EventStream().feed(self.body)

    @property
    def is_over(self) -> bool:
        """Whether the answer has its end."""
        return len(self.sent) > 1 and not self.sent[-1].get("more_body", False)

    async def begun(self) -> "TailExchange":
        """Wait until the first event is there."""
        await eventually(lambda: self.body, "the begin of the tail")
        return self

    async def has(self, count: int) -> list[Line]:
        """Wait for *count* messages."""
        await eventually(lambda: len(self.messages) >= count, f"{count} messages of the tail")
        return self.messages

    async def over(self) -> Line:
        """Wait for the end; its last event."""
        await eventually(lambda: self.is_over or self.task.done(), "the end of the tail")
        await self.task
        return self.lines[-1]

    async def end(self) -> None:
        """The client goes away."""
        self.hang_up()
        self.is_open.set()
        await asyncio.wait({self.task}, timeout=30)
        assert self.task.done(), "a tail outlives its client"
        self.task.result()


__all__ = ["EVENT_STREAM", "NDJSON", "Line", "TailExchange"]
