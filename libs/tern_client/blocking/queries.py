# Made by `make blocking` from the file of this name in asynchronous/. Change that one.
"""Calls that inspect messages, topics and groups, and the one that moves a group."""

from collections.abc import Sequence
from typing import Any

from tern_client.blocking.client import BlockingClient
from tern_client.calls.compressed_bodies import plain_document
from tern_client.calls.documents import read_document
from tern_client.calls.queries import (
    Place,
    find_request,
    lag_request,
    message_request,
    offsets_at_request,
    seek_request,
    topic_stats_request,
    trace_request,
)


class BlockingQueryCalls(BlockingClient):
    """Calls of BlockingAdmin that inspect messages, and move groups."""

    def message(self, topic: str, message_id: str) -> dict[str, Any]:
        """Return the message with that id, its `body` as bytes; MessageNotFound."""
        return plain_document(read_document(self._call(message_request(topic, message_id))))

    def find(
        self, topic: str, key: str, *, begin: str | int = "", end: str | int = "", limit: int = 0, cursor: str = ""
    ) -> dict[str, Any]:
        """Return `messages` with *key*, newest first, from the times *begin* to *end* (milliseconds
        since 1970 or RFC 3339).

        `next_cursor` is there when there are more; `truncated` when the search stopped at its
        bound.
        """
        request = find_request(topic, key, begin=begin, end=end, limit=limit, cursor=cursor)
        found = read_document(self._call(request))
        return found | {"messages": [plain_document(message) for message in found["messages"]]}

    def trace(self, topic: str, message_id: str) -> dict[str, Any]:
        """Return where the message is stored, and its `state` in each of `groups`."""
        return read_document(self._call(trace_request(topic, message_id)))

    def seek(
        self, group: str, topic: str, to: Place, *, queues: Sequence[str] | None = None, dry_run: bool = False
    ) -> list[dict[str, Any]]:
        """Move *group* in *queues* (None: all) of *topic*; return `queue`, `before` (None: not
        begun) and `after` of each. Leases there end.

        *to*: `"earliest"`, `"latest"`, `{"time": ...}`, `{"shift": messages}` or
        `{"offsets": {"broker-a:3": 42}}`. *dry_run*: move nothing.
        """
        request = seek_request(group, topic, to, queues=queues, dry_run=dry_run)
        return list(read_document(self._call(request))["queues"])

    def offsets_at(self, topic: str, time: str | int) -> dict[str, int]:
        """Return the first offset of every queue that became visible at *time* (milliseconds since
        1970, or RFC 3339) or later.
        """
        rows = read_document(self._call(offsets_at_request(topic, time)))["queues"]
        return {row["queue"]: row["offset_at"] for row in rows}

    def topic_stats(self, topic: str) -> dict[str, Any]:
        """Return the size of *topic*, and the rates of its messages in and out over the last
        minute.
        """
        return read_document(self._call(topic_stats_request(topic)))

    def lag(self, group: str, topic: str = "") -> dict[str, Any]:
        """Return how far *group* is behind, in messages and in milliseconds, in *topic* or in all
        that it reads.
        """
        return read_document(self._call(lag_request(group, topic)))
