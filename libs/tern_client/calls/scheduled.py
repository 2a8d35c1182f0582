"""When and in which order a message is delivered, as requests say it; and the messages that wait for their time. Pure."""

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any
from urllib.parse import quote

from tern_client.calls.documents import get_request, read_document
from tern_client.transport.exchange import Request, Response
from tern_wire import paths
from tern_wire.names import check_topic


@dataclass(frozen=True, slots=True, kw_only=True)
class ScheduledMessage:
    """A message that waits for `deliver_at` (ms since 1970); `recall_handle` takes it back."""

    message_id: str
    queue: str
    deliver_at: int
    born_at: int
    body_size: int
    recall_handle: str
    tag: str = ""
    keys: tuple[str, ...] = ()


@dataclass(frozen=True, slots=True, kw_only=True)
class ScheduledPage:
    """Messages that wait, the next ones first; with `next_cursor`, "" at the end, the list goes on."""

    messages: tuple[ScheduledMessage, ...]
    next_cursor: str = ""


def scheduled_request(topic: str, begin_ms: int, end_ms: int | None, limit: int, cursor: str) -> Request:
    """One page of the messages of *topic* whose time is in [*begin_ms*, *end_ms*)."""
    query: dict[str, str | int] = {"limit": limit}
    if begin_ms:
        query["from"] = begin_ms
    if end_ms is not None:
        query["to"] = end_ms
    if cursor:
        query["cursor"] = cursor
    return get_request(paths.scheduled_path(check_topic(topic)), **query)


def read_scheduled(response: Response) -> ScheduledPage:
    """The page."""
    document = read_document(response)
    messages = tuple(ScheduledMessage(**_known(message)) for message in document["messages"])
    return ScheduledPage(messages=messages, next_cursor=document.get("next_cursor", ""))


def recall_request(topic: str, recall_handle: str) -> Request:
    """Take back a message that waits. Not repeated when its outcome is unknown: the repeat would say that it does not wait."""
    path = paths.scheduled_path(check_topic(topic), quote(recall_handle, safe=""))
    return Request("DELETE", path, repeatable=False)


def _known(message: Mapping[str, Any]) -> dict[str, Any]:
    fields = {name: message[name] for name in ScheduledMessage.__dataclass_fields__ if name in message}
    return fields | {"keys": tuple(fields.get("keys", ()))}
