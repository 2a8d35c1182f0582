"""A server for relays of an outbox: a transport without sockets that stores a message once per key, finds it by key, and has the faults a test asks for."""

import json
from collections.abc import Awaitable, Callable
from dataclasses import dataclass, field
from typing import Any
from urllib.parse import parse_qs, urlsplit

from tern_client.transport.exchange import ProxyUnreachable, Request, Response, lost_connection
from tern_wire.errors import TernError, TopicNotFound
from tern_wire.link.codec import decode_msgpack
from tern_wire.paths import JSON

UNREACHABLE, LOST, DROPPED = "unreachable", "lost", "dropped"
URL = "http://127.0.0.1:1"


async def _at_once(messages: list[dict[str, Any]]) -> None:
    """The server answers without a wait."""


@dataclass(slots=True)
class OutboxServer:
    """What it stored, by topic; `requests`: the messages of each request. `faults`, one per request that sends: the proxy is away, stores and
    does not answer, does not even store, or refuses the whole request. `refused`: bodies that it takes never; `missing`: topics that are not there."""

    topics: dict[str, list[dict[str, Any]]] = field(default_factory=dict)
    requests: list[list[dict[str, Any]]] = field(default_factory=list)
    searches: list[str] = field(default_factory=list)
    faults: list[str | TernError] = field(default_factory=list)
    refused: dict[bytes, TernError] = field(default_factory=dict)
    missing: set[str] = field(default_factory=set)
    search_error: TernError | None = None
    before: Callable[[list[dict[str, Any]]], Awaitable[None]] = _at_once
    _keys: dict[str, dict[str, Any]] = field(default_factory=dict)

    def transport(self) -> "OutboxServer":
        """Itself, for a Relay."""
        return self

    def bodies(self, topic: str = "orders") -> list[bytes]:
        """Bodies of *topic* as they were stored."""
        return [message["body"] for message in self.topics.get(topic, [])]

    def sent_keys(self) -> list[str]:
        """The idempotency key of every message of every request."""
        return [message["idempotency_key"] for messages in self.requests for message in messages]

    def forget_keys(self) -> None:
        """Ten minutes pass."""
        self._keys.clear()

    async def exchange(self, endpoint: str, request: Request, timeout_ms: float) -> Response:
        """As tern_client's Transport."""
        url = urlsplit(request.path)
        topic = url.path.split("/")[3]
        if request.method == "GET":
            return self._found(topic, parse_qs(url.query)["key"][0])
        messages = decode_msgpack(request.body)["messages"]
        self.requests.append(messages)
        await self.before(messages)
        fault = self.faults.pop(0) if self.faults else None
        if fault == UNREACHABLE:
            raise ProxyUnreachable(endpoint=endpoint, reason="connection refused")
        if fault == DROPPED:
            raise lost_connection(endpoint, "no answer")
        if isinstance(fault, TernError):
            return _said(fault.problem(), fault.status)
        if topic in self.missing:
            return _said(TopicNotFound(topic=topic).problem(), 404)
        results = [self._store(topic, number, message) for number, message in enumerate(messages)]
        if fault == LOST:
            raise lost_connection(endpoint, "no answer")
        return _said({"results": results, "failed": sum("error" in result for result in results)}, 207)

    async def close(self) -> None:
        """Nothing is open."""

    def _store(self, topic: str, number: int, message: dict[str, Any]) -> dict[str, Any]:
        if error := self.refused.get(message["body"]):
            return {"index": number, "error": error.problem()}
        key = message["idempotency_key"]
        receipt = self._keys.get(key)
        if receipt is None:
            queue = self.topics.setdefault(topic, [])
            receipt = {"message_id": f"m{len(queue)}", "queue": "broker-a:0", "offset": len(queue), "born_at": 0}
            queue.append(message)
            self._keys[key] = receipt
        return {"index": number, **receipt}

    def _found(self, topic: str, key: str) -> Response:
        self.searches.append(key)
        if self.search_error is not None:
            return _said(self.search_error.problem(), self.search_error.status)
        found = [{"message_id": "m"} for message in self.topics.get(topic, []) if key in message["keys"]]
        return _said({"messages": found[:1], "truncated": False})


def _said(document: dict[str, Any], status: int = 200) -> Response:
    return Response(status, {"content-type": JSON}, json.dumps(document).encode())
