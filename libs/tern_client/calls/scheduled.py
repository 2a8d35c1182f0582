"""Messages that wait for their delivery time: requests as values, and what the answers contain.
Pure.
"""

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
    """A message that waits until `deliver_at` (milliseconds since 1970). Admin.recall takes it back
    by its `recall_handle`.

    Example:

        from tern_client import BlockingAdmin, BlockingProducer, ScheduledMessage

        with BlockingProducer("http://127.0.0.1:8080") as producer:
            producer.send("orders", b"remind me", delay="1h", tag="reminder")
        with BlockingAdmin("http://127.0.0.1:8080") as admin:
            waiting: ScheduledMessage = admin.scheduled("orders").messages[0]
            print(waiting.tag, waiting.body_size)  # -> reminder 9
            admin.recall("orders", waiting.recall_handle)
    """

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
    """One page of waiting messages, the next ones to be delivered first. `next_cursor` continues
    the list; it is "" at the end.

    Example:

        from tern_client import BlockingAdmin, BlockingProducer, ScheduledPage

        with BlockingProducer("http://127.0.0.1:8080") as producer:
            for hours in (3, 1, 2):
                producer.send("orders", b"reminder", delay=f"{hours}h", tag=f"in-{hours}h")
        with BlockingAdmin("http://127.0.0.1:8080") as admin:
            page: ScheduledPage = admin.scheduled("orders", limit=2)
            print([message.tag for message in page.messages])  # -> ['in-1h', 'in-2h']
            page = admin.scheduled("orders", cursor=page.next_cursor)
            print([message.tag for message in page.messages])  # -> ['in-3h']
    """

    messages: tuple[ScheduledMessage, ...]
    next_cursor: str = ""


def scheduled_request(topic: str, begin_ms: int, end_ms: int | None, limit: int, cursor: str) -> Request:
    """Request one page of the messages of *topic* with a delivery time in [*begin_ms*, *end_ms*).
    None: without end.
    """
    query: dict[str, str | int] = {"limit": limit}
    if begin_ms:
        query["from"] = begin_ms
    if end_ms is not None:
        query["to"] = end_ms
    if cursor:
        query["cursor"] = cursor
    return get_request(paths.scheduled_path(check_topic(topic)), **query)


def read_scheduled(response: Response) -> ScheduledPage:
    """Return the page in *response*."""
    document = read_document(response)
    messages = tuple(ScheduledMessage(**_known(message)) for message in document["messages"])
    return ScheduledPage(messages=messages, next_cursor=document.get("next_cursor", ""))


def recall_request(topic: str, recall_handle: str) -> Request:
    """Request to take back a message that waits. It is not repeated after an unknown outcome: the
    repeat would be refused with NotScheduled.
    """
    path = paths.scheduled_path(check_topic(topic), quote(recall_handle, safe=""))
    return Request("DELETE", path, repeatable=False)


def _known(message: Mapping[str, Any]) -> dict[str, Any]:
    fields = {name: message[name] for name in ScheduledMessage.__dataclass_fields__ if name in message}
    return fields | {"keys": tuple(fields.get("keys", ()))}
