"""Link requests for producer groups: change, describe, list and delete; checkers use them for the
check settings.

`tern_wire/settings/producer_settings.py` has the legal changes; its maps have the fields of a
ChangeProducerGroup.
"""

from typing import Annotated, ClassVar

import msgspec

from tern_wire.limits import LISTED_MAX
from tern_wire.link.heads import LinkReply, LinkRequest
from tern_wire.link.requests import RequestCode


# Changes ------------------------------------------------------------------------------------------
class ProducerGroupStats(msgspec.Struct, frozen=True, kw_only=True):
    """Transactions of a producer group: *open* now, *expired* and unresolved, and totals of the
    others.

    *committed*, *rolled_back* and *checks* count all ends and checks so far.
    """

    open: int
    expired: int
    committed: int
    rolled_back: int
    checks: int


class KnownProducerGroup(msgspec.Struct, frozen=True, kw_only=True, omit_defaults=True):
    """Settings of a producer group in a broker group: the fields of `ProducerSettings`.

    *revision* counts its changes (0: none). The *check_secret* is included: proxies and checkers
    must not expose it. *stats* is None where statistics are not part of the answer.
    """

    producer_group: str
    producer_group_id: int
    check_url: str
    check_secret: str
    timeout_ms: int
    max_checks: int
    check_after_ms: int
    check_interval_ms: int
    include_body: bool
    revision: int
    stats: ProducerGroupStats | None = None


class ProducerGroupChanged(KnownProducerGroup, LinkReply, frozen=True, kw_only=True):
    """Reply: the producer group after a change. *created*: the change created it."""

    created: bool


class ChangeProducerGroup(LinkRequest[ProducerGroupChanged], frozen=True, kw_only=True):
    """Change *producer_group*, or create it with *create*: the fields of a `ProducerChange`, which
    describes them.

    None marks fields outside the change: they stay as they are or get their defaults.
    *fresh_secret* "": none. *least_revision* 0: no minimum. *revision* 0: this is not a copy of
    another broker group's decision.
    """

    code: ClassVar = RequestCode.ALTER_PRODUCER_GROUP
    reply: ClassVar = ProducerGroupChanged

    producer_group: str
    create: bool = False
    check_url: str | None = None
    check_secret: str | None = None
    timeout_ms: int | None = None
    max_checks: int | None = None
    check_after_ms: int | None = None
    check_interval_ms: int | None = None
    include_body: bool | None = None
    fresh_secret: str = ""
    least_revision: int = 0
    revision: int = 0


# Descriptions -------------------------------------------------------------------------------------
class ProducerGroups(LinkReply, frozen=True, kw_only=True):
    """Reply: the requested producer group, or a page of them by name.

    *more*: there are further pages.
    """

    groups: list[KnownProducerGroup]
    more: bool


class DescribeProducerGroups(LinkRequest[ProducerGroups], frozen=True, kw_only=True):
    """Describe *producer_group*, or list at most *limit* of them behind the name *after* ("": from
    the start).

    Raise ProducerGroupNotFound for an unknown one. *producer_group* "" lists those of *namespace*
    ("" for none), or with *everywhere* those of all namespaces.
    """

    code: ClassVar = RequestCode.DESCRIBE_PRODUCER_GROUP
    reply: ClassVar = ProducerGroups

    producer_group: str
    after: str
    limit: Annotated[int, msgspec.Meta(ge=1, le=LISTED_MAX)]
    namespace: str = ""
    everywhere: bool = False


# Deletions ----------------------------------------------------------------------------------------
class ProducerGroupDeleted(LinkReply, frozen=True, kw_only=True):
    """Reply. *deleted*: it existed. It no longer does."""

    deleted: bool


class DeleteProducerGroup(LinkRequest[ProducerGroupDeleted], frozen=True, kw_only=True):
    """Delete *producer_group*. ProducerGroupBusy while it has transactions that have not ended."""

    code: ClassVar = RequestCode.DELETE_PRODUCER_GROUP
    reply: ClassVar = ProducerGroupDeleted

    producer_group: str
