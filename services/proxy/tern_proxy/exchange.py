"""HTTP exchange on a hot route, raw ASGI: the request's head and body with their limits, and
replies as bytes.

`FlightBudget`, one in each process, owns the accounting of requests in flight. A body is charged as
it arrives, never by its declared length; its messages are charged before they are encoded. Both
charges are released after the answer, or before a wait. A request that exceeds the budget is
refused at once, never queued.
"""

from collections.abc import Callable, Sequence
from typing import Any, Protocol

import msgspec
from starlette.types import Receive, Scope, Send

from tern_proxy.access.authorization import ADMISSION, OPEN, Admission, admission_of
from tern_proxy.waiting.interrupts import ClientGone, Interrupt
from tern_proxy.waiting.parking import ParkedPolls
from tern_service.connections.table import address_in
from tern_service.request_memory import Holding, Room
from tern_wire.errors import RequestMalformed, TernError, UnsupportedEncoding
from tern_wire.limits import IN_FLIGHT_MESSAGES_MAX, IN_FLIGHT_SIZE_MAX_BYTES
from tern_wire.limits_requests import SMALL_BATCH_MESSAGES_MAX, SMALL_BODY_SIZE_MAX_BYTES
from tern_wire.link.codec import encode_json, encode_msgpack
from tern_wire.paths import JSON, MSGPACK, NDJSON, OCTETS, RECORDS

RawHeaders = list[tuple[bytes, bytes]]
# Status, headers without Content-Length and MQ-Request-Id, body. A view must not change any more.
Reply = tuple[int, RawHeaders, bytes | memoryview]
# Key of the message that begins an answer without an end of its own: nobody may wait for its whole
# body (access/namespaces.py).
STREAM_KEY = "tern.stream"
# Error for a body of (at least) this size in bytes.
TooLarge = Callable[[int], TernError]

CONTENT_TYPES: dict[str, tuple[bytes, bytes]] = {
    kind: (b"content-type", kind.encode()) for kind in (JSON, NDJSON, MSGPACK, OCTETS, RECORDS)
}
_encode = msgspec.json.Encoder().encode


class Stream(Protocol):
    """The body of an answer that lasts as long as its client listens."""

    async def run(self, send: Send) -> None:
        """Send the body behind the answer's head, to its end."""

    def close(self) -> None:
        """Release what it holds; called once, whether or not it ran."""


class FlightBudget:
    """Bytes of request bodies and messages of sends held at a time, each shared among senders."""

    __slots__ = ("bytes", "messages")

    def __init__(
        self, limit_bytes: int = IN_FLIGHT_SIZE_MAX_BYTES, limit_messages: int = IN_FLIGHT_MESSAGES_MAX
    ) -> None:
        self.bytes = Room("bytes of requests in flight", limit_bytes, small_max=SMALL_BODY_SIZE_MAX_BYTES)
        self.messages = Room("messages in flight", limit_messages, small_max=SMALL_BATCH_MESSAGES_MAX)

    @property
    def rooms(self) -> tuple[Room, Room]:
        """Return both rooms, for metrics."""
        return self.bytes, self.messages


def owner_of(scope: Scope) -> str:
    """Return the owner of a request's share: the principal, or without one the address; "" for
    loopback addresses.
    """
    admission: Admission = scope.get(ADMISSION, OPEN)
    return admission.principal or address_in(scope)


def _hold(room: Room, scope: Scope, count: int) -> Holding:
    holding = Holding(room, owner_of(scope))
    holding.take(count)
    return holding


class HotRequest:
    """Request on a hot route.

    Header names are lower case; `fields` has the last one of repeated headers.
    """

    __slots__ = (
        *("_body", "_budget", "_messages", "_place", "_whole"),
        *("fields", "is_read", "receive", "scope", "stream"),
    )

    def __init__(self, scope: Scope, receive: Receive, budget: FlightBudget, whole: bytes | None = None) -> None:
        """*whole*: the body of a request that came whole; nothing is received then."""
        self.scope = scope
        self.receive = receive
        self._whole = whole
        self.fields: dict[bytes, bytes] = dict(scope["headers"])
        self._budget = budget
        # Charges in the budget's rooms.
        self._body: Holding | None = None
        self._messages: Holding | None = None
        # Parking lot in which it may wait, and the owner of its place.
        self._place: tuple[ParkedPolls, str] | None = None
        # Whether the body was read to its end; otherwise the connection cannot serve another
        # request.
        self.is_read = whole is not None
        # Set by the handler of a route that `is_stream`; its reply has no body then.
        self.stream: Stream | None = None

    def header(self, name: bytes) -> str:
        """Return a header's value, or ""."""
        value = self.fields.get(name)
        return "" if value is None else value.decode("latin-1")

    @property
    def query_string(self) -> bytes:
        """Query as sent, without the question mark."""
        query: bytes = self.scope["query_string"]
        return query

    async def read_body(self, limit_bytes: int, too_large: TooLarge) -> bytes:
        """Return the whole body.

        Raise *too_large* as soon as the body is known to exceed *limit_bytes*, ClientGone when it
        breaks off. Raise ShareExceeded or Overloaded as soon as the arrived bytes, or the declared
        length of a large body, exceed the room.
        """
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
            if size > SMALL_BODY_SIZE_MAX_BYTES:
                self._budget.bytes.look(owner_of(self.scope), size)
        body, is_whole = self._whole, True
        if body is None:
            message = await self.receive()
            if message["type"] != "http.request":
                raise ClientGone
            body, is_whole = message.get("body", b""), not message.get("more_body", False)
        if is_whole:
            if body:
                if len(body) > limit_bytes:
                    raise too_large(len(body))
                room = self._budget.bytes
                self._body = room.hold_calmly(len(body)) or _hold(room, self.scope, len(body))
            self.is_read = True
            return body
        return await self._read_rest(body, limit_bytes, too_large)

    async def _read_rest(self, first: bytes, limit_bytes: int, too_large: TooLarge) -> bytes:
        holding = self._body = Holding(self._budget.bytes, owner_of(self.scope))
        pieces: list[bytes] = []
        piece, is_last, size = first, False, 0
        while True:
            if piece:
                size += len(piece)
                if size > limit_bytes:
                    raise too_large(size)
                holding.take(len(piece))
                pieces.append(piece)
            if is_last:
                self.is_read = True
                return b"".join(pieces)
            message = await self.receive()
            if message["type"] != "http.request":
                raise ClientGone
            piece, is_last = message.get("body", b""), not message.get("more_body", False)

    def release_body(self) -> None:
        """Release the charge of the body when its content has been parsed or stored, and before a
        wait.
        """
        if self._body is not None:
            self._body.give_back()

    def charge_messages(self, count: int) -> None:
        """Charge *count* messages to this request.

        Raise ShareExceeded or Overloaded when too many are in flight.
        """
        room = self._budget.messages
        if self._messages is not None:
            self._messages.take(count)
            return
        self._messages = room.hold_calmly(count) or _hold(room, self.scope, count)

    def release_messages(self) -> None:
        """Release the charge of the messages, which are stored or refused."""
        if self._messages is not None:
            self._messages.give_back()

    def may_wait(self, parking: ParkedPolls) -> bool:
        """Return whether *parking* has room for one more poll.

        Raise Overloaded when the request's owner has too many parked polls. The owner is the
        principal, or without one the address; loopback addresses have no limit.
        """
        owner = owner_of(self.scope)
        if owner and self._place is None:
            parking.claim(owner)
            self._place = parking, owner
        return parking.has_room

    def interrupt(self) -> Interrupt:
        """Return the interrupt of this request's wait. The body must have been read, or absent."""
        return Interrupt(self.receive, admission_of(self))

    def release(self) -> None:
        """Release all charges. Safe to repeat."""
        if self._body is not None:
            self._body.give_back()
        if self._messages is not None:
            self._messages.give_back()
        if self._place is not None:
            parking, owner = self._place
            self._place = None
            parking.give_back(owner)


def encode(document: Any, kind: str) -> bytes:
    """Encode *document* as JSON, or as MessagePack if *kind* is that."""
    if kind == MSGPACK:
        return encode_msgpack(document)
    return _encode(document) if isinstance(document, msgspec.Struct) else encode_json(document)


def encode_lines(documents: Sequence[msgspec.Struct]) -> bytes:
    """Encode *documents* as NDJSON."""
    return b"".join(_encode(document) + b"\n" for document in documents)


def reply(status: int, document: Any, kind: str) -> Reply:
    """Return a reply with a document."""
    return status, [CONTENT_TYPES[kind]], encode(document, kind)
