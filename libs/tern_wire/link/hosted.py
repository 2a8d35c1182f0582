"""What a broker group hosts, as proxies ask before it may be taken out: its topics, and what of them is left to be read."""

from typing import Annotated, ClassVar

import msgspec

from tern_wire.limits import LISTED_MAX
from tern_wire.link.heads import LinkReply, LinkRequest
from tern_wire.link.requests import RequestCode


class HostedGroup(msgspec.Struct, frozen=True, array_like=True):
    """So many messages of a topic has *group* to settle yet, *unread*, and so many of these are *leased*."""

    group: str
    unread: int
    leased: int


class HostedTopic(msgspec.Struct, frozen=True, array_like=True):
    """A topic: *messages* that it keeps, those that are *scheduled* for a delivery time, and *groups* that have begun it here, by name."""

    topic: str
    messages: int
    scheduled: int
    groups: list[HostedGroup]


class DeadGroup(msgspec.Struct, frozen=True, array_like=True):
    """A group, and how many dead letters it has here."""

    group: str
    count: int


class HostedPage(LinkReply, frozen=True, kw_only=True):
    """A page of topics by name. *more*: there are others behind it. *open*: transactions that have not ended, of the whole broker group.

    *dead_letters*: how many there are, of all groups, and *dead_groups* those that have the most; 0 and none on any page but the first.
    """

    topics: list[HostedTopic]
    more: bool
    open: int
    dead_letters: int
    dead_groups: list[DeadGroup]


class ListHosted(LinkRequest[HostedPage], frozen=True, kw_only=True):
    """At most *limit* topics behind the name *after*; "": from the first one."""

    code: ClassVar = RequestCode.HOSTED
    reply: ClassVar = HostedPage

    after: str
    limit: Annotated[int, msgspec.Meta(ge=1, le=LISTED_MAX)]
