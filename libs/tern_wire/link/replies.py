"""Waits for the reply to a request, as proxies ask for them. What requests and replies are is in `tern_wire/replies.py`."""

from typing import Annotated, ClassVar

import msgspec

from tern_wire.limits import WAIT_MAX_MS
from tern_wire.link.heads import LinkReply, LinkRequest
from tern_wire.link.requests import RequestCode

_TIME_MAX_MS = (1 << 53) - 1


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
    from_ms: Annotated[int, msgspec.Meta(ge=0, le=_TIME_MAX_MS)]
    wait_ms: Annotated[int, msgspec.Meta(ge=0, le=WAIT_MAX_MS)]
