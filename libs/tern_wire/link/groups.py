"""Link requests for the consumer groups of one broker group: change, describe, list and delete.

`tern_wire/settings/group_settings.py` has the legal changes; its maps have the fields of a
ChangeGroup.
"""

from typing import Annotated, ClassVar

import msgspec

from tern_wire.limits import LISTED_MAX
from tern_wire.link.heads import LinkReply, LinkRequest
from tern_wire.link.requests import RequestCode

GROUP_ID_MAX = 1 << 62


# Changes ------------------------------------------------------------------------------------------
class GroupRetry(msgspec.Struct, frozen=True, kw_only=True, omit_defaults=True):
    """Retry delays after failed attempts: the fields of a `RetryPolicy`
    (`tern_wire/settings/retry_policy.py`).

    The *policy* `custom` has *delays_ms*, `exponential` the other three, `table` none. Fields
    without meaning for a policy are 0 or empty.
    """

    policy: str
    delays_ms: list[int] = msgspec.field(default_factory=list)
    initial_ms: int = 0
    multiplier_permille: int = 0
    max_ms: int = 0


class KnownGroup(msgspec.Struct, frozen=True, kw_only=True, omit_defaults=True):
    """Settings of a consumer group in a broker group.

    *invisible_ms* is the visibility timeout. *start* is the initial position in a queue without a
    committed offset: `earliest`, `latest` or `time`, where *start_ms* is that time in ms since
    1970, else 0. *retry_delays_ms* are the delays of *retry* after attempt 1, 2 ...; the last holds
    for all further attempts. *fifo*: delivery in order. *consume*: receives are allowed.
    *broadcast*: each member reads all messages.
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
    """Reply: the group after a change. *created*: the change created it."""

    created: bool


class ChangeGroup(LinkRequest[GroupChanged], frozen=True, kw_only=True):
    """Create or change *group*: the fields of a `GroupChange`.

    None and empty fields are not part of the change: they stay as they are or get their defaults.
    *mode*: as in ChangeTopic. *start_ms*: 0 unless *start* is `time`. *attributes*: values to set;
    None removes an attribute.
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


# Descriptions -------------------------------------------------------------------------------------
class GroupProgress(msgspec.Struct, frozen=True, kw_only=True, omit_defaults=True):
    """Progress of a group in *topic*: *committed* offsets by the queue's number as text, for queues
    that it has begun.

    In messages: *lag* is not yet settled, *leased* is under lease, *available* can be leased now,
    *parked* waits for its message group.
    """

    topic: str
    committed: dict[str, int]
    lag: int = 0
    leased: int = 0
    available: int = 0
    parked: int = 0


class GroupDescription(KnownGroup, LinkReply, frozen=True, kw_only=True):
    """Reply: a group and its progress in the *topics* that it has begun, by name.

    *more*: the list is incomplete.
    """

    topics: list[GroupProgress]
    more: bool


class DescribeGroup(LinkRequest[GroupDescription], frozen=True, kw_only=True):
    """Describe *group* in *topic*, or in all topics if that is "". GroupNotFound."""

    code: ClassVar = RequestCode.DESCRIBE_GROUP
    reply: ClassVar = GroupDescription

    group: str
    topic: str


class ListedGroups(LinkReply, frozen=True, kw_only=True):
    """Reply: a page of groups in order. *more*: there are further pages."""

    groups: list[KnownGroup]
    more: bool


class ListGroups(LinkRequest[ListedGroups], frozen=True, kw_only=True):
    """List at most *limit* groups with *q* in their own names (case-insensitive), behind the name
    *after* ("": from the start).

    *descending*: in reverse order. The list holds the groups of *namespace* ("" for none), or with
    *everywhere* those of all namespaces.
    """

    code: ClassVar = RequestCode.LIST_GROUPS
    reply: ClassVar = ListedGroups

    q: str
    after: str
    limit: Annotated[int, msgspec.Meta(ge=1, le=LISTED_MAX)]
    descending: bool
    namespace: str = ""
    everywhere: bool = False


# Deletions ----------------------------------------------------------------------------------------
class GroupDeleted(LinkReply, frozen=True, kw_only=True):
    """Reply. *deleted*: the intended group is gone, now or before.

    *group_id*: the group that still has the name; 0 for none.
    """

    deleted: bool
    group_id: int


class DeleteGroup(LinkRequest[GroupDeleted], frozen=True, kw_only=True):
    """Delete *group* with its offsets, leases and dead letters, if its id is *group_id*; 0 matches
    any id.
    """

    code: ClassVar = RequestCode.DELETE_GROUP
    reply: ClassVar = GroupDeleted

    group: str
    group_id: Annotated[int, msgspec.Meta(ge=0, le=GROUP_ID_MAX)]
