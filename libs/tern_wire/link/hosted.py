"""Link request for the contents of a broker group before its removal: its topics and their unread
messages.
"""

from typing import Annotated, ClassVar

import msgspec

from tern_wire.limits import LISTED_MAX
from tern_wire.link.heads import LinkReply, LinkRequest
from tern_wire.link.requests import RequestCode


class HostedGroup(msgspec.Struct, frozen=True, array_like=True):
    """Messages of a topic that *group* has not settled (*unread*), and how many of them are
    *leased*.
    """

    group: str
    unread: int
    leased: int


class HostedTopic(msgspec.Struct, frozen=True, array_like=True):
    """Topic: its stored *messages*, its *scheduled* messages, and the *groups* that have begun it
    here, by name.
    """

    topic: str
    messages: int
    scheduled: int
    groups: list[HostedGroup]


class DeadGroup(msgspec.Struct, frozen=True, array_like=True):
    """Group and its number of dead letters in this broker group."""

    group: str
    count: int


class HostedPage(LinkReply, frozen=True, kw_only=True):
    """Reply: a page of topics by name. *more*: there are further pages.

    *open* counts the transactions of the whole broker group that have not ended. *dead_letters*
    counts those of all groups, and *dead_groups* are the groups with the most; both are empty
    except on the first page.
    """

    topics: list[HostedTopic]
    more: bool
    open: int
    dead_letters: int
    dead_groups: list[DeadGroup]


class ListHosted(LinkRequest[HostedPage], frozen=True, kw_only=True):
    """List at most *limit* topics behind the name *after*; "": from the start."""

    code: ClassVar = RequestCode.HOSTED
    reply: ClassVar = HostedPage

    after: str
    limit: Annotated[int, msgspec.Meta(ge=1, le=LISTED_MAX)]
