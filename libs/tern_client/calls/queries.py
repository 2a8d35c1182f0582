"""Queries about messages, topics and groups: requests as values. Pure."""

from collections.abc import Mapping, Sequence
from typing import Any
from urllib.parse import quote, urlencode

from tern_client.calls.documents import get_request
from tern_client.transport.exchange import Request
from tern_wire import paths
from tern_wire.link.codec import encode_json
from tern_wire.names import check_group, check_topic

# The target of a seek: "earliest", "latest", {"time": ms or RFC 3339}, {"shift": messages} or
# {"offsets": {"broker-a:3": 42}}.
Place = str | Mapping[str, Any]


def message_request(topic: str, message_id: str) -> Request:
    """Request one message by its id."""
    path = paths.message_path(check_topic(topic), quote(message_id, safe=""))
    return Request("GET", path, (("Accept", paths.MSGPACK),))


def find_request(
    topic: str, key: str, *, begin: str | int = "", end: str | int = "", limit: int = 0, cursor: str = ""
) -> Request:
    """Request messages with a key, newest first. *begin* and *end*: milliseconds since 1970, or RFC
    3339; empty: unbounded.
    """
    fields = {"key": key, "from": begin, "to": end, "limit": limit, "cursor": cursor}
    query = urlencode({name: value for name, value in fields.items() if value not in {"", 0} or name == "key"})
    return Request("GET", f"{paths.messages_path(check_topic(topic))}?{query}", (("Accept", paths.MSGPACK),))


def trace_request(topic: str, message_id: str) -> Request:
    """Request the place and state of one message in each group."""
    return get_request(paths.trace_path(quote(message_id, safe="")), topic=check_topic(topic))


def seek_request(
    group: str, topic: str, to: Place, *, queues: Sequence[str] | None = None, dry_run: bool = False
) -> Request:
    """Request to move *group*. A shift is not repeated after an unknown outcome: two shifts move
    twice as far.
    """
    document: dict[str, Any] = {"topic": check_topic(topic), "to": to, "dry_run": dry_run}
    if queues is not None:
        document["queues"] = list(queues)
    repeatable = dry_run or isinstance(to, str) or "shift" not in to
    headers = (("Content-Type", paths.JSON),)
    return Request("POST", paths.seek_path(check_group(group)), headers, encode_json(document), repeatable=repeatable)


def offsets_at_request(topic: str, time: str | int) -> Request:
    """Request offsets of every queue, and the first ones visible at *time* or later."""
    return get_request(paths.offsets_path(check_topic(topic)), time=time)


def topic_stats_request(topic: str) -> Request:
    """Request the statistics of a topic."""
    return get_request(paths.topic_stats_path(check_topic(topic)))


def lag_request(group: str, topic: str) -> Request:
    """Request how far *group* is behind in *topic*; "": in all that it reads."""
    path = paths.lag_path(check_group(group))
    return get_request(path, topic=check_topic(topic)) if topic else get_request(path)
