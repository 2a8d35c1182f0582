"""Documents of tails: their events, as lines of NDJSON have them."""

from typing import Annotated, Any

from msgspec import UNSET, Struct, UnsetType

from tern_proxy.core.documents.values import Count, Offset, Queue, words

START, MESSAGE, SKIPPED, KEEP_ALIVE, END, ERROR = "start", "message", "skipped", "keep-alive", "end", "error"
# Reasons of an end.
FULL, IDLE, STOPPING = "max_messages", "idle", "stopping"


class Skipped(Struct, kw_only=True):
    """Messages that retention dropped before the tail read them: those of `queue` from the offset
    `first` to before `next`. `count` of all, whether they match the filter or not.
    """

    queue: Queue
    first: Offset
    next: Offset
    count: Count


class Ended(Struct, kw_only=True):
    """Why a tail ended without an error: it has given `max_messages`; nothing came for as long as
    `idle`; or the proxy stops, and another one continues from the last id.
    """

    reason: Annotated[str, words(FULL, IDLE, STOPPING)]


class TailEvent(Struct, kw_only=True):
    """One line of a tail in NDJSON.

    `data`: of `message` the message, of `skipped`, `end` and `error` (a problem) their documents.
    `id`: the place behind this event, absent where it is as before; hand it back to continue there.
    """

    event: Annotated[str, words(START, MESSAGE, SKIPPED, KEEP_ALIVE, END, ERROR)]
    id: str | UnsetType = UNSET
    data: Any | UnsetType = UNSET
