"""Consumer groups, as proxies change, describe, list and delete them: what one broker group has of each.

What a change may say is in `tern_wire/settings/group_settings.py`, whose maps have the fields of a ChangeGroup.
"""

from typing import Annotated, ClassVar

import msgspec

from tern_wire.limits import LISTED_MAX
from tern_wire.link.heads import LinkReply, LinkRequest
from tern_wire.link.requests import RequestCode

GROUP_ID_MAX = 1 << 62


# Changed -----------------------------------------------------------------------------------------------------------
class GroupRetry(msgspec.Struct, frozen=True, kw_only=True, omit_defaults=True):
    """How long a message rests after a failed attempt: the fields of a `RetryPolicy` (`tern_wire/settings/retry_policy.py`).

    *policy* `custom` has *delays_ms*, `exponential` the other three, `table` nothing; what a policy does not have is 0 or empty.
    """

    policy: str
    delays_ms: list[int] = msgspec.field(default_factory=list)
    initial_ms: int = 0
    multiplier_permille: int = 0
    max_ms: int = 0


class KnownGroup(msgspec.Struct, frozen=True, kw_only=True, omit_defaults=True):
    """How a consumer group is set up in a broker group.

    *invisible_ms*: how long what it receives is leased. *start*: where it begins in a queue that it has never read, `earliest`, `latest` or `time`;
    *start_ms*: that time in ms since 1970, else 0. *retry_delays_ms*: what *retry* comes to, after attempt 1, 2 ...; the last one holds for all
    further attempts. *fifo*: it receives in order; *consume*: it may receive; *broadcast*: each member reads all.
    """

    group_id: int
    group: str
    invisible_ms: int
    start: str
    start_ms: int
    max_attempts: int
    retry: GroupRetry
    retry_delays_ms: list[int]
    fifo: bool
    consume: bool
    broadcast: bool
    attributes: dict[str, str]


class GroupChanged(KnownGroup, LinkReply, frozen=True, kw_only=True):
    """The group after a change. *created*: it was not there before."""

    created: bool


class ChangeGroup(LinkRequest[GroupChanged], frozen=True, kw_only=True):
    """Create *group*, or change it: the fields of a `GroupChange`. None, and what is empty: not named, so it stays as it is or gets its default.

    *mode*: as in ChangeTopic. *start_ms*: 0 unless *start* is `time`. *attributes*: those that are set, and with None those that are removed.
    """

    code: ClassVar = RequestCode.CREATE_GROUP
    reply: ClassVar = GroupChanged

    group: str
    mode: str = ""
    invisible_ms: int | None = None
    start: str | None = None
    start_ms: int = 0
    max_attempts: int | None = None
    retry: GroupRetry | None = None
    fifo: bool | None = None
    consume: bool | None = None
    broadcast: bool | None = None
    attributes: dict[str, str | None] = msgspec.field(default_factory=dict)


# Described ---------------------------------------------------------------------------------------------------------
class GroupProgress(msgspec.Struct, frozen=True, kw_only=True, omit_defaults=True):
    """How far a group is in *topic*: *committed* offsets by the number of the queue as text, of those queues that it has begun.

    In messages: *lag* is not settled yet, *leased* is under lease, *available* could be leased now, *parked* waits for its message group.
    """

    topic: str
    committed: dict[str, int]
    lag: int = 0
    leased: int = 0
    available: int = 0
    parked: int = 0


class GroupDescription(KnownGroup, LinkReply, frozen=True, kw_only=True):
    """A group, and how far it is in the *topics* that it has begun, by name. *more*: they are not all of them."""

    topics: list[GroupProgress]
    more: bool


class DescribeGroup(LinkRequest[GroupDescription], frozen=True, kw_only=True):
    """What this broker group has of *group*, in *topic* or, if that is "", in all topics; GroupNotFound."""

    code: ClassVar = RequestCode.DESCRIBE_GROUP
    reply: ClassVar = GroupDescription

    group: str
    topic: str


class ListedGroups(LinkReply, frozen=True, kw_only=True):
    """A page of groups in order. *more*: there are others behind it."""

    groups: list[KnownGroup]
    more: bool


class ListGroups(LinkRequest[ListedGroups], frozen=True, kw_only=True):
    """At most *limit* groups whose own names hold *q*, in any case, behind the name *after* ("": from the first one); *descending*: backwards.

    Those of *namespace* ("": of none), or with *everywhere* those of all namespaces.
    """

    code: ClassVar = RequestCode.LIST_GROUPS
    reply: ClassVar = ListedGroups

    q: str
    after: str
    limit: Annotated[int, msgspec.Meta(ge=1, le=LISTED_MAX)]
    descending: bool
    namespace: str = ""
    everywhere: bool = False


# Deleted -----------------------------------------------------------------------------------------------------------
class GroupDeleted(LinkReply, frozen=True, kw_only=True):
    """*deleted*: the group that was meant is gone, now or before. *group_id*: the one that has the name yet; 0: there is none."""

    deleted: bool
    group_id: int


class DeleteGroup(LinkRequest[GroupDeleted], frozen=True, kw_only=True):
    """Delete *group* with its offsets, leases and dead letters, if its id is *group_id*; 0: whichever has the name."""

    code: ClassVar = RequestCode.DELETE_GROUP
    reply: ClassVar = GroupDeleted

    group: str
    group_id: Annotated[int, msgspec.Meta(ge=0, le=GROUP_ID_MAX)]
