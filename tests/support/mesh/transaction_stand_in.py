"""A stand-in for a mesh with transactions, for the transfers of tests/chaos and of `ternmq demo transfer`: one topic with one queue, in memory, over real HTTP.

It keeps what the contract of /v1 promises (half messages are invisible, an end is for once, checks come by pull), unless it is told to break
it: *ghost* makes one message visible that was rolled back.
"""

import asyncio
import json
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from typing import Any

from tern_service.server import open_socket, serve
from tern_wire.errors import TransactionResolved
from tern_wire.link.codec import encode_msgpack
from tern_wire.paths import JSON, MSGPACK, PROBLEM

QUEUE = "broker-a:0"
# A transaction is asked about when nobody has ended it for so long; far below the transfers' own times.
CHECK_AFTER_S, POLL_S = 0.3, 0.02
NAMES = {"commit": "committed", "rollback": "rolled-back"}


@dataclass(slots=True)
class Half:
    """One half message, and what became of it."""

    body: bytes
    begun_s: float
    state: str = "open"
    is_asked: bool = False


class TransactionStandIn:
    """An ASGI app. Owner of everything in it; runs in one event loop."""

    def __init__(self, *, ghost: bool = False) -> None:
        self.halves: dict[str, Half] = {}
        self.visible: list[tuple[str, bytes]] = []
        self.received = self.settled = self.checks = 0
        self._is_ghost_due = ghost

    async def __call__(self, scope: Any, receive: Any, send: Any) -> None:
        """One request, or the server's start and stop."""
        if scope["type"] == "lifespan":
            while (message := await receive())["type"] != "lifespan.shutdown":
                await send({"type": f"{message['type']}.complete"})
            await send({"type": "lifespan.shutdown.complete"})
            return
        body, is_more = b"", True
        while is_more:
            message = await receive()
            body, is_more = body + message.get("body", b""), message.get("more_body", False)
        status, kind, answer = await self._answer(scope["method"], scope["path"], body)
        headers = [(b"content-type", kind.encode()), (b"content-length", b"%d" % len(answer))]
        await send({"type": "http.response.start", "status": status, "headers": headers})
        await send({"type": "http.response.body", "body": answer})

    async def _answer(self, method: str, path: str, body: bytes) -> tuple[int, str, bytes]:
        parts = path.split("/")
        if path.endswith("/transactions"):
            number = f"tx-{len(self.halves)}"
            self.halves[number] = Half(body, asyncio.get_running_loop().time())
            return _said({"transaction_id": number, "message_id": f"m-{number}", "state": "open"}, 201)
        if parts[-1] in NAMES:
            return self._end(parts[-2], NAMES[parts[-1]])
        if path.endswith("/checks/receive"):
            return _packed({"checks": await self._polled(self._checks)})
        if path.endswith("/receive"):
            return _packed({"messages": await self._polled(self._messages), "settled": []})
        if path.endswith("/settle"):
            entries = json.loads(body)["entries"]
            self.settled += len(entries)
            return _said({"results": [{"index": at} for at in range(len(entries))]})
        if "/producer-groups/" in path:
            states = [half.state for half in self.halves.values()]
            counts = {name: states.count(name.replace("_", "-")) for name in ("open", "committed", "rolled_back")}
            return _said({"producer_group": parts[-1], "stats": {**counts, "expired": 0, "checks": self.checks}})
        if path.startswith("/v1/groups/") and path.endswith("/offsets"):
            return _said({"offsets": {QUEUE: self.settled}})
        if path.endswith("/offsets"):
            return _said({"queues": [{"queue": QUEUE, "min_offset": 0, "max_offset": len(self.visible)}]})
        assert method == "PUT", f"{method} {path} is not played here"
        return _said({"topic": parts[-1], "group": parts[-1]}, 201)

    def _end(self, number: str, state: str) -> tuple[int, str, bytes]:
        half = self.halves[number]
        if half.state not in {"open", state}:
            return 409, PROBLEM, json.dumps(TransactionResolved(state=half.state).problem()).encode()
        if half.state == "open":
            half.state = state
            if state == "committed" or self._is_ghost_due:
                self._is_ghost_due &= state == "committed"
                self.visible.append((f"m-{number}", half.body))
        return _said({"transaction_id": number, "state": state, "by": "client"})

    def _checks(self) -> list[dict[str, Any]]:
        now_s = asyncio.get_running_loop().time()
        due = {
            number: half
            for number, half in self.halves.items()
            if half.state == "open" and not half.is_asked and now_s - half.begun_s > CHECK_AFTER_S
        }
        for half in due.values():
            half.is_asked = True
        self.checks += len(due)
        return [{"transaction_id": number, "producer_group": "a", "attempt": 1, "messages": []} for number in due]

    def _messages(self) -> list[dict[str, Any]]:
        first, self.received = self.received, len(self.visible)
        facts = {"topic": "transfers", "queue": QUEUE, "born_at": 1, "stored_at": 1, "attempt": 1, "invisible_until": 1}
        return [
            {"message_id": message_id, "offset": at, "body": body, "receipt_handle": f"h-{at}", **facts}
            for at, (message_id, body) in enumerate(self.visible[first:], first)
        ]

    async def _polled(self, look: Any) -> list[dict[str, Any]]:
        """What *look* finds, within half a second."""
        until_s = asyncio.get_running_loop().time() + 0.5
        found: list[dict[str, Any]] = look()
        while not found and asyncio.get_running_loop().time() < until_s:
            await asyncio.sleep(POLL_S)
            found = look()
        return found


def _said(document: Any, status: int = 200) -> tuple[int, str, bytes]:
    return status, JSON, json.dumps(document).encode()


def _packed(document: Any) -> tuple[int, str, bytes]:
    return 200, MSGPACK, encode_msgpack(document)


@contextmanager
def transaction_stand_in(app: TransactionStandIn) -> Iterator[str]:
    """*app* on a port of its own, in a thread; its URL."""
    listener = open_socket("127.0.0.1", 0, "--port")
    url = f"http://127.0.0.1:{listener.getsockname()[1]}"
    loop = asyncio.new_event_loop()
    stop = asyncio.Event()
    thread = threading.Thread(target=loop.run_until_complete, args=(serve(app, listener, stop=stop),))
    thread.start()
    try:
        yield url
    finally:
        loop.call_soon_threadsafe(stop.set)
        thread.join(10)
        loop.close()
