"""Events of tails as bytes: server-sent events, and lines of NDJSON with the same parts. Pure.

    id: 1-...                            {"event":"message","id":"1-...","data":{...}}
    data: {"message_id": ...}

Law: the data of an event is one line, so that a message ends its event and no body can begin
another. JSON escapes line ends within texts; those between values of a body that is JSON itself
become blanks. Reference: WHATWG HTML 9.2 (an event without data sets the last event id, and nothing
else happens; CR, LF and CRLF end a line).
"""

from typing import Protocol

import msgspec
from msgspec import UNSET, Struct

from tern_proxy.core.documents.tails import KEEP_ALIVE, MESSAGE, START, TailEvent
from tern_wire.limits_tails import TAIL_RETRY_MS
from tern_wire.paths import EVENT_STREAM

_encode = msgspec.json.Encoder().encode
_LINE_ENDS = bytes.maketrans(b"\r\n", b"  ")


class Format(Protocol):
    """A form of events."""

    def event(self, name: str, data: bytes, event_id: str = "") -> bytes:
        """Return an event with *data*, which is JSON without line ends."""

    def start(self, event_id: str) -> bytes:
        """Return the first event."""

    def keep_alive(self, event_id: str = "") -> bytes:
        """Return a sign of life, with the place if it has moved since the last event."""


class ServerSent:
    """Server-sent events."""

    def event(self, name: str, data: bytes, event_id: str = "") -> bytes:
        """As Format. A message has no name, so that EventSource's `onmessage` gets it."""
        kind = f"event: {name}\n" if name != MESSAGE else ""
        place = f"id: {event_id}\n" if event_id else ""
        return b"%sdata: %s\n\n" % ((kind + place).encode(), data)

    def start(self, event_id: str) -> bytes:
        """As Format: no event for EventSource, but its place."""
        return f"retry: {TAIL_RETRY_MS}\nid: {event_id}\n\n".encode()

    def keep_alive(self, event_id: str = "") -> bytes:
        """As Format: a comment."""
        place = f"id: {event_id}\n" if event_id else ""
        return f": keep-alive\n{place}\n".encode()


class Lines:
    """NDJSON."""

    def event(self, name: str, data: bytes, event_id: str = "") -> bytes:
        """As Format."""
        place = f',"id":"{event_id}"' if event_id else ""
        return b'{"event":"%s"%s,"data":%s}\n' % (name.encode(), place.encode(), data)

    def start(self, event_id: str) -> bytes:
        """As Format."""
        return _encode(TailEvent(event=START, id=event_id)) + b"\n"

    def keep_alive(self, event_id: str = "") -> bytes:
        """As Format."""
        return _encode(TailEvent(event=KEEP_ALIVE, id=event_id or UNSET)) + b"\n"


def format_of(kind: str) -> Format:
    """Return the format of the content type *kind*."""
    return ServerSent() if kind == EVENT_STREAM else Lines()


def data_of(document: Struct) -> bytes:
    """Return *document* as JSON on one line."""
    return on_one_line(_encode(document))


def on_one_line(data: bytes) -> bytes:
    """Return JSON without line ends, which are blanks between its values."""
    return data.translate(_LINE_ENDS) if b"\n" in data or b"\r" in data else data
