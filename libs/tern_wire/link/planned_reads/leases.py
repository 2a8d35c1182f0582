"""Link requests for read leases, which keep ranges of queues from retention: take, renew, end and
list.

A lease over several broker groups has the same name in each; each keeps its own queues.
"""

from typing import Annotated, ClassVar

import msgspec

from tern_wire.limits_reads import READ_LEASE_MAX_MS, READ_LEASE_MIN_MS
from tern_wire.link.heads import LinkReply, LinkRequest
from tern_wire.link.planned_reads.plans import OFFSET_MAX
from tern_wire.link.requests import RequestCode

_Duration = Annotated[int, msgspec.Meta(ge=READ_LEASE_MIN_MS, le=READ_LEASE_MAX_MS)]


class LeasedRange(msgspec.Struct, frozen=True, array_like=True):
    """Offsets [*begin*, *end*) of *queue*; in a request -1 for its oldest and its next one."""

    queue: int
    begin: Annotated[int, msgspec.Meta(ge=-1, le=OFFSET_MAX)]
    end: Annotated[int, msgspec.Meta(ge=-1, le=OFFSET_MAX)]


class LeasedTopic(msgspec.Struct, frozen=True, kw_only=True):
    """Ranges of *topic*; in a request none stand for all its queues."""

    topic: str
    ranges: list[LeasedRange]


class ReadLeaseTimes(LinkReply, frozen=True, kw_only=True):
    """Reply: the lease in this broker group; times are the group's (ms since 1970)."""

    lease: str
    taken_ms: int
    until_ms: int


class ReadLeaseTaken(ReadLeaseTimes, frozen=True, kw_only=True):
    """Reply: the lease, and what it keeps."""

    topics: list[LeasedTopic]


class TakeReadLease(LinkRequest[ReadLeaseTaken], frozen=True, kw_only=True):
    """Keep *topics* for *for_ms*. A repeat for a known lease changes nothing.

    *owner*: the principal whose lease it is, "" without one.
    """

    code: ClassVar = RequestCode.TAKE_READ_LEASE
    reply: ClassVar = ReadLeaseTaken

    lease: str
    owner: str = ""
    for_ms: _Duration
    topics: list[LeasedTopic]


class RenewReadLease(LinkRequest[ReadLeaseTimes], frozen=True, kw_only=True):
    """Keep *lease* until *for_ms* from now, unless it lasts longer. ReadLeaseNotFound,
    ReadLeaseBroken.
    """

    code: ClassVar = RequestCode.RENEW_READ_LEASE
    reply: ClassVar = ReadLeaseTimes

    lease: str
    for_ms: _Duration


class EndReadLease(LinkRequest[ReadLeaseTimes], frozen=True, kw_only=True):
    """End *lease*: its messages may go. ReadLeaseNotFound."""

    code: ClassVar = RequestCode.END_READ_LEASE
    reply: ClassVar = ReadLeaseTimes

    lease: str


class ListedLeasedTopic(msgspec.Struct, frozen=True, array_like=True):
    """A topic of a listed lease, the queues of it and the messages in their ranges."""

    topic: str
    queues: int
    messages: int


class ListedReadLease(msgspec.Struct, frozen=True, kw_only=True, omit_defaults=True):
    """A lease as it is listed. *broken_by*: why it holds nothing, "" while it holds."""

    lease: str
    owner: str
    taken_ms: int
    until_ms: int
    topics: list[ListedLeasedTopic]
    broken_by: str = ""


class ReadLeaseList(LinkReply, frozen=True, kw_only=True):
    """Reply: the leases, the first one to end first."""

    leases: list[ListedReadLease]


class ListReadLeases(LinkRequest[ReadLeaseList], frozen=True, kw_only=True):
    """Request all leases, or only *lease*, which may be missing."""

    code: ClassVar = RequestCode.LIST_READ_LEASES
    reply: ClassVar = ReadLeaseList

    lease: str = ""
