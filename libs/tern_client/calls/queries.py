"""Looking at messages, topics and groups: requests and answers, and the calls that both Admins have. The requests are pure."""

from collections.abc import Mapping, Sequence
from typing import Any
from urllib.parse import quote, urlencode

from tern_client.calls.documents import get_request, read_document
from tern_client.client import AsyncClient, BlockingClient
from tern_client.transport.exchange import Request
from tern_wire import paths
from tern_wire.link.codec import encode_json
from tern_wire.names import check_group, check_topic

# Where a seek goes: "earliest", "latest", {"time": ms or RFC 3339}, {"shift": messages} or {"offsets": {"broker-a:3": 42}}.
Place = str | Mapping[str, Any]


def message_request(topic: str, message_id: str) -> Request:
    """One message by its id."""
    path = paths.message_path(check_topic(topic), quote(message_id, safe=""))
    return Request("GET", path, (("Accept", paths.MSGPACK),))


def find_request(
    topic: str, key: str, *, begin: str | int = "", end: str | int = "", limit: int = 0, cursor: str = ""
) -> Request:
    """Messages with a key, newest first. *begin* and *end*: ms since 1970, or RFC 3339; empty: unbounded."""
    fields = {"key": key, "from": begin, "to": end, "limit": limit, "cursor": cursor}
    query = urlencode({name: value for name, value in fields.items() if value not in {"", 0} or name == "key"})
    return Request("GET", f"{paths.messages_path(check_topic(topic))}?{query}", (("Accept", paths.MSGPACK),))


def trace_request(topic: str, message_id: str) -> Request:
    """Where one message is for each group."""
    return get_request(paths.trace_path(quote(message_id, safe="")), topic=check_topic(topic))


def seek_request(
    group: str, topic: str, to: Place, *, queues: Sequence[str] | None = None, dry_run: bool = False
) -> Request:
    """Move *group*. A shift is not repeated while it is open whether it was done: twice would be twice as far."""
    document: dict[str, Any] = {"topic": check_topic(topic), "to": to, "dry_run": dry_run}
    if queues is not None:
        document["queues"] = list(queues)
    repeatable = dry_run or isinstance(to, str) or "shift" not in to
    headers = (("Content-Type", paths.JSON),)
    return Request("POST", paths.seek_path(check_group(group)), headers, encode_json(document), repeatable=repeatable)


def offsets_at_request(topic: str, time: str | int) -> Request:
    """Offsets of every queue, and the first ones visible at *time* or later."""
    return get_request(paths.offsets_path(check_topic(topic)), time=time)


def topic_stats_request(topic: str) -> Request:
    """Numbers of a topic."""
    return get_request(paths.topic_stats_path(check_topic(topic)))


def lag_request(group: str, topic: str) -> Request:
    """How far *group* is behind in *topic*; empty: in all that it reads."""
    path = paths.lag_path(check_group(group))
    return get_request(path, topic=check_topic(topic)) if topic else get_request(path)


class QueryCalls(AsyncClient):
    """What the async Admin can look at, and move."""

    __slots__ = ()

    async def message(self, topic: str, message_id: str) -> dict[str, Any]:
        """The message with that id, its `body` as bytes; MessageNotFound."""
        return read_document(await self._call(message_request(topic, message_id)))

    async def find(
        self, topic: str, key: str, *, begin: str | int = "", end: str | int = "", limit: int = 0, cursor: str = ""
    ) -> dict[str, Any]:
        """`messages` with *key*, newest first; `next_cursor` when there are more, `truncated` when the search stopped at its bound."""
        request = find_request(topic, key, begin=begin, end=end, limit=limit, cursor=cursor)
        return read_document(await self._call(request))

    async def trace(self, topic: str, message_id: str) -> dict[str, Any]:
        """Where the message is stored, and its `state` for each of `groups`."""
        return read_document(await self._call(trace_request(topic, message_id)))

    async def seek(
        self, group: str, topic: str, to: Place, *, queues: Sequence[str] | None = None, dry_run: bool = False
    ) -> list[dict[str, Any]]:
        """Move *group* in *queues* (None: all); `queue`, `before` (None: not begun) and `after` of each. Leases there are over."""
        request = seek_request(group, topic, to, queues=queues, dry_run=dry_run)
        return list(read_document(await self._call(request))["queues"])

    async def offsets_at(self, topic: str, time: str | int) -> dict[str, int]:
        """The first offset of every queue that was visible at *time* (ms since 1970, or RFC 3339) or later."""
        rows = read_document(await self._call(offsets_at_request(topic, time)))["queues"]
        return {row["queue"]: row["offset_at"] for row in rows}

    async def topic_stats(self, topic: str) -> dict[str, Any]:
        """How much *topic* holds, and how fast messages come in and go out (over the last minute)."""
        return read_document(await self._call(topic_stats_request(topic)))

    async def lag(self, group: str, topic: str = "") -> dict[str, Any]:
        """How far *group* is behind, in messages and in ms, in *topic* or in all that it reads."""
        return read_document(await self._call(lag_request(group, topic)))


class BlockingQueryCalls(BlockingClient):
    """As QueryCalls, for threads."""

    def message(self, topic: str, message_id: str) -> dict[str, Any]:
        """The message with that id, its `body` as bytes; MessageNotFound."""
        return read_document(self._call(message_request(topic, message_id)))

    def find(
        self, topic: str, key: str, *, begin: str | int = "", end: str | int = "", limit: int = 0, cursor: str = ""
    ) -> dict[str, Any]:
        """`messages` with *key*, newest first; `next_cursor` when there are more, `truncated` when the search stopped at its bound."""
        return read_document(self._call(find_request(topic, key, begin=begin, end=end, limit=limit, cursor=cursor)))

    def trace(self, topic: str, message_id: str) -> dict[str, Any]:
        """Where the message is stored, and its `state` for each of `groups`."""
        return read_document(self._call(trace_request(topic, message_id)))

    def seek(
        self, group: str, topic: str, to: Place, *, queues: Sequence[str] | None = None, dry_run: bool = False
    ) -> list[dict[str, Any]]:
        """Move *group* in *queues* (None: all); `queue`, `before` (None: not begun) and `after` of each. Leases there are over."""
        return list(read_document(self._call(seek_request(group, topic, to, queues=queues, dry_run=dry_run)))["queues"])

    def offsets_at(self, topic: str, time: str | int) -> dict[str, int]:
        """The first offset of every queue that was visible at *time* (ms since 1970, or RFC 3339) or later."""
        rows = read_document(self._call(offsets_at_request(topic, time)))["queues"]
        return {row["queue"]: row["offset_at"] for row in rows}

    def topic_stats(self, topic: str) -> dict[str, Any]:
        """How much *topic* holds, and how fast messages come in and go out (over the last minute)."""
        return read_document(self._call(topic_stats_request(topic)))

    def lag(self, group: str, topic: str = "") -> dict[str, Any]:
        """How far *group* is behind, in messages and in ms, in *topic* or in all that it reads."""
        return read_document(self._call(lag_request(group, topic)))
