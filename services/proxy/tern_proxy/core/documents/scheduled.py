"""Documents of scheduled messages, which wait for their delivery time."""

from typing import Annotated

from msgspec import UNSET, Meta, Struct, UnsetType

from tern_proxy.core.documents.values import Count, Queue, Time
from tern_wire.limits import SCHEDULED_LISTED_MAX
from tern_wire.recall_handles import RECALL_HANDLE_SIZE_MAX_CHARS


class ScheduledMessage(Struct, kw_only=True):
    """A message that waits for its delivery time."""

    message_id: str
    queue: Queue
    deliver_at: Time
    born_at: Time
    body_size: Count
    recall_handle: Annotated[str, Meta(max_length=RECALL_HANDLE_SIZE_MAX_CHARS, description="DELETE it to recall.")]
    tag: str | UnsetType = UNSET
    keys: list[str] | UnsetType = UNSET


class ScheduledMessages(Struct, kw_only=True):
    """A page of scheduled messages, in order of delivery."""

    topic: str
    messages: Annotated[list[ScheduledMessage], Meta(max_length=SCHEDULED_LISTED_MAX)]
    next_cursor: Annotated[str, Meta(description="For the next page; missing on the last one.")] | UnsetType = UNSET
