"""Topics and groups: their settings, the requests that declare them, and lists that come in pages.
Pure.

A setting that is None or left out stays as it is, or gets its default in a new topic or group.
Durations are milliseconds.
"""

import json
from collections.abc import Generator, Mapping
from typing import Any, TypedDict

from tern_client.calls.documents import get_request, read_document
from tern_client.transport.calling import Course, Outcome, Pause, Step, call
from tern_client.transport.exchange import Request
from tern_wire import paths
from tern_wire.names import check_group, check_topic

Document = dict[str, Any]
Attributes = Mapping[str, str | None]
PAGE_ROWS = 1_000


class TopicOptions(TypedDict, total=False):
    """Settings of a topic.

    - `queues`: per broker group. `type`: NORMAL, FIFO, DELAY, TRANSACTION or MIXED.
    - `permission`: rw, r, w or none. `when_full`: refuse or drop-oldest.
    - `attributes`: a text is set, None removes the attribute.
    """

    queues: int | None
    type: str | None
    permission: str | None
    when_full: str | None
    attributes: Attributes | None


class TopicRest(TypedDict, total=False):
    """TopicOptions without `queues`, which is an argument of its own."""

    type: str | None
    permission: str | None
    when_full: str | None
    attributes: Attributes | None


class GroupOptions(TypedDict, total=False):
    """Settings of a consumer group.

    - `invisible_ms`: the visibility timeout. `max_attempts`: the delivery attempts before a message
      becomes a dead letter.
    - `start`: earliest, latest, or a time (RFC 3339, or milliseconds since 1970).
    - `retry`, such as {"policy": "exponential", "initial": "5s", "multiplier": 2, "max": "2h"}.
    - `fifo`: ordered delivery of message groups. `consume`: False stops deliveries. `broadcast`:
      every client reads all messages.
    - `attributes`: a text is set, None removes the attribute.
    """

    invisible_ms: int | None
    start: str | int | None
    max_attempts: int | None
    retry: Mapping[str, Any] | None
    fifo: bool | None
    consume: bool | None
    broadcast: bool | None
    attributes: Attributes | None


# Requests ---------------------------------------------------------------------------------------
def topic_request(method: str, topic: str, options: TopicOptions, *, only_new: bool = False) -> Request:
    """Request a topic: PUT declares it, PATCH alters it. With *only_new* an existing one is refused
    with AlreadyExists.
    """
    return _send(method, paths.topic_path(check_topic(topic)), dict(options), only_new=only_new)


def group_request(method: str, group: str, options: GroupOptions, *, only_new: bool = False) -> Request:
    """Request a group: PUT declares it, PATCH alters it. With *only_new* an existing one is refused
    with AlreadyExists.
    """
    fields = dict(options)
    fields["invisible"] = fields.pop("invisible_ms", None)
    return _send(method, paths.group_path(check_group(group)), fields, only_new=only_new)


def _send(method: str, path: str, fields: Mapping[str, Any], *, only_new: bool) -> Request:
    body = json.dumps({name: value for name, value in fields.items() if value is not None}).encode()
    headers: tuple[tuple[str, str], ...] = (("Content-Type", paths.JSON),)
    if only_new:
        headers = (*headers, ("If-None-Match", "*"))
    return Request(method, path, headers, body, repeatable=not only_new)


def delete_request(path: str, name: str) -> Request:
    """Request to delete what is at *path*, confirmed with its *name*."""
    return Request("DELETE", f"{path}?confirm={name}")


def all_rows(
    course: Course, path: str, field: str, query: Mapping[str, str | int], began_ms: float
) -> Generator[Step, Outcome, list[Document]]:
    """Return the steps of a whole list, page by page; their result is the rows under *field*. Every
    page has the patience of a call of its own.
    """
    rows: list[Document] = []
    cursor, at_ms = "", began_ms
    while True:
        wanted = {"limit": PAGE_ROWS, **query, "cursor": cursor}
        request = get_request(path, **{name: value for name, value in wanted.items() if value})
        page = read_document((yield from call(course, request, at_ms)))
        rows += page[field]
        cursor = page.get("next_cursor", "")
        if not cursor:
            return rows
        # The clock is only known after a step; this is the shortest one.
        at_ms = (yield Pause(0)).now_ms
