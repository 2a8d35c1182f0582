"""Messages that the key index finds, as proxies ask for them: by key, by id with what consumer groups have made of them, and the reply to a request.

What requests and replies are is in `tern_wire/replies.py`.
"""

from typing import Annotated, ClassVar

import msgspec

from tern_wire.limits import QUERY_MESSAGES_MAX, WAIT_MAX_MS
from tern_wire.link.heads import LinkReply, LinkRequest
from tern_wire.link.requests import RequestCode

_TIME_MAX_MS, _PLACE_MAX = (1 << 53) - 1, (1 << 63) - 1
_PlaceNumber = Annotated[int, msgspec.Meta(ge=0, le=_PLACE_MAX)]
TimeMs = Annotated[int, msgspec.Meta(ge=0, le=_TIME_MAX_MS)]
# One entry of the key index: its file, and its number there.
Place = tuple[_PlaceNumber, _PlaceNumber]


# By key ------------------------------------------------------------------------------------------------------------
class FoundMessages(LinkReply, frozen=True, kw_only=True):
    """Messages with the key, newest first. Behind it: their records, with offset -1 where a message has none now: it is not visible yet, or not
    in its queue any more.

    *places*: theirs; *next*: where to go on, None when there is nothing older; *truncated*: the walk stopped at its bound.
    """

    places: list[Place]
    next: Place | None
    truncated: bool


class FindMessages(LinkRequest[FoundMessages], frozen=True, kw_only=True):
    """At most *count* messages of *topic* whose id or one of whose keys is *key*, stored from *begin_ms* to *end_ms* (since 1970).

    *after*: behind that place; None: from the newest one on.
    """

    code: ClassVar = RequestCode.QUERY
    reply: ClassVar = FoundMessages

    topic: str
    key: str
    begin_ms: TimeMs
    end_ms: TimeMs
    count: Annotated[int, msgspec.Meta(ge=1, le=QUERY_MESSAGES_MAX)]
    after: Place | None = None


# By id -------------------------------------------------------------------------------------------------------------
class TracedGroup(msgspec.Struct, frozen=True, kw_only=True, omit_defaults=True):
    """Where a message is for *group*. *state*: `not-begun`, `waiting`, `blocked`, `leased`, `resting`, `returned`, `dying`, `settled` or
    `dead-lettered`.

    What a state has nothing to say of is None or "": how many *attempts* there were, *until_ms* (since 1970) it is leased or rests, the *cause* of
    death and the *reason* that somebody gave, *dead_letter_offset* among the group's dead letters.
    """

    state: str
    attempts: int | None = None
    until_ms: int | None = None
    cause: str = ""
    reason: str = ""
    group: str
    dead_letter_offset: int | None = None


# Peers look for each field of a message that was found, so those at their defaults are written as well.
class TracedMessage(LinkReply, frozen=True, kw_only=True, omit_defaults=False):
    """Where a message is, if it was *found*: at *offset* of *queue* (-1: it has none now), visible since *visible_ms* (0: it is not, or not any more).

    *groups*: those that have begun to read the topic, by name. Behind it: the message's record.
    """

    found: bool
    queue: int = 0
    offset: int = -1
    visible_ms: int = 0
    groups: list[TracedGroup] = msgspec.field(default_factory=list)


class TraceMessage(LinkRequest[TracedMessage], frozen=True, kw_only=True):
    """The message of *topic* with this id, and where it is for each consumer group."""

    code: ClassVar = RequestCode.TRACE
    reply: ClassVar = TracedMessage

    topic: str
    message_id: str


# Replies -----------------------------------------------------------------------------------------------------------
class AwaitedReply(LinkReply, frozen=True, kw_only=True):
    """Whether there is one. Behind it, if it was *found*: the reply's record, the oldest one stored since the request's *from_ms*."""

    found: bool


class AwaitReply(LinkRequest[AwaitedReply], frozen=True, kw_only=True):
    """The reply to *correlation_id* that was sent to the address *reply_to*, in the reply topic *topic*, stored at *from_ms* (since 1970) or later.

    *wait_ms*: how long to wait for it; 0: do not.
    """

    code: ClassVar = RequestCode.AWAIT_REPLY
    reply: ClassVar = AwaitedReply

    topic: str
    correlation_id: str
    reply_to: str
    from_ms: TimeMs
    wait_ms: Annotated[int, msgspec.Meta(ge=0, le=WAIT_MAX_MS)]
