"""Producer groups, as proxies change, describe, list and delete them, and as checkers ask how they are asked.

What a change may say is in `tern_wire/settings/producer_settings.py`, whose maps have the fields of a ChangeProducerGroup.
"""

from typing import Annotated, ClassVar

import msgspec

from tern_wire.limits import LISTED_MAX
from tern_wire.link.heads import LinkReply, LinkRequest
from tern_wire.link.requests import RequestCode


# Changed -----------------------------------------------------------------------------------------------------------
class ProducerGroupStats(msgspec.Struct, frozen=True, kw_only=True):
    """Transactions of a producer group: *open* now, *expired* and not resolved yet; and so far *committed*, *rolled_back*, and asked about (*checks*)."""

    open: int
    expired: int
    committed: int
    rolled_back: int
    checks: int


class KnownProducerGroup(msgspec.Struct, frozen=True, kw_only=True, omit_defaults=True):
    """How a producer group is set up in a broker group: the fields of `ProducerSettings`, and *revision*, which counts its changes (0: none).

    Its *check_secret* is told, too: proxies and checkers keep it to themselves. *stats*: None where they are not told.
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
    """The producer group after a change. *created*: it was not there before."""

    created: bool


class ChangeProducerGroup(LinkRequest[ProducerGroupChanged], frozen=True, kw_only=True):
    """Change *producer_group*, or with *create* make it if it is not there: the fields of a `ProducerChange`, where they are described.

    None: not named, so it stays as it is or gets its default. *fresh_secret* "": there is none. *least_revision* 0: nobody decides anything;
    *revision* 0: this is no copy of what another broker group has decided.
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


# Described ---------------------------------------------------------------------------------------------------------
class ProducerGroups(LinkReply, frozen=True, kw_only=True):
    """The one that was asked for, or a page of them by name. *more*: there are others behind it."""

    groups: list[KnownProducerGroup]
    more: bool


class DescribeProducerGroups(LinkRequest[ProducerGroups], frozen=True, kw_only=True):
    """*producer_group*, or ProducerGroupNotFound; "": at most *limit* of them behind the name *after* ("": from the first one).

    Those of *namespace* ("": of none), or with *everywhere* those of all namespaces.
    """

    code: ClassVar = RequestCode.DESCRIBE_PRODUCER_GROUP
    reply: ClassVar = ProducerGroups

    producer_group: str
    after: str
    limit: Annotated[int, msgspec.Meta(ge=1, le=LISTED_MAX)]
    namespace: str = ""
    everywhere: bool = False


# Deleted -----------------------------------------------------------------------------------------------------------
class ProducerGroupDeleted(LinkReply, frozen=True, kw_only=True):
    """*deleted*: whether it was there. It is not any more."""

    deleted: bool


class DeleteProducerGroup(LinkRequest[ProducerGroupDeleted], frozen=True, kw_only=True):
    """Delete *producer_group*; ProducerGroupBusy while it has transactions that have not ended."""

    code: ClassVar = RequestCode.DELETE_PRODUCER_GROUP
    reply: ClassVar = ProducerGroupDeleted

    producer_group: str
