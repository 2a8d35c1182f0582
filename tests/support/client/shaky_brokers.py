"""Two broker groups behind a proxy that is slow, refuses, hangs up and forgets to answer, by a seed: a transport without sockets.

As a real proxy, it passes a request on in pieces: one for each broker group, of at most 1 MiB. A piece is stored as a whole or not at all, whatever
becomes of the others; a message with a key is stored once. What was given up may be stored later, as when a proxy hangs for a while.
"""

import asyncio
import json
import random
from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Any
from urllib.parse import parse_qs, urlsplit

from tern_client.transport.exchange import ProxyUnreachable, Request, Response, lost_connection
from tern_wire.errors import NoLeader, OutcomeUnknown, TernError, TopicNotWritable
from tern_wire.limits import LANE_SIZE_MAX_BYTES
from tern_wire.link.codec import decode_msgpack
from tern_wire.paths import HEADER_IDEMPOTENCY_KEY, HEADER_MESSAGE_GROUP, JSON

FOR_NOW: Callable[[], TernError] = lambda: NoLeader(broker_group="broker-a")  # noqa: E731 - a value of a table


@dataclass(frozen=True, slots=True)
class Arrived:
    """One message of a request."""

    message_group: str
    body: bytes
    key: str

    @property
    def broker_group(self) -> str:
        """Where it is stored: a message group has one place."""
        return "broker-" + "ab"[sum(self.message_group.encode()) % 2]


@dataclass(slots=True)
class ShakyBrokers:
    """Fates by *seed*. `stored`: topic and message group to the bodies, as they lie in the queue."""

    seed: int
    # Of 100 requests or pieces, so many fail for now; and so many requests for good.
    trouble_percent: int = 50
    fatal_percent: int = 0
    # A request is under way for up to so many turns of the loop.
    turns_max: int = 6
    stored: dict[tuple[str, str], list[bytes]] = field(default_factory=dict)
    in_flight: int = 0
    in_flight_max: int = 0
    requests: int = 0
    _receipts: dict[str, dict[str, Any]] = field(default_factory=dict)
    _late: set[asyncio.Task[None]] = field(default_factory=set)
    _random: random.Random = field(init=False)

    def __post_init__(self) -> None:
        self._random = random.Random(self.seed)

    async def exchange(self, endpoint: str, request: Request, timeout_ms: float) -> Response:
        """As tern_client.Transport."""
        self.requests += 1
        self.in_flight += 1
        self.in_flight_max = max(self.in_flight_max, self.in_flight)
        try:
            await self._some_turns()
            return await self._answer(endpoint, request)
        finally:
            self.in_flight -= 1

    async def close(self) -> None:
        """What was given up arrives at last."""
        await asyncio.gather(*self._late)

    async def _answer(self, endpoint: str, request: Request) -> Response:
        topic, messages = read_messages(request)
        if self._chance(self.fatal_percent):
            raise TopicNotWritable(topic=topic)
        if not self._chance(self.trouble_percent):
            return await self._told(topic, messages, request)
        fate = self._random.choice(("unreachable", "refused", "lost", "late", "in part"))
        if fate == "unreachable":
            raise ProxyUnreachable(endpoint=endpoint, reason="connection refused")
        if fate == "refused":
            return refusal(FOR_NOW())
        if fate == "lost":
            await self._told(topic, messages, request)
            raise lost_connection(endpoint, "no answer")
        if fate == "late":
            self._late.add(asyncio.get_running_loop().create_task(self._store_late(topic, messages)))
            raise lost_connection(endpoint, "no answer in time")
        return await self._told(topic, messages, request, trouble_percent=50)

    async def _told(self, topic: str, messages: list[Arrived], request: Request, trouble_percent: int = 0) -> Response:
        results: list[dict[str, Any]] = [{}] * len(messages)
        pieces = cut_up(messages)
        self._random.shuffle(pieces)
        for piece in pieces:
            if self._chance(trouble_percent):
                error = self._random.choice((FOR_NOW, OutcomeUnknown))()
                if isinstance(error, OutcomeUnknown) and self._chance(50):
                    self._store(topic, messages, piece)
                for number in piece:
                    results[number] = {"index": number, "error": error.problem()}
            else:
                for number, receipt in zip(piece, self._store(topic, messages, piece), strict=True):
                    results[number] = {"index": number, **receipt}
            await self._some_turns()
        if request.path.endswith("/batch"):
            return said({"results": results, "failed": sum("error" in result for result in results)}, 207)
        if "error" in results[0]:
            return said(results[0]["error"], results[0]["error"]["status"])
        return said(results[0])

    async def _store_late(self, topic: str, messages: list[Arrived]) -> None:
        for _ in range(8):
            await self._some_turns()
        for piece in cut_up(messages):
            self._store(topic, messages, piece)

    def _store(self, topic: str, messages: list[Arrived], piece: list[int]) -> list[dict[str, Any]]:
        receipts = []
        for message in (messages[number] for number in piece):
            queue = self.stored.setdefault((topic, message.message_group), [])
            receipt = self._receipts.get(message.key)
            if receipt is None:
                receipt = {
                    "message_id": f"m{len(self._receipts)}",
                    "queue": f"{message.broker_group}:0",
                    "offset": len(queue),
                    "born_at": 0,
                }
                queue.append(message.body)
                if message.key:
                    self._receipts[message.key] = receipt
            receipts.append(receipt)
        return receipts

    async def _some_turns(self) -> None:
        for _ in range(self._random.randrange(self.turns_max)):
            await asyncio.sleep(0)

    def _chance(self, percent: int) -> bool:
        return self._random.randrange(100) < percent


def read_messages(request: Request) -> tuple[str, list[Arrived]]:
    """Topic and messages of a send, a batch or a request."""
    url = urlsplit(request.path)
    topic = url.path.split("/")[3]
    if url.path.endswith("/batch"):
        rows = decode_msgpack(request.body)["messages"]
        return topic, [
            Arrived(row.get("message_group", ""), row["body"], row.get("idempotency_key", "")) for row in rows
        ]
    headers, query = dict(request.headers), parse_qs(url.query)
    group = headers.get(HEADER_MESSAGE_GROUP, "") or query.get("message_group", [""])[0]
    key = headers.get(HEADER_IDEMPOTENCY_KEY, "") or query.get("idempotency_key", [""])[0]
    return topic, [Arrived(group, request.body, key)]


def cut_up(messages: list[Arrived]) -> list[list[int]]:
    """Numbers of *messages* by piece."""
    pieces: list[list[int]] = []
    open_pieces: dict[str, tuple[list[int], int]] = {}
    for number, message in enumerate(messages):
        piece, size_bytes = open_pieces.get(message.broker_group, ([], 0))
        if not piece or size_bytes + len(message.body) > LANE_SIZE_MAX_BYTES:
            piece, size_bytes = [], 0
            pieces.append(piece)
        piece.append(number)
        open_pieces[message.broker_group] = piece, size_bytes + len(message.body)
    return pieces


def said(document: dict[str, Any], status: int = 200) -> Response:
    """An answer in JSON."""
    return Response(status, {"content-type": JSON}, json.dumps(document).encode())


def refusal(error: TernError) -> Response:
    """A problem document."""
    return said(error.problem(), error.status)
