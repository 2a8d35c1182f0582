"""Link requests that use the key index: messages by key, the trace of a message by id, and the
reply to a request.

Requests and replies are described in `tern_wire/replies.py`.
"""

from typing import Annotated, ClassVar

import msgspec

from tern_wire.limits import QUERY_MESSAGES_MAX, WAIT_MAX_MS
from tern_wire.link.heads import LinkReply, LinkRequest
from tern_wire.link.requests import RequestCode

_TIME_MAX_MS, _PLACE_MAX = (1 << 53) - 1, (1 << 63) - 1
_PlaceNumber = Annotated[int, msgspec.Meta(ge=0, le=_PLACE_MAX)]
TimeMs = Annotated[int, msgspec.Meta(ge=0, le=_TIME_MAX_MS)]
# Entry of the key index: its file, and its number in the file.
Place = tuple[_PlaceNumber, _PlaceNumber]


# By key -------------------------------------------------------------------------------------------
class FoundMessages(LinkReply, frozen=True, kw_only=True):
    """Reply: messages with the key, newest first.

    Raw bytes: their records, with offset -1 where a message is not yet visible or no longer in its
    queue. *places*: their index entries. *next*: where to continue, None when there is nothing
    older. *truncated*: the search stopped at its bound.
    """

    places: list[Place]
    next: Place | None
    truncated: bool


class FindMessages(LinkRequest[FoundMessages], frozen=True, kw_only=True):
    """Find at most *count* messages of *topic* whose id or one of whose keys is *key*, stored in
    [*begin_ms*, *end_ms*].

    Times are ms since 1970. *after*: continue behind that place; None: from the newest message on.
    """

    code: ClassVar = RequestCode.QUERY
    reply: ClassVar = FoundMessages

    topic: str
    key: str
    begin_ms: TimeMs
    end_ms: TimeMs
    count: Annotated[int, msgspec.Meta(ge=1, le=QUERY_MESSAGES_MAX)]
    after: Place | None = None


# By id --------------------------------------------------------------------------------------------
class TracedGroup(msgspec.Struct, frozen=True, kw_only=True, omit_defaults=True):
    """State of a message in *group*.

    *state* is `not-begun`, `waiting`, `blocked`, `leased`, `resting`, `returned`, `dying`,
    `settled` or `dead-lettered`. Fields without meaning for a state are None or "": the number of
    *attempts*, *until_ms* (since 1970) of the lease or retry delay, the *cause* of death and the
    *reason* given, *dead_letter_offset* in the group's dead letters.
    """

    state: str
    attempts: int | None = None
    until_ms: int | None = None
    cause: str = ""
    reason: str = ""
    group: str
    dead_letter_offset: int | None = None


# Peers expect all fields of a found message, so defaults are written as well.
class TracedMessage(LinkReply, frozen=True, kw_only=True, omit_defaults=False):
    """Reply: the place of a message, if it was *found*: at *offset* of *queue* (-1: none now),
    visible since *visible_ms*.

    *visible_ms* is 0 if it is not visible, or no longer. *groups*: those that have begun to read
    the topic, by name. Raw bytes: the message's record.
    """

    found: bool
    queue: int = 0
    offset: int = -1
    visible_ms: int = 0
    groups: list[TracedGroup] = msgspec.field(default_factory=list)


class TraceMessage(LinkRequest[TracedMessage], frozen=True, kw_only=True):
    """Find the message of *topic* with this id, and its state in each consumer group."""

    code: ClassVar = RequestCode.TRACE
    reply: ClassVar = TracedMessage

    topic: str
    message_id: str


# Replies ------------------------------------------------------------------------------------------
class AwaitedReply(LinkReply, frozen=True, kw_only=True):
    """Reply. Raw bytes, if a reply was *found*: its record, the oldest one stored since the
    request's *from_ms*.
    """

    found: bool


class AwaitReply(LinkRequest[AwaitedReply], frozen=True, kw_only=True):
    """Request the reply to *correlation_id* at the address *reply_to*, stored in the reply topic
    *topic* since *from_ms*.

    *from_ms* is in ms since 1970. *wait_ms*: how long to wait for the reply; 0 for no wait.
    """

    code: ClassVar = RequestCode.AWAIT_REPLY
    reply: ClassVar = AwaitedReply

    topic: str
    correlation_id: str
    reply_to: str
    from_ms: TimeMs
    wait_ms: Annotated[int, msgspec.Meta(ge=0, le=WAIT_MAX_MS)]
