"""A tail: its requests, and what its lines mean. Nothing here waits.

    request -> 200, lines -> message, keep-alive, skipped, ... -> end | error | lost
       ^-------------- with the id of the last line -----------------------------+

Law: the id of a message is kept at the moment at which the message is handed out. The next request
continues behind it, at any proxy: no message is left out, none is handed out twice.
"""

import base64
from dataclasses import dataclass
from typing import Any
from urllib.parse import urlencode

import orjson

from tern_client.calls.compressed_bodies import plain
from tern_client.calls.pulling import PulledMessage, pulled_message
from tern_client.transport.exchange import Request, problem_error
from tern_wire import paths
from tern_wire.errors import LinkReplyMalformed, ShuttingDown
from tern_wire.limits_tails import TAIL_HEARTBEAT_MS
from tern_wire.names import check_topic

# A stream without a sign of life for so long is taken for lost.
SILENCE_MAX_MS = 2 * TAIL_HEARTBEAT_MS + 5_000


@dataclass(frozen=True, slots=True, kw_only=True)
class TailSettings:
    """Settings of a tail, as of the class Tail. *max_messages* 0 and *idle* None: no end."""

    topic: str
    start: str = "latest"
    since: str | int = ""
    tags: str = ""
    sql: str = ""
    max_messages: int = 0
    idle: str | int | None = None


class TailState:
    """Where a tail is. Owner: one Tail."""

    __slots__ = ("_settings", "is_over", "last_id", "received", "skipped")

    def __init__(self, settings: TailSettings, last_id: str) -> None:
        self._settings = settings
        # The id behind everything that was handed out; "" before the first answer.
        self.last_id = last_id
        self.received = self.skipped = 0
        # Whether the tail has ended as was asked.
        self.is_over = False

    def request(self) -> Request:
        """Return the request that continues."""
        settings = self._settings
        query: dict[str, str | int] = {"encoding": "base64"}
        query |= {"since": settings.since} if settings.since else {"from": settings.start}
        query |= {name: text for name, text in (("tags", settings.tags), ("sql", settings.sql)) if text}
        if settings.max_messages:
            query["max_messages"] = settings.max_messages - self.received
        if settings.idle is not None:
            query["idle"] = settings.idle
        headers = [("Accept", paths.NDJSON)]
        if self.last_id:
            headers.append((paths.HEADER_LAST_EVENT_ID, self.last_id))
        return Request("GET", f"{paths.tail_path(check_topic(settings.topic))}?{urlencode(query)}", tuple(headers))

    def take(self, line: bytes) -> PulledMessage | None:
        """Return the message of a *line*, if it has one. Raise the error with which the stream
        ends; ShuttingDown when the proxy stops.
        """
        try:
            event: dict[str, Any] = orjson.loads(line)
            name, data = event["event"], event.get("data", {})
            message = _message_of(data) if name == "message" else None
        except (ValueError, KeyError, TypeError) as error:
            raise LinkReplyMalformed(reason=f"a line of a tail is not what it should be ({error})") from error
        self.last_id = event.get("id") or self.last_id
        if message is not None:
            self.received += 1
            self.is_over = self.received == self._settings.max_messages
        elif name == "skipped":
            self.skipped += int(data["count"])
        elif name == "error":
            raise problem_error(data)
        elif name == "end":
            if data.get("reason") == "stopping":
                raise ShuttingDown
            self.is_over = True
        return message


def _message_of(data: dict[str, Any]) -> PulledMessage:
    """Return the message with its plain body, as every reader of the SDK does."""
    return plain(pulled_message(data, base64.b64decode(data["body_base64"])))
