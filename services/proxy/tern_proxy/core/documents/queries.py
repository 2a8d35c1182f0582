"""Documents of single messages: found by a key or an id, and traced through the consumer groups."""

from typing import Annotated, Any

from msgspec import UNSET, Meta, Struct, UnsetType

from tern_proxy.core.documents.messages import Body, ContentEncoding
from tern_proxy.core.documents.values import Count, Offset, Queue, Time, words
from tern_wire.limits import QUERY_MESSAGES_MAX

# States, named as in `core/tracing.py` of the broker.
State = Annotated[
    str, words("not-begun", "waiting", "blocked", "leased", "resting", "returned", "dying", "settled", "dead-lettered")
]


class _Visible(Struct, kw_only=True):
    """A message that may be invisible.

    Without `offset`, its delivery time has not come, or its place in the queue is gone.
    """

    message_id: str
    topic: str
    queue: Queue
    offset: Offset | UnsetType = UNSET
    content_type: str | UnsetType = UNSET
    content_encoding: ContentEncoding | UnsetType = UNSET
    tag: str | UnsetType = UNSET
    keys: list[str] | UnsetType = UNSET
    properties: dict[str, str] | UnsetType = UNSET
    message_group: str | UnsetType = UNSET
    deliver_at: Time | UnsetType = UNSET
    correlation_id: Annotated[str, Meta(description="Of a request or a reply.")] | UnsetType = UNSET
    reply_to: Annotated[str, Meta(description="Of a request: the address of the reply.")] | UnsetType = UNSET
    expires_at: Annotated[int, Meta(description="Of a request: until when its sender waits.")] | UnsetType = UNSET
    born_at: Time
    stored_at: Time


class FoundMessage(_Visible, kw_only=True):
    """A stored message.

    Without `offset` it is not visible: its delivery time has not come, or its place in the queue is
    gone.
    """

    body: Body | UnsetType = UNSET
    json: Any | UnsetType = UNSET
    body_base64: Annotated[str, Meta(extra_json_schema={"contentEncoding": "base64"})] | UnsetType = UNSET


class FoundMessages(Struct, kw_only=True):
    """A page of messages, newest first."""

    messages: Annotated[list[FoundMessage], Meta(max_length=QUERY_MESSAGES_MAX)]
    truncated: Annotated[bool, Meta(description="Whether a broker stopped at its bound before the end.")]
    next_cursor: Annotated[str, Meta(description="For the next page; missing on the last one.")] | UnsetType = UNSET


class GroupTrace(Struct, kw_only=True):
    """State of a message in one consumer group."""

    group: str
    state: State
    attempts: Count | UnsetType = UNSET
    until: Time | UnsetType = UNSET
    cause: str | UnsetType = UNSET
    reason: str | UnsetType = UNSET
    dead_letter_offset: Offset | UnsetType = UNSET


class MessageTrace(_Visible, kw_only=True):
    """Place of a message, and its state in each group that has begun to read its topic."""

    body_size: Count
    visible_at: Time | UnsetType = UNSET
    groups: list[GroupTrace]
