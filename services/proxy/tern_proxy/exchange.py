"""One HTTP exchange on a hot route, raw ASGI: the request's head and body with their limits, and replies as bytes.

Owner of what is in flight: `FlightBudget`, one a process. A body is charged before it is read, the messages in it before they are encoded;
both are released after the answer. What does not fit is refused at once and never queued.
"""

from collections.abc import Callable
from typing import Any

from starlette.types import Receive, Scope

from tern_proxy.authorization import admission_of
from tern_proxy.parking import ParkingLot
from tern_service.crowd import address_of
from tern_wire.codec import encode_json, encode_msgpack
from tern_wire.errors import Overloaded, RequestMalformed, TernError, UnsupportedEncoding
from tern_wire.limits import IN_FLIGHT_MESSAGES_MAX, IN_FLIGHT_SIZE_MAX_BYTES
from tern_wire.paths import JSON, MSGPACK, NDJSON, OCTETS, RECORDS

RawHeaders = list[tuple[bytes, bytes]]
# Status, headers without Content-Length and MQ-Request-Id, body.
Reply = tuple[int, RawHeaders, bytes]
# The error for a body of so many bytes (or at least so many).
TooLarge = Callable[[int], TernError]

CONTENT_TYPES: dict[str, tuple[bytes, bytes]] = {
    kind: (b"content-type", kind.encode()) for kind in (JSON, NDJSON, MSGPACK, OCTETS, RECORDS)
}


class ClientGone(Exception):
    """The client closed its connection: there is nobody to answer."""


class FlightBudget:
    """Bytes of request bodies, and messages of sends, held at a time."""

    __slots__ = ("limit_bytes", "limit_messages", "used_bytes", "used_messages")

    def __init__(
        self, limit_bytes: int = IN_FLIGHT_SIZE_MAX_BYTES, limit_messages: int = IN_FLIGHT_MESSAGES_MAX
    ) -> None:
        self.limit_bytes, self.limit_messages = limit_bytes, limit_messages
        self.used_bytes = self.used_messages = 0

    def take(self, size_bytes: int) -> None:
        """Charge *size_bytes*; Overloaded when they do not fit."""
        if self.used_bytes + size_bytes > self.limit_bytes:
            raise Overloaded(what="bytes of requests in flight", limit=self.limit_bytes)
        self.used_bytes += size_bytes

    def take_messages(self, count: int) -> None:
        """Charge *count* messages; Overloaded when they do not fit."""
        if self.used_messages + count > self.limit_messages:
            raise Overloaded(what="messages in flight", limit=self.limit_messages)
        self.used_messages += count

    def give(self, size_bytes: int, messages: int) -> None:
        """Give back what was charged."""
        self.used_bytes -= size_bytes
        self.used_messages -= messages


class HotRequest:
    """A request on a hot route. Header names are lower case; of a repeated header `fields` has the last."""

    __slots__ = ("_budget", "_charged", "_messages", "_place", "fields", "is_read", "receive", "scope")

    def __init__(self, scope: Scope, receive: Receive, budget: FlightBudget) -> None:
        self.scope = scope
        self.receive = receive
        self.fields: dict[bytes, bytes] = dict(scope["headers"])
        self._budget = budget
        self._charged = self._messages = 0
        # Where it may wait, and as whose.
        self._place: tuple[ParkingLot, str] | None = None
        # Whether the body was read to its end; if not, the connection cannot serve another request.
        self.is_read = False

    def header(self, name: bytes) -> str:
        """A header's value, or ""."""
        value = self.fields.get(name)
        return "" if value is None else value.decode("latin-1")

    @property
    def query_string(self) -> bytes:
        """As it was sent, without the question mark."""
        query: bytes = self.scope["query_string"]
        return query

    async def read_body(self, limit_bytes: int, too_large: TooLarge) -> bytes:
        """The whole body; *too_large* as soon as it is known to be over *limit_bytes*. ClientGone when it breaks off."""
        encoding = self.fields.get(b"content-encoding")
        if encoding is not None and encoding.strip().lower() not in {b"", b"identity"}:
            raise UnsupportedEncoding(encoding=encoding.decode("latin-1")[:40])
        declared = self.fields.get(b"content-length")
        if declared is not None:
            if not declared.isdigit() or len(declared) > 18:
                raise RequestMalformed(reason="Content-Length is not a number")
            size = int(declared)
            if size > limit_bytes:
                raise too_large(size)
            self._charge(size)
        message = await self.receive()
        if message["type"] != "http.request":
            raise ClientGone
        body: bytes = message.get("body", b"")
        if not message.get("more_body", False):
            if declared is None:
                self._charge(len(body))
            if len(body) > limit_bytes:
                raise too_large(len(body))
            self.is_read = True
            return body
        return await self._read_rest(body, limit_bytes, too_large)

    async def _read_rest(self, first: bytes, limit_bytes: int, too_large: TooLarge) -> bytes:
        pieces = [first]
        size = len(first)
        while True:
            if size > limit_bytes:
                raise too_large(size)
            if size > self._charged:
                self._charge(size - self._charged)
            message = await self.receive()
            if message["type"] != "http.request":
                raise ClientGone
            piece = message.get("body", b"")
            pieces.append(piece)
            size += len(piece)
            if not message.get("more_body", False):
                break
        if size > limit_bytes:
            raise too_large(size)
        self.is_read = True
        return b"".join(pieces)

    def _charge(self, size_bytes: int) -> None:
        self._budget.take(size_bytes)
        self._charged += size_bytes

    def charge_messages(self, count: int) -> None:
        """This request sends *count* messages; Overloaded when too many are in flight."""
        self._budget.take_messages(count)
        self._messages += count

    def may_wait(self, parking: ParkingLot) -> bool:
        """Whether there is room for one more poll in *parking*; Overloaded when too many wait for who asks: the principal, or without one
        the address, unless that is loopback."""
        client = self.scope.get("client")
        owner = admission_of(self).principal or (address_of(client[0]) if client else "")
        if owner and self._place is None:
            parking.claim(owner)
            self._place = parking, owner
        return parking.has_room

    async def until_gone(self) -> None:
        """Returns when the client has closed its connection. The body must have been read, or there is none."""
        while (await self.receive())["type"] != "http.disconnect":
            pass

    def release(self) -> None:
        """Give the budget back."""
        self._budget.give(self._charged, self._messages)
        self._charged = self._messages = 0
        if self._place is not None:
            parking, owner = self._place
            self._place = None
            parking.give_back(owner)


def encode(document: Any, kind: str) -> bytes:
    """*document* as JSON or, when *kind* says so, as MessagePack."""
    return encode_msgpack(document) if kind == MSGPACK else encode_json(document)


def reply(status: int, document: Any, kind: str) -> Reply:
    """An answer with a document in it."""
    return status, [CONTENT_TYPES[kind]], encode(document, kind)
